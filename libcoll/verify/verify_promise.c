/* verify_promise.c: what each collective promises about its outputs. */
#include "libcoll/sched/order.h"
#include "libcoll/verify/verify_state.h"

/* ---- expressions that an order prescribes ---------------------------------------------------- */

/* The piece of the vector that colli_order_fold works on. */
typedef struct piece {
  colli_verifier *v;
  int chunk;
  int pass;
} piece;

/* A rank's contribution to a piece. */
static int leaf_of(void *ctx, int rank) {
  piece *p = ctx;
  return colli_expr_leaf(&p->v->exprs, rank, p->chunk, p->pass);
}

/* left op right. */
static int combine_exprs(void *ctx, int left, int right) {
  piece *p = ctx;
  return colli_expr_op(&p->v->exprs, left, right);
}

/* The expression that the order prescribes for all ranks; -1 if out of memory. */
static int32_t prescribed_expr(colli_verifier *v, int chunk, int pass) {
  piece p = {v, chunk, pass};
  colli_combiner combiner = {leaf_of, combine_exprs, &p};
  int32_t made = colli_order_fold(v->shape->order, v->nranks, &combiner);
  made = made < 0 ? made : colli_expr_final(&v->exprs, made);
  if (made < 0)
    colli_vno_memory(v);
  return made;
}

/* Whether the order leaves nothing open. */
static bool exact_order(const colli_verifier *v) {
  return v->shape->order == COLLI_ORDER_TREE || v->shape->order == COLLI_ORDER_LEFT;
}

/* ---- outputs --------------------------------------------------------------------------------- */

/* The value of an output chunk; COLLI_UNWRITTEN after an objection. */
static int32_t output_of(colli_verifier *v, int rank, int chunk, int pass) {
  int32_t value = v->ranks[rank].place[colli_vplace(v, rank, COLLI_OUTPUT, chunk, pass)];
  if (value == COLLI_UNWRITTEN)
    colli_vobject(v, rank, -1, 0, "output chunk %d of pass %d is never written", chunk, pass);
  return value;
}

/* Checks that an output chunk has the right origin. */
static bool check_moved(colli_verifier *v, int rank, int chunk, int pass) {
  int32_t value = output_of(v, rank, chunk, pass);
  if (value < 0)
    return false;
  bool from_root = v->coll == COLLI_BROADCAST || v->coll == COLLI_SCATTER;
  int source = from_root ? v->root : chunk;
  int sent_as = v->coll == COLLI_ALLTOALL ? rank : chunk;
  const colli_expr *e = &v->exprs.node[value];
  if (e->first == source && e->chunk == sent_as && e->pass == pass)
    return true;
  return colli_vobject(v, rank, -1, 0,
                       "output chunk %d of pass %d holds chunk %d of pass %d of rank %d, not "
                       "chunk %d of rank %d",
                       chunk, pass, e->chunk, e->pass, e->first, sent_as, source);
}

/* Checks that an output chunk belongs to its own piece of the vector. */
static bool check_piece(colli_verifier *v, int rank, int chunk, int pass, int32_t value) {
  const colli_expr *e = &v->exprs.node[value];
  if (e->chunk == chunk && e->pass == pass)
    return true;
  return colli_vobject(v, rank, -1, 0, "output chunk %d of pass %d holds chunk %d of pass %d",
                       chunk, pass, e->chunk, e->pass);
}

/* Checks an output chunk of a reduction. *wanted: the required expression; -1: not known yet. */
static bool check_reduced(colli_verifier *v, int rank, int chunk, int pass, int32_t *wanted) {
  int32_t value = output_of(v, rank, chunk, pass);
  if (value < 0 || !check_piece(v, rank, chunk, pass, value))
    return false;
  const colli_expr *e = &v->exprs.node[value];
  if (!e->final)
    return colli_vobject(v, rank, -1, 0, "output chunk %d is not complete (%u contributions)",
                         chunk, e->count);
  if (v->shape->order != COLLI_ORDER_ANY && !e->ordered)
    return colli_vobject(v, rank, -1, 0, "output chunk %d was not reduced in rank order", chunk);
  if (*wanted >= 0 && value != *wanted)
    return colli_vobject(v, rank, -1, 0, "output chunk %d was reduced in another order than %s",
                         chunk, exact_order(v) ? "the one asked for" : "rank 0's");
  *wanted = value;
  return true;
}

/* Checks a chunk of a reduction on all ranks. */
static bool check_reduction(colli_verifier *v, int chunk, int pass) {
  int32_t wanted = -1;
  if (exact_order(v) && (wanted = prescribed_expr(v, chunk, pass)) < 0)
    return false;
  for (int rank = 0; rank < v->nranks; rank++)
    if (colli_has_chunk(v->ranks[rank].sched, COLLI_OUTPUT, chunk) &&
        !check_reduced(v, rank, chunk, pass, &wanted))
      return false;
  return true;
}

/* Checks an output chunk of a scan: ranks 0 .. last. wanted: set if only one expression is
 * allowed. */
static bool check_prefix(colli_verifier *v, int rank, int chunk, int pass, int last,
                         int32_t wanted) {
  int32_t value = output_of(v, rank, chunk, pass);
  if (value < 0 || !check_piece(v, rank, chunk, pass, value))
    return false;
  const colli_expr *e = &v->exprs.node[value];
  if (!e->ordered || e->first != 0 || e->last != last)
    return colli_vobject(v, rank, -1, 0,
                         "output chunk %d does not hold ranks 0 to %d in rank order", chunk, last);
  if (exact_order(v) && value != wanted)
    return colli_vobject(v, rank, -1, 0, "output chunk %d was not reduced from left to right",
                         chunk);
  return true;
}

/* Checks a chunk of a scan on all ranks. */
static bool check_scan(colli_verifier *v, int chunk, int pass) {
  piece p = {v, chunk, pass};
  int32_t before = -1;
  for (int rank = 0; rank < v->nranks; rank++) {
    int32_t own = leaf_of(&p, rank);
    int32_t upto = rank == 0 || own < 0 ? own : combine_exprs(&p, before, own);
    if (upto < 0)
      return colli_vno_memory(v);
    bool inclusive = v->coll == COLLI_SCAN;
    if (colli_has_chunk(v->ranks[rank].sched, COLLI_OUTPUT, chunk) &&
        !check_prefix(v, rank, chunk, pass, inclusive ? rank : rank - 1, inclusive ? upto : before))
      return false;
    before = upto;
  }
  return true;
}

/* Checks a chunk of moved data on all ranks. */
static bool check_movement(colli_verifier *v, int chunk, int pass) {
  for (int rank = 0; rank < v->nranks; rank++)
    if (colli_has_chunk(v->ranks[rank].sched, COLLI_OUTPUT, chunk) &&
        !check_moved(v, rank, chunk, pass))
      return false;
  return true;
}

/* Checks that a rank has heard from all others. */
static bool check_heard_of_all(colli_verifier *v, int rank) {
  const uint64_t *set = v->sets + (size_t)rank * colli_vset_words(v);
  for (int other = 0; other < v->nranks; other++)
    if (!(set[other / 64] >> (other % 64) & 1))
      return colli_vobject(v, rank, -1, 0, "leaves the barrier without having heard from rank %d",
                           other);
  return true;
}

/* Checks the promises of the collective on all ranks. */
bool colli_vcheck_promise(colli_verifier *v) {
  if (v->coll == COLLI_BARRIER) {
    for (int rank = 0; rank < v->nranks; rank++)
      if (!check_heard_of_all(v, rank))
        return false;
    return true;
  }
  bool scan = v->coll == COLLI_SCAN || v->coll == COLLI_EXSCAN;
  for (int pass = 0; pass < v->passes; pass++)
    for (int chunk = 0; chunk < v->nchunks; chunk++)
      if (scan                     ? !check_scan(v, chunk, pass)
          : colli_reduces(v->coll) ? !check_reduction(v, chunk, pass)
                                   : !check_movement(v, chunk, pass))
        return false;
  return true;
}
