/* check.c: what a single step and the frame of a schedule must satisfy. */
#include "libcoll/sched/check.h"

/* What is wrong with the frame of a schedule. */
const char *colli_check_frame(const colli_sched *sched) {
  if (sched->nranks < 1 || sched->nranks > COLLI_MAX_RANKS)
    return "number of ranks out of bounds";
  if (sched->rank < 0 || sched->rank >= sched->nranks)
    return "rank out of bounds";
  if (sched->root < 0 || sched->root >= sched->nranks)
    return "root out of bounds";
  if (sched->nchunks < 1)
    return "no chunks";
  if (sched->nscratch < 0 || sched->nscratch > sched->nchunks)
    return "more scratch than chunks";
  if (sched->nlanes < 1 || sched->nlanes > COLLI_MAX_LANES)
    return "number of lanes out of bounds";
  return NULL;
}

/* Whether a peer field is right for a step that does or does not use it. */
static bool peer_ok(const colli_sched *sched, int peer, bool used) {
  if (!used)
    return peer == -1;
  return peer >= 0 && peer < sched->nranks && peer != sched->rank;
}

/* Whether a buffer has this chunk. Scratch chunk c is as long as chunk c of the vector. */
static bool chunk_ok(const colli_sched *sched, int buf, int chunk) {
  if (buf > COLLI_SCRATCH || chunk < 0)
    return false;
  return chunk < (buf == COLLI_SCRATCH ? sched->nscratch : sched->nchunks);
}

/* What is wrong with the bits of a step. */
static const char *check_bits(colli_coll coll, unsigned bits) {
  const unsigned all =
      COLLI_SEND | COLLI_RECV | COLLI_REDUCE | COLLI_STORE | COLLI_FINAL | COLLI_MSG_LEFT;
  if (bits & ~all)
    return "unknown bits";
  if (!(bits & (COLLI_SEND | COLLI_STORE)) && !(bits & COLLI_RECV))
    return "does nothing";
  if (coll == COLLI_BARRIER)
    return bits & ~(unsigned)(COLLI_SEND | COLLI_RECV) ? "a barrier moves no data" : NULL;
  if (!(bits & (COLLI_SEND | COLLI_STORE)))
    return "drops its value";
  if (coll != COLLI_ALLREDUCE && (bits & (COLLI_REDUCE | COLLI_FINAL)))
    return "reduces in a collective that does not";
  if ((bits & COLLI_REDUCE) && !(bits & (COLLI_RECV | COLLI_STORE)))
    return "a local reduction must be stored";
  if ((bits & COLLI_RECV) && !(bits & (COLLI_REDUCE | COLLI_STORE)))
    return "a message that is not reduced must be stored";
  if ((bits & COLLI_FINAL) && !(bits & (COLLI_REDUCE | COLLI_STORE)))
    return "completes what it does not make";
  if ((bits & COLLI_MSG_LEFT) &&
      (bits & (COLLI_RECV | COLLI_REDUCE)) != (COLLI_RECV | COLLI_REDUCE))
    return "no message to put on the left";
  return NULL;
}

/* What is wrong with the buffers and chunks of a step. */
static const char *check_places(const colli_sched *sched, const colli_step *step) {
  bool reads = colli_step_reads(step), stores = step->bits & COLLI_STORE;
  if (reads && !chunk_ok(sched, step->src_buf, step->chunk_in))
    return "reads a chunk that does not exist";
  if (stores && !chunk_ok(sched, step->dst_buf, step->chunk_out))
    return "stores to a chunk that does not exist";
  if (stores && step->dst_buf == COLLI_INPUT)
    return "stores to the input";
  if (!reads || !stores)
    return NULL;
  /* Only the regions of an exact partition are sure to be equally long. */
  if (step->chunk_in != step->chunk_out && sched->coll != COLLI_ALLGATHER)
    return "stores to a chunk of another length";
  if (!(step->bits & COLLI_RECV) && step->src_buf == step->dst_buf &&
      step->chunk_in == step->chunk_out)
    return "stores to where it reads";
  return NULL;
}

/* What is wrong with a step of this schedule. */
const char *colli_check_step(const colli_sched *sched, const colli_step *step) {
  if (step->lane >= sched->nlanes)
    return "lane out of bounds";
  const char *wrong = check_bits(sched->coll, step->bits);
  if (wrong)
    return wrong;
  if (!peer_ok(sched, step->peer_recv, step->bits & COLLI_RECV))
    return "receives from no other rank";
  if (!peer_ok(sched, step->peer_send, step->bits & COLLI_SEND))
    return "sends to no other rank";
  return sched->coll == COLLI_BARRIER ? NULL : check_places(sched, step);
}
