/* support_file.c: inputs as files. */
#include <dirent.h>
#include <limits.h>
#include <unistd.h>

#include "fuzz.h"

static char folder[PATH_MAX];

/* Removes the folder and its files. */
static void remove_folder(void) {
  DIR *dir = opendir(folder);
  for (struct dirent *entry; dir && (entry = readdir(dir));)
    unlinkat(dirfd(dir), entry->d_name, 0);
  if (dir)
    closedir(dir);
  rmdir(folder);
}

/* Makes the folder: in $FUZZ_FOLDER (tests/fuzz/run), else in memory if there is /dev/shm. */
static void make_folder(void) {
  const char *parent = getenv("FUZZ_FOLDER");
  snprintf(folder, sizeof(folder), "%s/coll-fuzz-XXXXXX", parent ? parent : "/dev/shm");
  if (mkdtemp(folder))
    return;
  strcpy(folder, "/tmp/coll-fuzz-XXXXXX");
  if (!mkdtemp(folder))
    abort();
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t bytes) {
  static char path[PATH_MAX + NAME_MAX];
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
