/* partition.c: cuts a vector into regions, passes and slices. */
#include "libcoll/sched/partition.h"

#include "libcoll/base/assert.h"
#include "libcoll/sched/check.h"

#define LINE_BYTES       64
#define SLICE_BYTES_MIN  4096 /* below this, the cost of messages outweighs the overlap */
#define REGION_BYTES_MIN 512  /* from here on, rounding to lines costs at most an eighth */

static size_t divide_up(size_t a, size_t b) {
  return a / b + (a % b != 0);
}

/* The smaller of two sizes. */
static size_t smaller(size_t a, size_t b) {
  return a < b ? a : b;
}

/* Rounds a number of elements up to whole lines of `line` elements. */
static size_t line_up(size_t count, size_t line) {
  return divide_up(count, line) * line;
}

/* The most elements that fit in `bytes`: whole cache lines if it holds at least one, and at least 1
 * element. */
static size_t fit(size_t bytes, size_t elem_bytes, size_t line) {
  size_t count = bytes / elem_bytes;
  if (count >= line)
    return count - count % line;
  return count ? count : 1;
}

/* The most messages of a chunk: half of the slots. An element that is longer than a slot is a chunk
 * by itself, because receivers have room for one. */
static size_t most_slices(size_t elem_bytes, const colli_limits *limits) {
  return limits->slot_count > 1 && elem_bytes <= limits->slot_bytes ? limits->slot_count / 2 : 1;
}

/* Cuts `count` elements into nchunks regions, passes and slices. */
void colli_partition_make(colli_partition *partition, size_t count, size_t elem_bytes, int nchunks,
                          int exact, const colli_limits *limits) {
  size_t line = LINE_BYTES % elem_bytes == 0 ? LINE_BYTES / elem_bytes : 1;
  size_t region = divide_up(count, (size_t)nchunks);
  if (!exact && region * elem_bytes >= REGION_BYTES_MIN)
    region = line_up(region, line);

  size_t slot = fit(limits->slot_bytes, elem_bytes, line);
  size_t slices = most_slices(elem_bytes, limits);
  size_t piece_max = slot * slices;
  if (limits->chunk_bytes)
    piece_max = smaller(piece_max, fit(limits->chunk_bytes, elem_bytes, line));
  size_t passes = region ? divide_up(region, piece_max) : 1;
  size_t piece = passes == 1 ? region : line_up(divide_up(region, passes), line);
  piece = passes == 1 ? piece : smaller(piece, piece_max);

  size_t slice = line_up(divide_up(piece, slices), line);
  size_t shortest = limits->slice_bytes ? limits->slice_bytes : SLICE_BYTES_MIN;
  size_t slice_min = fit(shortest, elem_bytes, line);
  if (slice < slice_min)
    slice = slice_min;
  COLLI_ASSERT(slot > 0 && (piece > 0 || region == 0) && piece <= region);
  *partition = (colli_partition){
      .count = count,
      .region = region,
      .piece = piece,
      .slice = smaller(slice, slot),
      .nchunks = nchunks,
      .passes = piece ? (int)divide_up(region, piece) : 1,
  };
}

/* Cuts blocks of differing lengths. */
void colli_partition_make_varying(colli_partition *partition, const colli_blocks *blocks,
                                  int nblocks, size_t elem_bytes, const colli_limits *limits) {
  size_t line = LINE_BYTES % elem_bytes == 0 ? LINE_BYTES / elem_bytes : 1;
  size_t slices = most_slices(elem_bytes, limits);
  size_t slot = fit(limits->slot_bytes, elem_bytes, line);
  *partition = (colli_partition){
      .slice = slot, .piece = slot * slices, .nchunks = nblocks, .passes = 1, .blocks = *blocks};
  for (int block = 0; block < nblocks; block++) {
    size_t in = blocks->in_count[block], out = blocks->out_count[block];
    size_t most = in > out ? in : out, passes = divide_up(most, partition->piece);
    partition->count += out;
    if (most > partition->region)
      partition->region = most;
    if ((int)passes > partition->passes)
      partition->passes = (int)passes;
  }
}

void colli_partition_sent(const colli_partition *partition, const colli_sched *sched,
                          double *elements) {
  for (int i = 0; i < sched->nsteps; i++) {
    const colli_step *step = &sched->steps[i];
    for (int pass = 0; pass < partition->passes && step->bits & COLLI_SEND; pass++)
      elements[step->peer_send] += (double)colli_partition_range(partition, colli_step_buf(step),
                                                                 colli_step_chunk(step), pass)
                                       .count;
  }
}
