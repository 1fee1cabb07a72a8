/* quota.c: limits of processor time, from the cgroup file systems. */
#include "libcoll/tuning/quota.h"

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "libcoll/base/file.h"

#define MOST_BYTES (1 << 20) /* of a file; the kernel's say that they have 4096 or none */
#define MOST_CORES 65536

/* Reads a file's first line. */
static bool read_line(const char *folder, const char *name, char *line, int bytes) {
  char path[PATH_MAX], why[80];
  if (snprintf(path, sizeof(path), "%s/%s", folder, name) >= (int)sizeof(path))
    return false;
  FILE *file = colli_file_stream(path, MOST_BYTES, why, sizeof(why));
  if (!file)
    return false;
  bool got = fgets(line, bytes, file) != NULL;
  fclose(file);
  return got;
}

/* Notes the limit of one group, if it is tighter. */
static void take_group(const char *folder, bool v2, colli_quota *quota) {
  char line[64];
  long long runtime_us = -1, period_us = -1;
  struct stat info;
  if (v2) {
    if (!read_line(folder, "cpu.max", line, sizeof(line)) ||
        sscanf(line, "%lld %lld", &runtime_us, &period_us) != 2) /* "max 100000": none */
      return;
  } else if (!read_line(folder, "cpu.cfs_quota_us", line, sizeof(line)) ||
             sscanf(line, "%lld", &runtime_us) != 1 ||
             !read_line(folder, "cpu.cfs_period_us", line, sizeof(line)) ||
             sscanf(line, "%lld", &period_us) != 1)
    return;
  if (runtime_us <= 0 || period_us <= 0 || runtime_us / period_us >= MOST_CORES ||
      runtime_us > LLONG_MAX / 1000 || stat(folder, &info) != 0)
    return;
  uint64_t millicores = (uint64_t)(runtime_us * 1000 / period_us);
  millicores = millicores > 0 ? millicores : 1;
  if (quota->group && quota->millicores <= millicores)
    return;
  quota->millicores = millicores;
  quota->group = (uint64_t)info.st_dev << 40 ^ (uint64_t)info.st_ino;
  quota->group += quota->group == 0;
}

/* Goes from a group up to the root of its file system. */
static void climb(const char *mount, const char *group, bool v2, colli_quota *quota) {
  char folder[PATH_MAX];
  size_t length = strlen(mount);
  if (snprintf(folder, sizeof(folder), "%s%s", mount, group) >= (int)sizeof(folder))
    return;
  for (;;) {
    take_group(folder, v2, quota);
    char *slash = strrchr(folder, '/');
    if (!slash || (size_t)(slash - folder) < length)
      return;
    *slash = '\0';
  }
}

/* Whether a list such as "cpu,cpuacct" has the word "cpu". */
static bool limits_cpu(const char *list) {
  for (const char *at = list; *at; at += strcspn(at, ","), at += *at == ',')
    if (strcspn(at, ",") == 3 && strncmp(at, "cpu", 3) == 0)
      return true;
  return false;
}

/* One line of the membership: "0::/group" or "4:cpu,cpuacct:/group". */
static void take_line(char *line, const char *root, colli_quota *quota) {
  char mount[PATH_MAX];
  char *list = strchr(line, ':'), *group = list ? strchr(list + 1, ':') : NULL;
  line[strcspn(line, "\n")] = '\0';
  if (!group)
    return;
  *group++ = '\0';
  list++;
  if (*list == '\0') {
    climb(root, group, true, quota);
  } else if (limits_cpu(list) &&
             snprintf(mount, sizeof(mount), "%s/%s", root, list) < (int)sizeof(mount))
    climb(mount, group, false, quota);
}

colli_quota colli_quota_read(const char *membership, const char *root) {
  colli_quota quota = {0, 0};
  char line[PATH_MAX], why[80];
  FILE *file = colli_file_stream(membership, MOST_BYTES, why, sizeof(why));
  if (!file)
    return quota;
  while (fgets(line, sizeof(line), file))
    take_line(line, root, &quota);
  fclose(file);
  return quota;
}
