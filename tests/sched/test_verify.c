/* test_verify.c: proves every algorithm for many numbers of ranks, roots, slots, and in place. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "support_group.h"

static const int slot_counts[] = {1, 2, COLLI_SLOTS_UNLIMITED};

/* Verifies one shape with the given slots, in place or not. */
static void prove_one(const colli_algo *algo, const group *all, near_kind near, int slots,
                      bool in_place, int passes) {
  char why[256], text[160];
  coll_status status = group_verify(all, slots, in_place, passes, why);
  cr_assert_eq(status, COLL_OK, "%s; %d slots%s, %d passes: status %d, %s",
               shape_tell(algo, &all->sched[0]->shape, near, text), slots,
               in_place ? ", in place" : "", passes, status, why);
}

/* Verifies one shape: small ones in every way, larger ones with two passes and, in turn, each
 * number of slots in place and not; of those with many chunks some, or with TEST_ALL=1 all. */
static void prove(const colli_algo *algo, const colli_shape *shape, near_kind near, void *ctx) {
  const int turn = (*(int *)ctx)++;
  const bool large = shape->nranks > 16 && algo->nchunks(shape) > 3 * shape->nranks;
  if (large && turn % extent(7, 1, 11) != 0)
    return;
  group all = group_of(algo, shape, near);
  for (int way = 0; way < 12; way++) {
    int slots = slot_counts[way % 3], passes = 1 + way / 3 % 2;
    bool in_place = way >= 6;
    if (algo->coll == COLLI_ALLTOALL ? in_place != shape->in_place : !in_place && passes == 1)
      continue;
    if (shape->nranks <= 12 || (passes == 2 && turn % 3 == way % 3))
      prove_one(algo, &all, near, slots, in_place, passes);
  }
  group_free(&all);
}

/* Verifies all algorithms of one collective for 1 to 64 ranks: from 16 on for every third number,
 * or with TEST_ALL=1 for each. */
static void prove_collective(colli_coll coll) {
  int found = 0, turn = 0, step_from = extent(16, 64, 8), step = extent(3, 1, 11);
  const int most = extent(64, 64, 32);
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->coll != coll)
      continue;
    found++;
    for (int nranks = 1; nranks <= most; nranks += nranks < step_from ? 1 : step)
      shapes_each(*algo, nranks, nranks <= 16 ? 0 : 1, prove, &turn);
  }
  cr_assert(found > 0, "no algorithm for %s", colli_coll_name(coll));
}

/* Verifies what an algorithm does in groups of so many ranks with levels inside. */
static void prove_levels(const colli_algo *algo, int nranks, near_kind near, int ninner) {
  int32_t *groups = calloc((size_t)nranks, sizeof(*groups));
  colli_shape shape = {.coll = algo->coll, .nranks = nranks};
  cr_assert(groups);
  shape_spread(&shape, near, groups);
  shape_levels(&shape, ninner, near != NEAR_UNEVEN);
  if (colli_algo_can(algo, &shape)) {
    group all = group_of(algo, &shape, near);
    prove_one(algo, &all, near, 2, false, 2);
    group_free(&all);
  }
  free(groups);
}

/* All-reduces of many ranks in as many levels as there may be, and in one less; or with TEST_ALL=1
 * all collectives. */
Test(verify, many_ranks_in_levels, .timeout = 600) {
  static const near_kind kinds[] = {NEAR_HALVES, NEAR_ROOTS, NEAR_UNEVEN};
  const int nranks = extent(100, 256, 70);
  int found = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    for (int kind = 0; kind < 3 && (*algo)->groups; kind++)
      if ((*algo)->coll == COLLI_ALLREDUCE || extent(0, 1, 0)) {
        prove_levels(*algo, nranks, kinds[kind], COLLI_INNER_LEVELS - kind % 2);
        found++;
      }
  cr_assert(found > 0);
}

#define PROVES(name, coll)                                                                         \
  Test(verify, name##_1_to_64) {                                                                   \
    prove_collective(coll);                                                                        \
  }
PROVES(allreduce, COLLI_ALLREDUCE)
PROVES(broadcast, COLLI_BROADCAST)
PROVES(allgather, COLLI_ALLGATHER)
PROVES(barrier, COLLI_BARRIER)
PROVES(reduce, COLLI_REDUCE)
PROVES(reduce_scatter, COLLI_REDUCE_SCATTER)
PROVES(alltoall, COLLI_ALLTOALL)
PROVES(gather, COLLI_GATHER)
PROVES(scatter, COLLI_SCATTER)
PROVES(scan, COLLI_SCAN)
PROVES(exscan, COLLI_EXSCAN)

/* Larger numbers of ranks: of schedules that are long (all ranks times all ranks) only a few. */
Test(verify, samples_to_1024) {
  static const int samples[] = {65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 1000, 1023, 1024};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
      int nranks = samples[i];
      colli_shape shape = {.coll = (*algo)->coll, .nranks = nranks};
      near_kind near = (*algo)->groups ? NEAR_ROOTS : NEAR_ALL;
      int chunks = (*algo)->nchunks(&shape);
      if (chunks > 1 && nranks > 129 && nranks != 257)
        continue;
      shape.root = colli_rooted((*algo)->coll) ? nranks / 3 : 0;
      group all = group_of(*algo, &shape, near);
      bool in_place = i % 2 && (*algo)->coll != COLLI_ALLTOALL;
      prove_one(*algo, &all, near, slot_counts[i % 3], in_place, nranks < 256 ? 2 : 1);
      group_free(&all);
    }
  }
}

/* Schedules that the verifier must reject, written by hand: each of its checks at least once. */
typedef struct broken {
  const char *name;
  colli_coll coll;
  const char *algo;
  int nranks;
  void (*change)(const group *all);
  const char *expected; /* in the objection */
} broken;

static void change_chunk(const group *all) {
  all->sched[1]->steps[1].chunk_in = all->sched[1]->steps[1].chunk_out = 1;
}
static void change_peer(const group *all) {
  all->sched[2]->steps[0].peer_send = 0;
}
static void change_side(const group *all) {
  all->sched[2]->steps[1].bits ^= COLLI_MSG_LEFT;
}
static void drop_final(const group *all) {
  all->sched[1]->steps[3].bits &= (uint8_t)~COLLI_FINAL;
}
static void early_final(const group *all) {
  all->sched[1]->steps[1].bits |= COLLI_FINAL;
}
static void drop_store(const group *all) {
  all->sched[2]->steps[1].bits &= (uint8_t)~COLLI_STORE;
}
static void drop_dep(const group *all) {
  all->sched[2]->steps[2].dep[0] = COLLI_NO_DEP;
}
static void drop_last(const group *all) {
  all->sched[1]->nsteps--;
  for (int l = 1; l <= COLLI_MAX_LANES; l++)
    all->sched[1]->lane_first[l]--;
}
static void read_output(const group *all) {
  all->sched[0]->steps[0].src_buf = COLLI_OUTPUT;
}
static void send_twice(const group *all) {
  all->sched[3]->steps[3] = all->sched[3]->steps[2];
}
static void receive_first(const group *all) {
  for (int rank = 0; rank < all->nranks; rank++) {
    colli_step first = all->sched[rank]->steps[0];
    all->sched[rank]->steps[0] = all->sched[rank]->steps[1];
    all->sched[rank]->steps[1] = first;
  }
}
static void read_others_input(const group *all) {
  all->sched[1]->steps[0].chunk_in = all->sched[1]->steps[0].chunk_out = 2;
}

/* Each sends by reference what it then stores to, and so does its partner. */
static void refer_always(const group *all) {
  for (int rank = 0; rank < all->nranks; rank++)
    colli_sched_mark_by_reference(all->sched[rank], true);
}
Test(verify, objects) {
  static const broken cases[] = {
      {"chunk", COLLI_ALLREDUCE, "ring", 4, change_chunk, "instead of chunk"},
      {"peer", COLLI_ALLREDUCE, "ring", 4, change_peer, "instead of chunk"},
      {"side", COLLI_ALLREDUCE, "recdbl", 4, change_side, "another order"},
      {"final", COLLI_ALLREDUCE, "ring", 4, drop_final, "is not complete"},
      {"early final", COLLI_ALLREDUCE, "ring", 4, early_final, "not whole"},
      {"store", COLLI_ALLREDUCE, "recdbl", 4, drop_store, "nobody wrote"},
      {"dep", COLLI_ALLREDUCE, "dbtree", 5, drop_dep, "while lane"},
      {"last step", COLLI_BROADCAST, "binomial", 4, drop_last, "never"},
      {"source", COLLI_ALLREDUCE, "recdbl", 4, read_output, "nobody wrote"},
      {"barrier", COLLI_BARRIER, "dissemination", 4, send_twice, "never receives"},
      {"deadlock", COLLI_BARRIER, "dissemination", 4, receive_first, "forever"},
      {"block", COLLI_ALLGATHER, "ring", 4, read_others_input, "does not exist"},
      {"refer", COLLI_ALLREDUCE, "recdbl", 4, refer_always, "forever"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    const broken *b = &cases[i];
    group all = group_make(colli_algo_find(b->coll, b->algo), b->nranks, 0);
    char why[256];
    cr_assert_eq(group_verify(&all, 2, false, 2, why), COLL_OK, "%s: %s", b->name, why);
    b->change(&all);
    cr_assert_eq(group_verify(&all, 2, false, 2, why), COLL_ERR_INTERNAL, "%s: no objection",
                 b->name);
    cr_assert(strstr(why, b->expected), "%s: objects for another reason: %s", b->name, why);
    group_free(&all);
  }
}
