/* support_file.c: inputs as files. */
#include <dirent.h>
#include <unistd.h>

#include "fuzz.h"

static char folder[64];

/* Removes the folder and its files. */
static void remove_folder(void) {
  DIR *dir = opendir(folder);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    unlinkat(dirfd(dir), entry->d_name, 0);
  if (dir)
    closedir(dir);
  rmdir(folder);
}

/* Makes the folder, in memory if there is /dev/shm. */
static void make_folder(void) {
  strcpy(folder, "/dev/shm/coll-fuzz-XXXXXX");
  if (mkdtemp(folder))
    return;
  strcpy(folder, "/tmp/coll-fuzz-XXXXXX");
  if (!mkdtemp(folder))
    abort();
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t bytes) {
  static char path[128];
  if (!*folder) {
    make_folder();
    atexit(remove_folder);
  }
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file || (bytes && fwrite(data, bytes, 1, file) != 1) || fclose(file) != 0)
    abort();
  return path;
}
