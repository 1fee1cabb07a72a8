/*
 * direct_shape.h: in which pieces a collective moves through slots in GPU memory, which registered
 * buffers ranks read where they are instead (stream/direct_in_place.h says why), and how often they
 * meet; for the library and for coll_explain. All sizes are bytes.
 */
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

/* How often ranks meet in a round on so much of each block; and in a whole call on blocks of which
 * the longest has so much. A captured call also meets before it uses the slot again. */
static inline size_t colli_direct_meets_in_round(const colli_direct_shape *s, size_t bytes,
                                                 bool captured) {
  return 1u + colli_direct_in_segments(s, bytes) + captured;
}

static inline size_t colli_direct_meets(const colli_direct_shape *s, size_t longest,
                                        bool captured) {
  const size_t piece = colli_direct_piece(s), rest = longest % piece;
  size_t meets = longest / piece * colli_direct_meets_in_round(s, piece, captured);
  if (rest > 0 || longest == 0)
    meets += colli_direct_meets_in_round(s, rest, captured);
  return meets;
}

/* Bytes of `count` vectors that are folded at a time if the room for results is used: of a tree,
 * each combination but the last one has its result there. */
static inline size_t colli_direct_fold_piece(const colli_direct_shape *s, size_t count) {
  const size_t most = s->tree && count > 2 ? s->slot_bytes / (count - 1) : s->slot_bytes;
  return most / COLLI_DIRECT_ALIGN * COLLI_DIRECT_ALIGN;
}

/* ---- registered buffers ---------------------------------------------------------------------- */

/* What ranks read of each other: inputs, or results. Of an all-reduce inputs, and then results if
 * they are registered, too. */
typedef struct colli_direct_reads {
  bool from, to;
} colli_direct_reads;

/* What they could read, if inputs and results are registered or not. `varying`: ranks may have
 * blocks at different places; `overlap`: the buffers do. */
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
