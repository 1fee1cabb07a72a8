/* host.c: numbers for the machine, and the host (a network namespace of it), that this process runs
 * in. */
#include <errno.h>
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

/* Whether an errno says that a file is not there for this process; others say that it might be. */
static bool is_absent(int sys_errno) {
  return sys_errno == ENOENT || sys_errno == ENOTDIR || sys_errno == EACCES || sys_errno == EPERM;
}

/* Adds the first line of a file to *hash: 0, or an errno. */
static int hash_file(uint64_t *hash, const char *path) {
  char line[128];
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return errno;
  errno = ENOENT; /* if it is empty */
  const int sys_errno = fgets(line, sizeof(line), file) ? 0 : errno;
  fclose(file);
  if (sys_errno == 0)
    *hash = hash_bytes(*hash, line, strcspn(line, "\n"));
  return sys_errno;
}

uint64_t colli_clock_id(void) {
  uint64_t hash = FNV_START;
  struct stat timens;
  if (hash_file(&hash, BOOT_ID) != 0)
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
 * (images are cloned) and serve only where /proc hides the boot id (*sure: it does not). 0, or an
 * errno.
 */
static int hash_machine(uint64_t *hash, bool *sure) {
  struct utsname name;
  int sys_errno = hash_file(hash, BOOT_ID);
  *sure = sys_errno == 0;
  if (is_absent(sys_errno))
    sys_errno = hash_file(hash, "/etc/machine-id");
  if (is_absent(sys_errno)) {
    sys_errno = uname(&name) == 0 ? 0 : errno;
    *hash = sys_errno ? *hash : hash_bytes(*hash, name.nodename, strlen(name.nodename));
  }
  return sys_errno;
}

/* Adds the network namespace. 0, or an errno. */
static int hash_namespace(uint64_t *hash) {
  struct stat netns;
  if (stat("/proc/self/ns/net", &netns) != 0)
    return is_absent(errno) ? 0 : errno;
  const uint64_t inode = netns.st_ino;
  *hash = hash_bytes(*hash, &inode, sizeof(inode));
  return 0;
}

uint64_t colli_host_id(const char *override_text, uint64_t *machine) {
  uint64_t hash = FNV_START;
  const bool given = override_text != NULL && override_text[0] != '\0';
  if (given)
    hash = hash_bytes(hash, override_text, strlen(override_text));
  bool sure = false;
  int sys_errno = given ? 0 : hash_machine(&hash, &sure);
  const uint64_t kernel = hash;
  if (!given && sys_errno == 0)
    sys_errno = hash_namespace(&hash);
  *machine = sure ? kernel : hash;
  errno = sys_errno;
  if (sys_errno != 0)
    return 0;               /* half of it would be another host's */
  colli_prng prng = {hash}; /* FNV leaves the high bits of short texts nearly equal */
  return colli_prng_next(&prng);
}
