/* cache.h: how large the last-level cache is, and how much of it is a rank's. */
#ifndef COLLI_TUNING_CACHE_H
#define COLLI_TUNING_CACHE_H

#include <stdbool.h>
#include <stdint.h>

/* A last-level cache. */
typedef struct colli_cache {
  uint64_t bytes;
  int cpus; /* processing units that share it */
} colli_cache;

/*
 * Reads the last-level cache of a processing unit from the folder in which the kernel describes its
 * caches (/sys/devices/system/cpu/cpu0/cache). False: nothing there.
 */
bool colli_cache_read(const char *folder, colli_cache *out);

/* How many bytes of the last-level cache there are for each of the ranks on this host, of which
 * there are `ranks`; 0: not known. */
uint64_t colli_cache_share(int ranks);

#endif
