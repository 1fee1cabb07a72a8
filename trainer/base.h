/* base.h: basics of the trainer: failures, files in memory, time, hashes, random numbers. */
#ifndef TRAINER_BASE_H
#define TRAINER_BASE_H

#include <coll/coll.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* ---- failures ------------------------------------------------------------------------------ */

/* Functions that can fail return false and fill in one of these. The text has no line break. */
typedef struct fail {
  char text[800];
  bool everywhere; /* all ranks have the same text: only rank 0 prints it */
  bool lost;       /* a rank is lost: the others can continue without it (coll_comm_shrink) */
} fail;

/* Writes the text; always returns false, so that a caller can `return fail_set(...)`. */
bool fail_set(fail *why, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Out of memory for `what`. */
bool fail_memory(fail *why, const char *what);

/* Whether a libcoll call succeeded; if not, takes the communicator's error message. */
bool succeeded(fail *why, const coll_comm *comm, coll_status status, const char *doing);

/* ---- whole files in memory ----------------------------------------------------------------- */

/* Bytes of a file, mapped or copied. */
typedef struct file_bytes {
  uint8_t *data;
  size_t bytes;
  bool mapped;
} file_bytes;

/* The path of a file of a folder. */
bool file_path(char path[PATH_MAX], const char *folder, const char *name, fail *why);

/* Maps a regular, non-empty file for reading; on failure nothing is left open. */
bool file_map(file_bytes *file, const char *path, fail *why);

/* Unmaps or frees the bytes; does nothing if *file is all zero. */
void file_free(file_bytes *file);

/* ---- time, hashes, random numbers ---------------------------------------------------------- */

/* Seconds of a monotonic clock. */
static inline double clock_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* FNV-1a with 64 bits: continues a hash over `bytes` bytes; begin with HASH_START. */
#define HASH_START 0xcbf29ce484222325u
static inline uint64_t hash_bytes(uint64_t hash, const void *data, size_t bytes) {
  const unsigned char *p = data;
  for (size_t i = 0; i < bytes; i++)
    hash = (hash ^ p[i]) * 0x100000001b3u;
  return hash;
}

/* The seeded generator (splitmix64) of initial weights and sample orders. */
typedef struct rng {
  uint64_t state;
} rng;

/* The next 64 bits. */
static inline uint64_t rng_next(rng *g) {
  g->state += 0x9e3779b97f4a7c15u;
  uint64_t x = g->state;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

/* A number in 0 .. bound-1, by multiplication; bound > 0. */
static inline uint64_t rng_below(rng *g, uint64_t bound) {
  return (uint64_t)(((unsigned __int128)rng_next(g) * bound) >> 64);
}

/* A number above 0 and at most 1. */
static inline double rng_unit(rng *g) {
  return (double)((rng_next(g) >> 11) + 1) * 0x1p-53;
}

/* Independent streams of one seed. */
enum rng_stream { RNG_WEIGHTS = 1, RNG_ORDER = 2, RNG_PARTNERS = 3 };
static inline rng rng_make(uint64_t seed, enum rng_stream stream, uint64_t index) {
  rng g = {.state = seed};
  g.state = rng_next(&g) ^ (uint64_t)stream;
  g.state = rng_next(&g) ^ index;
  rng_next(&g);
  return g;
}

#endif
