/* hash.h: FNV-1a with 64 bits, for comparing weights and guarding checkpoints. */
#ifndef TRAINER_HASH_H
#define TRAINER_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_START 0xcbf29ce484222325u

/* Continues a hash over `bytes` bytes; begin with HASH_START. */
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *p = data;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

#endif
