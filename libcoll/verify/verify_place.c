/* verify_place.c: where the verifier stores chunks, and how it compares their lengths. */
#include "libcoll/verify/verify_state.h"

/* Whether a rank's INPUT and OUTPUT chunks with the same number share memory. */
static bool is_shared(const colli_verifier *v, int rank, int chunk) {
  if (!v->options->in_place)
    return false;
  switch (v->coll) {
  case COLLI_BROADCAST:
  case COLLI_REDUCE:
    return rank == v->root;
  case COLLI_ALLGATHER:
  case COLLI_REDUCE_SCATTER:
    return chunk == rank;
  case COLLI_GATHER:
  case COLLI_SCATTER:
    return rank == v->root && chunk == rank;
  default:
    return true;
  }
}

/* The place of a chunk that the rank has. */
int colli_vplace(const colli_verifier *v, int rank, colli_buf buf, int chunk, int pass) {
  int vector = v->passes * v->nchunks, at = pass * v->nchunks + chunk;
  if (buf == COLLI_SCRATCH)
    return 2 * vector + colli_sched_place(v->ranks[rank].sched, chunk);
  return buf == COLLI_OUTPUT || is_shared(v, rank, chunk) ? at : vector + at;
}

/* A number that is equal for two chunks only if they have the same length in every partition. */
int64_t colli_vlength(const colli_verifier *v, int rank, colli_buf buf, int chunk) {
  chunk %= v->nchunks;
  if (!colli_exact(v->coll))
    return chunk;
  if (!v->shape->varying)
    return 0;
  if (v->coll != COLLI_ALLTOALL)
    return chunk;
  /* The block from a to b; in place, the block that comes back has the same length. */
  int64_t from = buf == COLLI_OUTPUT ? chunk : rank, to = buf == COLLI_OUTPUT ? rank : chunk;
  if (v->shape->in_place && from > to)
    return to * v->nranks + from;
  return from * v->nranks + to;
}
