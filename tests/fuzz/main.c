/*
 * main.c: replays inputs, where there is no libFuzzer: each file of the given folders, and cuts and
 * changes of it.
 */
#include <dirent.h>

#include "fuzz.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/prng.h"

#define MOST_BYTES (1 << 20)
#define CHANGES_NS (500 * COLLI_NS_PER_MS) /* for the changes of one file */

/* Runs one file, its beginnings, and some copies with changed bytes: fewer of slow targets. */
static void replay(const char *path) {
  uint8_t *data = malloc(MOST_BYTES);
  FILE *file = fopen(path, "rb");
  if (!data || !file)
    abort();
  size_t bytes = fread(data, 1, MOST_BYTES, file);
  fclose(file);
  LLVMFuzzerTestOneInput(data, bytes);
  colli_prng prng = {bytes};
  const uint64_t until_ns = colli_now_ns() + CHANGES_NS;
  for (int i = 0; i < 100 && bytes > 0 && colli_now_ns() < until_ns; i++) {
    size_t at = (size_t)colli_prng_below(&prng, bytes);
    uint8_t old = data[at];
    data[at] = (uint8_t)colli_prng_below(&prng, 256);
    LLVMFuzzerTestOneInput(data, i % 2 ? bytes : at);
    data[at] = old;
  }
  free(data);
}

int main(int argc, char **argv) {
  int files = 0;
  for (int i = 1; i < argc; i++) {
    DIR *folder = opendir(argv[i]);
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
      char path[4096];
      snprintf(path, sizeof(path), "%s/%s", argv[i], entry->d_name);
      if (entry->d_name[0] != '.') {
        replay(path);
        files++;
      }
    }
    if (folder)
      closedir(folder);
  }
  LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
  printf("%d inputs\n", files);
  return files > 0 ? 0 : 1;
}
