/*
 * hier_part.c: translates the schedule of a part to steps of the whole.
 *
 * A part works like a communicator of its own: some of the ranks, on some chunks of the vector. (It
 * runs on pieces of its chunks instead of splitting single steps, because that could deadlock: two
 * ranks that send several messages before they receive would need more than one chunk of credit.)
 * A rank that has done its steps goes on to the next part, whose inputs are there, as all are in
 * one lane.
 */
#include "libcoll/algo/hier_part.h"

int colli_part_own(const colli_algo *algo, const colli_shape *among) {
  colli_shape shape = *among;
  shape.coll = algo->coll;
  return algo->nchunks(&shape);
}

/* Translates a buffer and chunk of a part's schedule to those of the whole; false: there is no such
 * chunk. */
static bool translate_place(const colli_whole *whole, const colli_part *p, int own, int piece,
                            uint8_t *buf, int32_t *chunk) {
  int width = p->chunks / own, row = *chunk / own;
  int at = *chunk % own * width + piece;
  at = p->place ? p->place[at] : p->first + at;
  if (*buf != COLLI_SCRATCH) {
    *buf = (uint8_t)(*buf == COLLI_INPUT ? p->in : p->out);
    row = COLLI_ROW_RESULT;
  }
  *chunk = *buf == COLLI_SCRATCH ? row * whole->nchunks + at : at;
  return at >= 0;
}

/* Adds one step of a part. */
static void add_step(colli_whole *whole, const colli_part *p, colli_step step, int own, int piece) {
  if (!translate_place(whole, p, own, piece, &step.src_buf, &step.chunk_in) ||
      !translate_place(whole, p, own, piece, &step.dst_buf, &step.chunk_out))
    return;
  step.lane = (uint8_t)p->lane;
  step.peer_recv = step.bits & COLLI_RECV ? p->ranks[step.peer_recv] : COLLI_NOBODY;
  step.peer_send = step.bits & COLLI_SEND ? p->ranks[step.peer_send] : COLLI_NOBODY;
  if (!p->complete)
    step.bits &= (uint8_t)~COLLI_FINAL;
  bool moves = !(step.bits & (COLLI_RECV | COLLI_FOLD)) && step.bits & COLLI_STORE;
  if (moves && step.src_buf == step.dst_buf && step.chunk_in == step.chunk_out)
    step.bits &= (uint8_t)~COLLI_STORE;
  if (step.bits & (COLLI_RECV | COLLI_SEND | COLLI_STORE))
    colli_builder_add(whole->builder, step);
}

/* Makes sure that there are so many rows of scratch. */
static void want_rows(colli_whole *whole, int rows) {
  whole->rows = rows > whole->rows ? rows : whole->rows;
}

coll_status colli_part_add(colli_whole *whole, const colli_part *p) {
  if (p->among.nranks == 1)
    return COLL_OK;
  colli_shape shape = p->among;
  shape.coll = p->algo->coll;
  colli_sched *sched;
  coll_status status = p->algo->emit(&shape, &sched);
  if (status != COLL_OK)
    return status;
  int own = sched->nchunks;
  want_rows(whole, (sched->nscratch + own - 1) / own);
  if (p->in == COLLI_SCRATCH || p->out == COLLI_SCRATCH)
    want_rows(whole, COLLI_ROW_RESULT + 1);
  if (sched->nlanes != 1 || sched->scratch_own || whole->rows > COLLI_ROW_RESULT + 1)
    status = COLL_ERR_INTERNAL; /* not among the algorithms that can be parts */
  for (int piece = 0; piece < p->chunks / own && status == COLL_OK; piece++)
    for (int i = 0; i < sched->nsteps; i++)
      add_step(whole, p, sched->steps[i], own, piece);
  colli_sched_free(sched);
  return status;
}
