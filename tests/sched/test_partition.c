/* test_partition.c: what every partition must satisfy, over many sizes and limits. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "libcoll/base/prng.h"
#include "libcoll/sched/partition.h"

static size_t at_most(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Walks all chunks and passes: each element must be met exactly once, in the place it belongs to.
 */
static void check_cover(const colli_partition *p, const char *what) {
  size_t next = 0;
  for (int chunk = 0; chunk < p->nchunks; chunk++) {
    for (int pass = 0; pass < p->passes; pass++) {
      colli_range range = colli_partition_range(p, COLLI_OUTPUT, chunk, pass);
      cr_assert_leq(range.count, p->piece, "%s: chunk %d pass %d is too long", what, chunk, pass);
      if (range.count == 0)
        continue;
      cr_assert_eq(range.first, next, "%s: chunk %d pass %d begins at %zu instead of %zu", what,
                   chunk, pass, range.first, next);
      next += range.count;
    }
  }
  cr_assert_eq(next, p->count, "%s: %zu of %zu elements covered", what, next, p->count);
}

/* Makes and checks one partition. */
static void check_partition(size_t count, size_t elem_bytes, int nchunks, bool exact,
                            const colli_limits *limits) {
  char what[160];
  snprintf(what, sizeof(what), "%zu x %zu B in %d chunks%s, %zu B x %u slots, chunks of %zu B",
           count, elem_bytes, nchunks, exact ? " (exact)" : "", limits->slot_bytes,
           limits->slot_count, limits->chunk_bytes);
  colli_partition p;
  colli_partition_make(&p, count, elem_bytes, nchunks, exact, limits);
  cr_assert_eq(p.count, count, "%s", what);
  cr_assert_eq(p.nchunks, nchunks, "%s", what);
  cr_assert(p.passes >= 1, "%s: %d passes", what, p.passes);
  check_cover(&p, what);
  if (count == 0)
    return;
  size_t half = limits->slot_count > 1 ? limits->slot_count / 2 : 1;
  cr_assert(p.slice > 0 && p.piece > 0, "%s", what);
  cr_assert_leq(p.slice * elem_bytes, limits->slot_bytes, "%s: slice of %zu", what, p.slice);
  cr_assert_leq((p.piece + p.slice - 1) / p.slice, half, "%s: piece %zu, slice %zu", what, p.piece,
                p.slice);
  if (limits->chunk_bytes)
    cr_assert_leq(p.piece * elem_bytes, limits->chunk_bytes, "%s: piece %zu", what, p.piece);
  if (p.piece > p.slice) {
    size_t shortest = limits->slice_bytes ? limits->slice_bytes : 4096;
    cr_assert_geq(p.slice * elem_bytes, at_most(shortest, limits->slot_bytes), "%s: slice of %zu",
                  what, p.slice);
    cr_assert_eq(p.slice * elem_bytes % 64, 0, "%s: slice of %zu", what, p.slice);
  }
  if (p.passes > 1)
    cr_assert_eq(p.piece * elem_bytes % 64, 0, "%s: piece of %zu", what, p.piece);
  if (exact)
    cr_assert_eq(p.region * (size_t)nchunks, count, "%s: region of %zu", what, p.region);
  else if (p.region * elem_bytes >= 576)
    cr_assert_eq(p.region * elem_bytes % 64, 0, "%s: region of %zu", what, p.region);
  size_t fair = (count + (size_t)nchunks - 1) / (size_t)nchunks;
  cr_assert_leq(p.region * elem_bytes, fair * elem_bytes + fair * elem_bytes / 8 + 8,
                "%s: region of %zu is unfair", what, p.region);
}

static const colli_limits some_limits[] = {
    {32768, 16, 262144, 0},    {32768, 16, 4096, 0},   {8192, 4, 16384, 0},
    {4096, 2, 4096, 0},        {65536, 8, 131072, 0},  {64, 2, 64, 0},
    {1024, 32, 8192, 0},       {32768, 3, 32768, 0},   {131072, 8, 0, 32768},
    {131072, 8, 65536, 32768}, {4096, 4, 8192, 65536},
};
#define NLIMITS (sizeof(some_limits) / sizeof(some_limits[0]))

Test(partition, small_sizes) {
  for (size_t l = 0; l < NLIMITS; l++)
    for (size_t elem_bytes = 1; elem_bytes <= 8; elem_bytes *= 2)
      for (int nchunks = 1; nchunks <= 9; nchunks++)
        for (size_t count = 0; count <= 300; count++) {
          check_partition(count, elem_bytes, nchunks, false, &some_limits[l]);
          check_partition(count * (size_t)nchunks, elem_bytes, nchunks, true, &some_limits[l]);
        }
}

/* Sizes round every multiple at which something changes, and random ones. */
Test(partition, large_sizes) {
  colli_prng prng = {20240607};
  for (size_t l = 0; l < NLIMITS; l++) {
    const colli_limits *limits = &some_limits[l];
    for (int round = 0; round < 3000; round++) {
      size_t elem_bytes = (size_t)1 << colli_prng_below(&prng, 4);
      int nchunks = 1 + (int)colli_prng_below(&prng, 65);
      size_t unit = limits->chunk_bytes / elem_bytes;
      size_t count = unit * colli_prng_below(&prng, 4) * (size_t)nchunks;
      count += colli_prng_below(&prng, 5) + (round % 2 ? colli_prng_below(&prng, unit + 1) : 0);
      count -= at_most(count, 2);
      check_partition(count, elem_bytes, nchunks, false, limits);
      check_partition(count / (size_t)nchunks * (size_t)nchunks, elem_bytes, nchunks, true, limits);
    }
  }
}

/* Element sizes that do not divide a cache line: no lines, but all else holds. */
Test(partition, odd_elements) {
  colli_limits limits = {32760, 16, 100000, 0};
  for (size_t count = 0; count < 40000; count += 379) {
    colli_partition p;
    colli_partition_make(&p, count, 12, 7, 0, &limits);
    check_cover(&p, "12-byte elements");
    cr_assert_leq(p.slice * 12, limits.slot_bytes);
    cr_assert_leq(p.piece, 8 * p.slice);
  }
}

/* An element that is longer than a slot is a chunk by itself; one that just fits is not. */
Test(partition, long_elements) {
  colli_limits limits = {4096, 8, 16384, 0};
  for (size_t elem_bytes = 4096; elem_bytes <= 4097; elem_bytes++)
    for (size_t count = 0; count < 40; count++) {
      const size_t in[] = {count, 0, 1}, first[] = {0, count, count};
      const colli_blocks blocks = {in, first, in, first};
      const size_t most = elem_bytes == 4096 ? 4 : 1;
      colli_partition p;
      colli_partition_make(&p, count, elem_bytes, 3, 0, &limits);
      check_cover(&p, "long elements");
      cr_assert(p.slice == 1 && p.piece <= most, "%zu elements: pieces of %zu", count, p.piece);
      colli_partition_make_varying(&p, &blocks, 3, elem_bytes, &limits);
      cr_assert(p.slice == 1 && p.piece == most);
      cr_assert_eq((size_t)p.passes, count ? (count + most - 1) / most : 1);
    }
}

/* A long chunk is cut into several slices, a short one is one message. */
Test(partition, pipelines_long_chunks_only) {
  colli_limits limits = {32768, 16, 262144, 0};
  colli_partition p;
  colli_partition_make(&p, 65536, 4, 2, 0, &limits);
  cr_assert_eq(p.passes, 1);
  cr_assert_eq((p.piece + p.slice - 1) / p.slice, 8);
  colli_partition_make(&p, 2048, 4, 2, 0, &limits);
  cr_assert_eq((p.piece + p.slice - 1) / p.slice, 1);
}
