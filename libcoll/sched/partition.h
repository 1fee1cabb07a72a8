/*
 * partition.h: which elements chunk c of pass p covers. All ranks compute the same partition from
 * the same numbers. Chunk c is a contiguous *region* of the vector; pass p takes the p-th piece of
 * it. A message carries a *slice* of a chunk; both ends cut slices the same way. Only an element
 * that is longer than a slot, which is a chunk by itself, takes several messages (exec/rooms.h).
 */
#ifndef COLLI_SCHED_PARTITION_H
#define COLLI_SCHED_PARTITION_H

#include <stddef.h>

#include "libcoll/sched/sched.h"

/* Blocks of differing lengths, in elements: nranks numbers each. SCRATCH is cut as INPUT is. */
typedef struct colli_blocks {
  const size_t *in_count, *in_first;
  const size_t *out_count, *out_first;
} colli_blocks;

typedef struct colli_partition {
  size_t count;  /* elements of the whole vector */
  size_t region; /* elements of a region; the last ones may be shorter or empty */
  size_t piece;  /* elements of a region in one pass */
  size_t slice;  /* elements of a message; 0 < slice unless count is 0 */
  int nchunks;
  int passes;          /* at least 1, even for count 0 */
  colli_blocks blocks; /* in_count NULL: all regions are equally long */
} colli_partition;

typedef struct colli_range {
  size_t first;
  size_t count;
} colli_range;

/* What limits a partition. */
typedef struct colli_limits {
  size_t slot_bytes;   /* a slice fits in it, unless it is one element */
  unsigned slot_count; /* a chunk takes at most half of them */
  size_t chunk_bytes;  /* wanted size of a chunk; rounded, and limited by the slots */
  size_t slice_bytes;  /* shortest slice, if the chunk is that long; 0: 4 KiB */
} colli_limits;

/*
 * Cuts `count` elements of elem_bytes bytes into nchunks regions and as many passes as needed.
 * exact: each region has count / nchunks elements (all-gather blocks; nchunks divides count).
 * Otherwise regions are balanced, and their borders are multiples of 64 bytes if the vector is long
 * enough.
 */
void colli_partition_make(colli_partition *partition, size_t count, size_t elem_bytes, int nchunks,
                          int exact, const colli_limits *limits);

/*
 * Cuts blocks of differing lengths. Pieces and slices depend only on the limits, so that both ranks
 * of a transfer cut the block the same way. The number of passes may differ between ranks.
 */
void colli_partition_make_varying(colli_partition *partition, const colli_blocks *blocks,
                                  int nblocks, size_t elem_bytes, const colli_limits *limits);

/* The part of elements [begin, end) that pass `pass` covers. */
static inline colli_range colli_partition_piece(const colli_partition *partition, size_t begin,
                                                size_t end, int pass) {
  size_t first = begin + partition->piece * (size_t)pass;
  size_t last = first + partition->piece;
  if (first > end)
    first = end;
  if (last > end)
    last = end;
  return (colli_range){first, last - first};
}

/*
 * Elements of chunk `chunk` of a buffer in pass `pass`; may be empty. Of SCRATCH only the count
 * means anything.
 */
static inline colli_range colli_partition_range(const colli_partition *partition, colli_buf buf,
                                                int chunk, int pass) {
  if (__builtin_expect(buf == COLLI_SCRATCH, 0))
    chunk %= partition->nchunks;
  if (__builtin_expect(partition->blocks.in_count != NULL, 0)) {
    const colli_blocks *b = &partition->blocks;
    size_t begin = buf == COLLI_OUTPUT ? b->out_first[chunk] : b->in_first[chunk];
    size_t count = buf == COLLI_OUTPUT ? b->out_count[chunk] : b->in_count[chunk];
    return colli_partition_piece(partition, begin, begin + count, pass);
  }
  size_t begin = partition->region * (size_t)chunk;
  size_t end = begin + partition->region;
  if (begin > partition->count)
    begin = partition->count;
  if (end > partition->count)
    end = partition->count;
  return colli_partition_piece(partition, begin, end, pass);
}

/* Adds to elements[peer] what the rank of a schedule sends to each peer. */
void colli_partition_sent(const colli_partition *partition, const colli_sched *sched,
                          double *elements);

#endif
