/* cache.c: finds the size of the last-level cache, and a rank's share of it. */
#include "libcoll/tuning/cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_CACHES 16 /* of one processor that are looked at */

/* Reads the first line of a file in a cache's folder: false if there is none. */
static bool read_line(const char *folder, int index, const char *file, char *line, int line_bytes) {
  char path[512];
  snprintf(path, sizeof(path), "%s/index%d/%s", folder, index, file);
  FILE *from = fopen(path, "re");
  if (from == NULL)
    return false;
  bool read = fgets(line, line_bytes, from) != NULL;
  fclose(from);
  if (read)
    line[strcspn(line, "\n")] = '\0';
  return read;
}

/* Bytes of the kernel's text for a size, such as 32768K. */
static uint64_t parse_size(const char *text) {
  char *unit;
  uint64_t number = strtoull(text, &unit, 10);
  return *unit == 'K' ? number << 10 : *unit == 'M' ? number << 20 : number;
}

/* The number of processors in a list such as 0-3,8-11. */
static int count_list(const char *list) {
  int count = 0;
  while (*list) {
    char *end;
    long first = strtol(list, &end, 10), last = first;
    if (end == list)
      break;
    if (*end == '-')
      last = strtol(end + 1, &end, 10);
    count += last >= first ? (int)(last - first + 1) : 0;
    list = *end == ',' ? end + 1 : end;
  }
  return count;
}

/* Reads the last-level cache from the kernel's folder that describes the caches. */
bool colli_cache_read(const char *folder, colli_cache *out) {
  int found = 0;
  for (int index = 0; index < MOST_CACHES; index++) {
    char level[16], type[32], size[32], list[1024];
    if (!read_line(folder, index, "level", level, sizeof(level)))
      break;
    if (atoi(level) <= found || !read_line(folder, index, "type", type, sizeof(type)) ||
        strcmp(type, "Instruction") == 0 || !read_line(folder, index, "size", size, sizeof(size)) ||
        !read_line(folder, index, "shared_cpu_list", list, sizeof(list)))
      continue;
    colli_cache cache = {parse_size(size), count_list(list)};
    if (cache.bytes > 0 && cache.cpus > 0) {
      *out = cache;
      found = atoi(level);
    }
  }
  return found > 0;
}

/*
 * The share of each of `ranks` ranks on this machine in the last-level cache. sysconf() is only the
 * fallback: it reports what the processor says, and in a virtual machine that may be all caches of
 * the host's package together.
 */
uint64_t colli_cache_share(int ranks) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  int cpus = online > 0 ? (int)online : 1;
  colli_cache cache;
  if (!colli_cache_read("/sys/devices/system/cpu/cpu0/cache", &cache)) {
    long bytes = 0;
#ifdef _SC_LEVEL3_CACHE_SIZE /* not in every C library */
    bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    if (bytes <= 0)
      bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
    cache = (colli_cache){bytes > 0 ? (uint64_t)bytes : 0, cpus};
  }
  uint64_t caches = cache.cpus < cpus ? (uint64_t)(cpus / cache.cpus) : 1;
  uint64_t share = cache.bytes * caches / (uint64_t)(ranks > 0 ? ranks : 1);
  return share < cache.bytes ? share : cache.bytes;
}
