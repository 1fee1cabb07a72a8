/* fuzz_levels.c: a file that says of many hosts where they are; the input's first line names this
 * host, and the rest is the file. */
#include "fuzz.h"
#include "libcoll/base/error.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/levels_file.h"
#include "libcoll/tuning/link_speed.h"

/* What a file gave for this host must be settings that creations take. */
static void use(const colli_params *params) {
  colli_rank_info info = {0};
  coll_error error = COLL_ERROR_INIT;
  if (colli_hierarchy_describe(params->text[COLLI_PARAM_LEVELS], &info, &error) != COLL_OK)
    abort();
  if (colli_hierarchy_depth(&info) > COLLI_HOST_LEVELS ||
      memchr(info.levels, 0, sizeof(info.levels)) == NULL ||
      colli_link_speed_describe(params->text[COLLI_PARAM_LINK_SPEED], 0, &info, &error) != COLL_OK)
    abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static colli_params params;
  coll_error error = COLL_ERROR_INIT;
  char host[64] = "", setting[4096];
  const uint8_t *end = bytes ? memchr(data, '\n', bytes) : NULL;
  if (!end || (size_t)(end - data) >= sizeof(host) || memchr(data, 0, (size_t)(end - data)))
    return 0;
  memcpy(host, data, (size_t)(end - data));
  end++;
  snprintf(setting, sizeof(setting), COLLI_LEVELS_FILE "%s",
           fuzz_file("levels", end, bytes - (size_t)(end - data)));
  if (colli_params_load(&params, &error) != COLL_OK ||
      !colli_params_set_text(&params, COLLI_PARAM_LEVELS, setting))
    abort();
  const coll_status status = colli_levels_file_find(&params, host, &error);
  if (status == COLL_OK)
    use(&params);
  else if (status != COLL_ERR_INVALID_USAGE || !*error.message || strchr(error.message, '\n'))
    abort();
  return 0;
}
