/*
 * test_mutation.c: tests the verifier by breaking good schedules at random.
 *
 * A mutant is one random change to one step of one rank, or to the order of combination that all
 * ranks are said to have been made for. Not every change does harm: two sends to
 * different peers may change places, a sum may be taken from the other side where only one rank
 * takes it. Which mutants are harmless is decided by an oracle that shares nothing with the
 * verifier: it runs the schedules on numbers, many times in random order, and looks at the results.
 * The verifier must object to 98 of 100 mutants that the oracle saw doing harm (it should be all of
 * them). Mutants whose fields alone are wrong (a peer that does not exist) are drawn again:
 * test_builder.c has those.
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/sched/check.h"
#include "support_oracle.h"

#define MUTANTS     (extent(400, 800, 80)) /* of each algorithm */
#define ORACLE_RUNS 4

static const int slot_counts[] = {1, 2, COLLI_SLOTS_UNLIMITED};

/* Removes a step. */
static void delete_step(colli_sched *sched, int at) {
  memmove(&sched->steps[at], &sched->steps[at + 1],
          (size_t)(sched->nsteps - at - 1) * sizeof(colli_step));
  sched->nsteps--;
  for (int l = 0; l <= COLLI_MAX_LANES; l++)
    if (sched->lane_first[l] > at)
      sched->lane_first[l]--;
  for (int i = 0; i < sched->nsteps; i++)
    for (int d = 0; d < 2; d++) {
      int *dep = &sched->steps[i].dep[d];
      *dep = *dep == at ? COLLI_NO_DEP : *dep > at ? *dep - 1 : *dep;
    }
}

/* Duplicates a step; a copy of a schedule has room for one more. */
static void repeat_step(colli_sched *sched, int at) {
  memmove(&sched->steps[at + 1], &sched->steps[at],
          (size_t)(sched->nsteps - at) * sizeof(colli_step));
  sched->nsteps++;
  for (int l = 0; l <= COLLI_MAX_LANES; l++)
    if (sched->lane_first[l] > at)
      sched->lane_first[l]++;
  for (int i = 0; i < sched->nsteps; i++)
    for (int d = 0; d < 2; d++)
      if (sched->steps[i].dep[d] > at)
        sched->steps[i].dep[d]++;
}

/* Swaps a step with another one of its lane; deps stay where they are. False: it is the only one.
 */
static bool swap_steps(colli_sched *sched, int at, colli_prng *prng) {
  int lane = sched->steps[at].lane, first = sched->lane_first[lane];
  int count = sched->lane_first[lane + 1] - first;
  int other = first + (int)colli_prng_below(prng, (uint64_t)count);
  if (other == at)
    return false;
  colli_step step = sched->steps[at];
  sched->steps[at] = sched->steps[other];
  sched->steps[other] = step;
  return true;
}

/* Changes a chunk, or both in the same way. */
static void change_chunk(colli_sched *sched, colli_step *step, colli_prng *prng) {
  int chunk = (int)colli_prng_below(prng, (uint64_t)sched->nchunks);
  uint64_t which = colli_prng_below(prng, 3);
  if (which != 1)
    step->chunk_in = chunk;
  if (which != 0)
    step->chunk_out = chunk;
}

/* Makes one random change and returns its name, or NULL if it had no effect. */
static const char *mutate(colli_sched *sched, colli_prng *prng) {
  int at = (int)colli_prng_below(prng, (uint64_t)sched->nsteps);
  colli_step *step = &sched->steps[at];
  int peer = (int)colli_prng_below(prng, (uint64_t)sched->nranks);
  switch (colli_prng_below(prng, 10)) {
  case 0:
    delete_step(sched, at);
    return "delete";
  case 1:
    return swap_steps(sched, at, prng) ? "swap" : NULL;
  case 2:
    step->peer_send = peer;
    return "send to";
  case 3:
    step->peer_recv = peer;
    return "receive from";
  case 4:
    step->bits ^= (uint8_t)(1u << colli_prng_below(prng, 6));
    return "bit";
  case 5:
    change_chunk(sched, step, prng);
    return "chunk";
  case 6:
    repeat_step(sched, at);
    return "repeat";
  case 7:
    step->bits ^= colli_prng_below(prng, 2) ? COLLI_MSG_LEFT : COLLI_FINAL;
    return "side or completion";
  case 8:
    if (colli_prng_below(prng, 2))
      step->src_buf = (uint8_t)colli_prng_below(prng, 3);
    else
      step->dst_buf = (uint8_t)colli_prng_below(prng, 3);
    return "buffer";
  default:
    step->dep[0] = (int)colli_prng_below(prng, (uint64_t)sched->nsteps + 1) - 1;
    return "dep";
  }
}

/* Whether all fields are valid, so that only the meaning can be wrong. */
static bool well_formed(const colli_sched *sched) {
  for (int i = 0; i < sched->nsteps; i++) {
    const colli_step *step = &sched->steps[i];
    if (colli_check_step(sched, step))
      return false;
    for (int d = 0; d < 2; d++)
      if (step->dep[d] != COLLI_NO_DEP && sched->steps[step->dep[d]].lane == step->lane)
        return false;
  }
  return true;
}

/* Whether a mutant's schedule differs from the original in anything. */
static bool differs(const colli_sched *a, const colli_sched *b) {
  return a->nsteps != b->nsteps ||
         memcmp(a->steps, b->steps, (size_t)a->nsteps * sizeof(colli_step)) != 0;
}

/* Whether the verifier objects in any of the ways in which the tests use it. */
static bool verifier_objects(const group *all) {
  char why[256];
  for (int s = 0; s < 3; s++)
    for (int in_place = 0; in_place < 2; in_place++) {
      const colli_shape *shape = &all->sched[0]->shape;
      if (shape->coll == COLLI_ALLTOALL && shape->in_place != in_place)
        continue;
      coll_status status = group_verify(all, slot_counts[s], in_place, 2, why);
      cr_assert_neq(status, COLL_ERR_NO_MEMORY);
      if (status != COLL_OK)
        return true;
    }
  return false;
}

typedef struct tally {
  int harmful;
  int found;
  int strict; /* objections to mutants that the oracle found harmless */
  int harmless;
} tally;

/* A random shape that the algorithm supports. */
typedef struct drawn {
  colli_prng prng;
  colli_shape shape;
  near_kind near;
  uint64_t seen;
} drawn;

static void draw(const colli_algo *algo, const colli_shape *shape, near_kind near, void *ctx) {
  drawn *d = ctx;
  (void)algo;
  if (colli_prng_below(&d->prng, ++d->seen) != 0)
    return;
  d->shape = *shape;
  d->near = near;
}

/* Changes a random step of a random rank, and returns what it did. */
static const char *change_step(group *all, colli_prng *prng) {
  for (int tries = 0; tries < 200; tries++) {
    int rank = (int)colli_prng_below(prng, (uint64_t)all->nranks);
    colli_sched *original = all->sched[rank], *mutant = sched_copy(original);
    const char *change = mutant->nsteps ? mutate(mutant, prng) : NULL;
    if (change && well_formed(mutant) && differs(mutant, original)) {
      all->sched[rank] = mutant;
      colli_sched_free(original);
      return change;
    }
    colli_sched_free(mutant);
  }
  return NULL;
}

/* Says that all ranks' schedules were made for another order. */
static const char *change_order(group *all, colli_prng *prng) {
  colli_order order = (colli_order)colli_prng_below(prng, 4);
  if (order == all->sched[0]->shape.order)
    return NULL;
  for (int rank = 0; rank < all->nranks; rank++)
    all->sched[rank]->shape.order = order;
  return "order";
}

/* One mutant of one algorithm, from its own seed. */
static void try_mutant(const colli_algo *algo, uint64_t seed, tally *score) {
  drawn d = {.prng = {seed}};
  int nranks = 2 + (int)colli_prng_below(&d.prng, 12);
  shapes_each(algo, nranks, 0, draw, &d);
  cr_assert(d.seen > 0, "%s %s does nothing", colli_coll_name(algo->coll), algo->name);
  group all = group_of(algo, &d.shape, d.near);
  const char *change = NULL;
  if (colli_reduces(algo->coll) && colli_prng_below(&d.prng, 12) == 0)
    change = change_order(&all, &d.prng);
  if (!change)
    change = change_step(&all, &d.prng);
  cr_assert(change, "%s: seed %llu gives no mutant", algo->name, (unsigned long long)seed);
  bool harm = oracle_finds_harm(&all, ORACLE_RUNS, seed), objects = verifier_objects(&all);
  score->harmful += harm;
  score->harmless += !harm;
  score->found += harm && objects;
  score->strict += !harm && objects;
  char text[160];
  if (harm && !objects)
    fprintf(stderr, "%s: seed %llu: missed '%s'\n", shape_tell(algo, &d.shape, d.near, text),
            (unsigned long long)seed, change);
  group_free(&all);
}

/* The oracle must find nothing in good schedules, nor the verifier. */
static void pass_good(const colli_algo *algo, const colli_shape *shape, near_kind near, void *ctx) {
  char text[160];
  (void)ctx;
  group all = group_of(algo, shape, near);
  cr_assert(!oracle_finds_harm(&all, 1, 17), "%s", shape_tell(algo, shape, near, text));
  cr_assert(!verifier_objects(&all), "%s", shape_tell(algo, shape, near, text));
  group_free(&all);
}

Test(mutation, good_schedules_pass) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    for (int nranks = 1; nranks <= 9; nranks++)
      shapes_each(*algo, nranks, 1, pass_good, NULL);
}

/* Breaks one algorithm many times. */
static void break_algo(const colli_algo *algo, tally *sum) {
  tally score = {0, 0, 0, 0};
  uint64_t first = 1000003ull * (uint64_t)algo->id;
  for (int i = 0; i < MUTANTS; i++)
    try_mutant(algo, first + (uint64_t)i * 977, &score);
  fprintf(stderr, "%s %s, seeds %llu + 977 i: found %d of %d harmful; objects to %d of %d others\n",
          colli_coll_name(algo->coll), algo->name, (unsigned long long)first, score.found,
          score.harmful, score.strict, score.harmless);
  cr_expect(score.harmful * 3 > MUTANTS, "%s: too few mutants do harm", algo->name);
  sum->harmful += score.harmful;
  sum->found += score.found;
  sum->strict += score.strict;
  sum->harmless += score.harmless;
}

Test(mutation, verifier_finds_harm) {
  for (int coll = 0; coll < COLLI_COLL_COUNT; coll++) {
    tally sum = {0, 0, 0, 0};
    for (const colli_algo *const *algo = colli_algos; *algo; algo++)
      if ((*algo)->coll == (colli_coll)coll)
        break_algo(*algo, &sum);
    if (coll == COLLI_SENDRECV)
      continue;
    fprintf(stderr, "%s: found %d of %d harmful mutants (%.2f %%); objects to %d of %d others\n",
            colli_coll_name((colli_coll)coll), sum.found, sum.harmful,
            100.0 * sum.found / sum.harmful, sum.strict, sum.harmless);
    cr_expect(sum.harmful > 0 && sum.found * 100 >= sum.harmful * 98, "%s: only %d of %d found",
              colli_coll_name((colli_coll)coll), sum.found, sum.harmful);
  }
}
