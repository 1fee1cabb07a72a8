/*
 * partition.h: which elements chunk c of pass p covers. All ranks compute the same partition from
 * the same numbers. Chunk c is a contiguous *region* of the vector; pass p takes the p-th piece of
 * it. A message carries a *slice* of a chunk: both ends cut the same way.
 */
#ifndef COLLI_SCHED_PARTITION_H
#define COLLI_SCHED_PARTITION_H

#include <stddef.h>

typedef struct colli_partition {
  size_t count;  /* elements of the whole vector */
  size_t region; /* elements of a region; the last ones may be shorter or empty */
  size_t piece;  /* elements of a region in one pass */
  size_t slice;  /* elements of a message; 0 < slice unless count is 0 */
  int nchunks;
  int passes; /* at least 1, even for count 0 */
} colli_partition;

typedef struct colli_range {
  size_t first;
  size_t count;
} colli_range;

/* What limits a partition. */
typedef struct colli_limits {
  size_t slot_bytes;   /* a slice fits in it */
  unsigned slot_count; /* a chunk takes at most half of them */
  size_t chunk_bytes;  /* wanted size of a chunk; rounded and cut to what the slots allow */
  size_t slice_bytes;  /* no shorter slice if the chunk allows; 0: 4 KiB */
} colli_limits;

/*
 * Cuts `count` elements of elem_bytes bytes into nchunks regions and enough passes. exact: the
 * regions must be count / nchunks elements each (all-gather blocks; nchunks divides count); else
 * they are balanced and their borders fall on 64-byte multiples where the vector is long enough for
 * that.
 */
void colli_partition_make(colli_partition *partition, size_t count, size_t elem_bytes, int nchunks,
                          int exact, const colli_limits *limits);

/* Elements of chunk `chunk` in pass `pass`; may be empty. */
static inline colli_range colli_partition_range(const colli_partition *partition, int chunk,
                                                int pass) {
  size_t begin = partition->region * (size_t)chunk;
  size_t end = begin + partition->region;
  if (begin > partition->count)
    begin = partition->count;
  if (end > partition->count)
    end = partition->count;
  size_t first = begin + partition->piece * (size_t)pass;
  size_t last = first + partition->piece;
  if (first > end)
    first = end;
  if (last > end)
    last = end;
  return (colli_range){first, last - first};
}

#endif
