/* direct_places.h: which registered buffers ranks read where they are, and how often they meet
 * then; for the library (stream/direct_in_place.h says why) and for coll_explain. */
#ifndef COLLI_COMM_DIRECT_PLACES_H
#define COLLI_COMM_DIRECT_PLACES_H

#include "libcoll/comm/direct_shape.h"

/* What ranks read of each other: inputs, or results. Of an all-reduce inputs, and then results if
 * they are registered, too. */
typedef struct colli_direct_reads {
  bool from, to;
} colli_direct_reads;

/* What they could read, if inputs and results are registered or not. `varying`: blocks have
 * different lengths; `overlap`: the buffers do. */
static inline colli_direct_reads colli_direct_choose_reads(colli_coll coll, bool varying,
                                                           bool overlap, bool input, bool result) {
  switch (coll) {
  case COLLI_ALLREDUCE:
    return (colli_direct_reads){input, input && result};
  case COLLI_REDUCE:
  case COLLI_REDUCE_SCATTER:
    return (colli_direct_reads){.from = input};
  case COLLI_BROADCAST:
    return (colli_direct_reads){.to = result};
  case COLLI_ALLGATHER:
    return (colli_direct_reads){!varying && !result && !overlap && input, !varying && result};
  case COLLI_ALLTOALL:
    return (colli_direct_reads){.from = !overlap && input};
  default:
    return (colli_direct_reads){.from = false};
  }
}

/* Whether an all-reduce folds segments into slots. Two ranks read as much if each folds all. */
static inline bool colli_direct_ends_in_slots(const colli_direct_shape *s,
                                              colli_direct_reads reads) {
  return s->coll == COLLI_ALLREDUCE && !reads.to && s->nranks > 2;
}

/* Bytes of a segment that are in a slot at a time then; and the rounds. */
static inline size_t colli_direct_slot_piece(const colli_direct_shape *s) {
  return s->slot_bytes / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
}

static inline size_t colli_direct_slot_rounds(const colli_direct_shape *s, size_t bytes) {
  const size_t piece = colli_direct_slot_piece(s);
  return (colli_direct_segment(s, bytes) + piece - 1) / piece;
}

/* How often ranks meet if they read buffers where they are; `bytes`: of an all-reduce. */
static inline size_t colli_direct_meets_in_place(const colli_direct_shape *s,
                                                 colli_direct_reads reads, size_t bytes,
                                                 bool captured) {
  if (!colli_direct_ends_in_slots(s, reads))
    return s->coll == COLLI_ALLREDUCE && reads.to ? 3 : 2;
  const size_t rounds = colli_direct_slot_rounds(s, bytes);
  return 1 + rounds + (captured ? rounds - 1 : 0);
}

#endif
