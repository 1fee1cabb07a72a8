/* fuzz_settings.c: the environment: lines NAME=value, each a COLL_ variable. */
#include <unistd.h>

#include "fuzz.h"
#include "libcoll/base/param.h"

#define MOST 64

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  char *text = fuzz_text(data, bytes), *rest = text, **old = environ;
  char *list[MOST + 1] = {NULL};
  colli_params *params = malloc(sizeof(*params)), copy;
  coll_error error = COLL_ERROR_INIT;
  for (int i = 0; i < MOST && rest; i++)
    list[i] = strsep(&rest, "\n");
  environ = list;
  if (params && colli_params_load(params, &error) == COLL_OK)
    colli_params_copy(&copy, params);
  environ = old;
  free(params);
  free(text);
  return 0;
}
