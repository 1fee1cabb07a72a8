/* host.c: a number for the host and network namespace that this process runs in. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "libcoll/base/prng.h"
#include "topology/topology.h"

#define BOOT_ID   "/proc/sys/kernel/random/boot_id"
#define FNV_START 0xcbf29ce484222325ull
#define FNV_PRIME 0x100000001b3ull

/* Adds bytes to an FNV-1a hash. */
static uint64_t hash_bytes(uint64_t hash, const void *bytes, size_t count) {
  const unsigned char *byte = bytes;
  for (size_t i = 0; i < count; i++)
    hash = (hash ^ byte[i]) * FNV_PRIME;
  return hash;
}

/* Adds the first line of a file to *hash; false if it cannot be read. */
static bool hash_file(uint64_t *hash, const char *path) {
  char line[128];
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return false;
  bool read = fgets(line, sizeof(line), file) != NULL;
  fclose(file);
  if (read)
    *hash = hash_bytes(*hash, line, strcspn(line, "\n"));
  return read;
}

uint64_t colli_clock_id(void) {
  uint64_t hash = FNV_START;
  struct stat timens;
  if (!hash_file(&hash, BOOT_ID))
    return 0;
  if (stat("/proc/self/ns/time", &timens) == 0) { /* kernels before 5.6 have one clock for all */
    uint64_t inode = timens.st_ino;
    hash = hash_bytes(hash, &inode, sizeof(inode));
  }
  colli_prng prng = {hash};
  return colli_prng_next(&prng);
}

/*
 * The boot id differs between any two running kernels. The machine id and the host name are weaker
 * (images are cloned) and serve only where /proc hides the boot id.
 */
uint64_t colli_host_id(const char *override_text) {
  uint64_t hash = FNV_START;
  if (override_text != NULL && override_text[0] != '\0') {
    hash = hash_bytes(hash, override_text, strlen(override_text));
  } else {
    struct utsname name;
    struct stat netns;
    if (!hash_file(&hash, BOOT_ID) && !hash_file(&hash, "/etc/machine-id") && uname(&name) == 0)
      hash = hash_bytes(hash, name.nodename, strlen(name.nodename));
    if (stat("/proc/self/ns/net", &netns) == 0) {
      uint64_t inode = netns.st_ino;
      hash = hash_bytes(hash, &inode, sizeof(inode));
    }
  }
  colli_prng prng = {hash}; /* FNV leaves the high bits of short texts nearly equal */
  return colli_prng_next(&prng);
}
