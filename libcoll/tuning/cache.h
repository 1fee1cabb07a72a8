/* cache.h: finds the size of the last-level cache, and a rank's share of it. */
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
 * caches (/sys/devices/system/cpu/cpu0/cache). False if there are none.
 */
bool colli_cache_read(const char *folder, colli_cache *out);

/* Bytes of the last-level cache for each of the `ranks` ranks on this machine; 0 if not known. */
uint64_t colli_cache_share(int ranks);

#endif
