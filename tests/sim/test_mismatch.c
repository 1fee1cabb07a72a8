/*
 * test_mismatch.c: one rank makes a different call. Ranks get COLL_ERR_MISMATCH, and the
 * record names the odd rank and one of the others. A rank that had finished before anyone noticed
 * has the right results.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/base/names.h"
#include "support_program.h"
#include "support_seeds.h"

#define LIMIT_NS (20 * COLLI_NS_PER_S)

/* A call that differs from `op` in one property. */
static program_op make_odd(colli_prng *prng, const program_op *op, int nranks) {
  program_op odd = *op;
  switch (colli_prng_below(prng, 5)) {
  case 0:
    odd.count += 1 + colli_prng_below(prng, 100);
    break;
  case 1: /* of the same size, where that is possible */
    odd.type = op->type % 2 ? (coll_type)(op->type - 1) : (coll_type)(op->type + 1);
    break;
  case 2:
    odd.op = (coll_op)((op->op + 1) % (COLL_AVG + 1));
    break;
  case 3:
    odd.root = (op->root + 1) % nranks;
    break;
  default:
    odd.coll = op->coll == COLLI_ALLREDUCE ? COLLI_ALLGATHER : COLLI_ALLREDUCE;
    break;
  }
  /* Operation and root count only where the collective has one. */
  if (op->coll != COLLI_BROADCAST && odd.root != op->root)
    odd.coll = op->coll == COLLI_BARRIER ? COLLI_BROADCAST : COLLI_BARRIER;
  if (op->coll != COLLI_ALLREDUCE && odd.op != op->op)
    odd.coll = COLLI_ALLREDUCE;
  if (op->coll == COLLI_BARRIER && odd.coll == COLLI_BARRIER)
    odd.coll = COLLI_ALLGATHER;
  return odd;
}

/* Whether a text names rank `rank`. */
static bool names(const char *text, int rank) {
  char word[32];
  snprintf(word, sizeof(word), " %d (host", rank);
  return strstr(text, word) != NULL;
}

/*
 * Whether two ranks both believe that they are the root of a broadcast. What they send may fill the
 * connection, so that neither gets to the message that would reveal it.
 */
static bool two_roots(const program *p) {
  return p->nranks == 2 && p->odd_op.coll == COLLI_BROADCAST && p->odd_op.root == p->odd_rank;
}

/* Checks how a rank ended. */
static bool judge(const program *p, int rank, int *noticed) {
  const program_rank *pr = &p->ranks[rank];
  if (two_roots(p) && pr->done && pr->status == COLL_ERR_TIMEOUT) {
    ++*noticed;
    return true;
  }
  if (pr->done && pr->status == COLL_OK)
    return true;
  ++*noticed;
  const coll_error *e = &pr->error;
  int other = e->rank == p->odd_rank ? e->peer : e->rank;
  bool ok = pr->done && pr->status == COLL_ERR_MISMATCH && e->status == COLL_ERR_MISMATCH &&
            (e->rank == p->odd_rank || e->peer == p->odd_rank) && other != p->odd_rank &&
            other >= 0 && names(e->message, p->odd_rank) && names(e->message, other);
  if (!ok)
    fprintf(stderr, "seed %llu: rank %d: %s, rank %d peer %d: %s\n", (unsigned long long)p->seed,
            rank, pr->done ? coll_status_name(pr->status) : "never ended", e->rank, e->peer,
            e->message);
  return ok;
}

/* One seed. */
static bool run_seed(uint64_t seed, bool verbose) {
  seeded_world sw;
  seeded_world_make(&sw, seed, 2, 9);
  world w;
  if (!world_open(&w, &sw.config))
    return false;
  program p;
  program_make(&p, &w, &sw.config, seed);
  colli_prng prng = {seed ^ 0x0dd};
  p.odd_rank = (int)colli_prng_below(&prng, (uint64_t)p.nranks);
  p.odd_index = (int)colli_prng_below(&prng, (uint64_t)p.nops);
  p.ops[p.nops++] = (program_op){.coll = COLLI_BARRIER};
  program_op *op = &p.ops[p.odd_index];
  if (op->coll == COLLI_SENDRECV)
    op->coll = COLLI_ALLREDUCE;
  op->count += op->count == 0; /* a call that moves no data cannot disagree with another */
  p.odd_op = make_odd(&prng, op, p.nranks);
  bool ended = program_run(&p, LIMIT_NS), ok = ended && p.wrong == 0;
  int noticed = 0;
  for (int rank = 0; rank < p.nranks; rank++)
    ok &= judge(&p, rank, &noticed);
  ok &= noticed > 0;
  if (!ok || verbose) {
    fprintf(stderr,
            "seed %llu: %s, %d ranks noticed: rank %d called %s count %zu %s %s root %d as "
            "operation %d, '%s'\n",
            (unsigned long long)seed, ok ? "right" : "wrong", noticed, p.odd_rank,
            colli_coll_name(p.odd_op.coll), p.odd_op.count, colli_type_name(p.odd_op.type),
            colli_op_name(p.odd_op.op), p.odd_op.root, p.odd_index, sw.algo);
    program_print(&p);
  }
  world_close(&w);
  program_free(&p);
  return ok;
}

Test(mismatch, programs, .timeout = 280) {
  cr_assert_eq(seeds_run("build/tests/sim_test_mismatch", run_seed, 1, 300), 0);
}
