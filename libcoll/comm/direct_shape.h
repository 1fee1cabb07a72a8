/* direct_shape.h: in which pieces a collective moves through slots in GPU memory, for the library
 * and for coll_explain. All sizes are bytes. */
#ifndef COLLI_COMM_DIRECT_SHAPE_H
#define COLLI_COMM_DIRECT_SHAPE_H

#include <stddef.h>

#include "libcoll/sched/collective.h"

#define COLLI_DIRECT_ALIGN 64 /* of pieces and segments */
#define COLLI_DIRECT_ONE_SHOT                                                                      \
  ((size_t)2 << 20) /* an all-reduce reads no more of all slots at once */

typedef struct colli_direct_shape {
  colli_coll coll;
  size_t nranks;
  size_t slot_bytes;
  bool tree; /* it combines in the order of one tree, not from left to right; */
  bool wide; /* and in float32 what is shorter */
} colli_direct_shape;

/* How many blocks a rank puts into its slot. */
static inline size_t colli_direct_parts(const colli_direct_shape *s) {
  const bool many =
      s->coll == COLLI_SCATTER || s->coll == COLLI_ALLTOALL || s->coll == COLLI_REDUCE_SCATTER;
  return many ? s->nranks : 1;
}

/* The most of each block that is in a slot at a time; 0: slots are too short. */
static inline size_t colli_direct_piece(const colli_direct_shape *s) {
  size_t room = s->slot_bytes / colli_direct_parts(s);
  /* A tree has nranks - 1 results, for which there is room as long as a slot. */
  if (s->tree && s->coll == COLLI_REDUCE)
    room /= s->nranks;
  const size_t ends = s->nranks * COLLI_DIRECT_ALIGN;
  if (s->tree && s->coll == COLLI_ALLREDUCE)
    room -= room > ends ? ends : room;
  return room / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
}

/* Whether so much of an all-reduce is folded in segments, one a rank; and how long they are. */
static inline bool colli_direct_in_segments(const colli_direct_shape *s, size_t bytes) {
  const size_t piece = colli_direct_piece(s);
  const size_t most = s->tree && piece < COLLI_DIRECT_ONE_SHOT ? piece : COLLI_DIRECT_ONE_SHOT;
  return s->coll == COLLI_ALLREDUCE && s->nranks > 2 && bytes > most / s->nranks;
}

static inline size_t colli_direct_segment(const colli_direct_shape *s, size_t bytes) {
  const size_t each = (bytes + s->nranks - 1) / s->nranks;
  return (each + COLLI_DIRECT_ALIGN - 1) / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
}

#endif
