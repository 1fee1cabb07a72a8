/* check.c: what a single step and the frame of a schedule must satisfy. */
#include "libcoll/sched/check.h"

/* What is wrong with the frame of a schedule. */
const char *colli_check_frame(const colli_sched *sched) {
  if ((unsigned)sched->coll >= COLLI_COLL_COUNT || sched->coll == COLLI_SENDRECV)
    return "no collective";
  if (sched->nranks < 1 || sched->nranks > COLLI_MODEL_RANKS)
    return "number of ranks out of bounds";
  if (sched->rank < 0 || sched->rank >= sched->nranks)
    return "rank out of bounds";
  if (sched->root < 0 || sched->root >= sched->nranks)
    return "root out of bounds";
  if (sched->nchunks < 1)
    return "no chunks";
  if (sched->nscratch < 0 || sched->nscratch > 2 * sched->nchunks + 32)
    return "too much scratch";
  if (colli_exact(sched->coll) && sched->nchunks != sched->nranks)
    return "blocks are not as many as ranks";
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

/* Whether a rank's input or output of this collective has a chunk. */
bool colli_has_chunk(const colli_sched *sched, colli_buf buf, int chunk) {
  bool root = sched->rank == sched->root, own = chunk == sched->rank, in = buf == COLLI_INPUT;
  switch (sched->coll) {
  case COLLI_ALLGATHER:
    return !in || own;
  case COLLI_REDUCE_SCATTER:
    return in || own;
  case COLLI_GATHER:
    return in ? own : root;
  case COLLI_SCATTER:
    return in ? root : own;
  case COLLI_REDUCE:
    return in || root;
  case COLLI_BROADCAST:
    return !in || root;
  case COLLI_EXSCAN:
    return in || sched->rank != 0;
  default:
    return true;
  }
}

/* Whether the rank knows the length of scratch chunks with this number. With blocks of differing
 * lengths, only the root of a gather or scatter knows the other ranks' lengths. */
static bool knows_length(const colli_sched *sched, int chunk) {
  bool rooted_blocks = sched->coll == COLLI_GATHER || sched->coll == COLLI_SCATTER;
  return !rooted_blocks || !sched->shape.varying || sched->rank == sched->root ||
         chunk % sched->nchunks == sched->rank;
}

/* Whether a buffer has this chunk. */
static bool chunk_ok(const colli_sched *sched, int buf, int chunk) {
  if (buf > COLLI_SCRATCH || chunk < 0)
    return false;
  if (buf == COLLI_SCRATCH)
    return colli_sched_place(sched, chunk) < sched->nscratch &&
           (!sched->scratch_own || chunk % sched->nchunks == sched->rank) &&
           knows_length(sched, chunk);
  return chunk < sched->nchunks && colli_has_chunk(sched, (colli_buf)buf, chunk);
}

/* Whether the chunks that a step reads and writes are equally long in every partition. */
static bool same_length(const colli_sched *sched, const colli_step *step) {
  int in = step->chunk_in % sched->nchunks, out = step->chunk_out % sched->nchunks;
  if (colli_exact(sched->coll) && !sched->shape.varying)
    return true;
  if (sched->coll == COLLI_ALLTOALL) /* received blocks may differ in length from sent ones */
    return in == out && ((step->src_buf == COLLI_OUTPUT) == (step->dst_buf == COLLI_OUTPUT) ||
                         in == sched->rank || sched->shape.in_place);
  return in == out;
}

/* What is wrong with the bits of a step. */
static const char *check_bits(colli_coll coll, unsigned bits) {
  const unsigned all =
      COLLI_SEND | COLLI_RECV | COLLI_FOLD | COLLI_STORE | COLLI_FINAL | COLLI_MSG_LEFT;
  if (bits & (COLLI_BY_REF | COLLI_BY_REF_IN_PLACE) && !(bits & COLLI_SEND))
    return "is marked as sent by reference but sends nothing";
  bits &= all;
  if (!(bits & (COLLI_SEND | COLLI_STORE)) && !(bits & COLLI_RECV))
    return "does nothing";
  if (coll == COLLI_BARRIER)
    return bits & ~(unsigned)(COLLI_SEND | COLLI_RECV) ? "a barrier moves no data" : NULL;
  if (!(bits & (COLLI_SEND | COLLI_STORE)))
    return "drops its value";
  if (!colli_reduces(coll) && (bits & (COLLI_FOLD | COLLI_FINAL)))
    return "reduces in a collective that does not reduce";
  if ((coll == COLLI_SCAN || coll == COLLI_EXSCAN) && (bits & COLLI_FINAL))
    return "completes a prefix";
  if ((bits & COLLI_FOLD) && !(bits & (COLLI_RECV | COLLI_STORE)))
    return "a local reduction must be stored";
  if ((bits & COLLI_RECV) && !(bits & (COLLI_FOLD | COLLI_STORE)))
    return "a message that is not reduced must be stored";
  if ((bits & COLLI_FINAL) && !(bits & (COLLI_FOLD | COLLI_STORE)))
    return "is final but makes no value";
  if ((bits & COLLI_MSG_LEFT) && (bits & (COLLI_RECV | COLLI_FOLD)) != (COLLI_RECV | COLLI_FOLD))
    return "has no message to put on the left";
  return NULL;
}

/* What is wrong with a step's buffers and chunks; NULL if nothing. */
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
  if (!same_length(sched, step))
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
