/* test_verify.c: proves every algorithm for many numbers of ranks, roots, slots, and in place. */
#include <criterion/criterion.h>
#include <string.h>

#include "support_group.h"

static const int slot_counts[] = {1, 2, COLLI_SLOTS_UNLIMITED};

/* Verifies one shape with the given slots, in place or not. */
static void prove_one(const colli_algo *algo, const group *all, int root, int slots, bool in_place,
                      int passes) {
  char why[256];
  coll_status status = group_verify(all, slots, in_place, passes, why);
  cr_assert_eq(status, COLL_OK, "%s %s, %d ranks, root %d, %d slots%s, %d passes: status %d, %s",
               colli_coll_name(algo->coll), algo->name, all->nranks, root, slots,
               in_place ? ", in place" : "", passes, status, why);
}

/* Verifies one shape in every way. */
static void prove(const colli_algo *algo, int nranks, int root) {
  group all = group_make(algo, nranks, root);
  for (int s = 0; s < 3; s++)
    for (int in_place = 0; in_place < 2; in_place++)
      prove_one(algo, &all, root, slot_counts[s], in_place, 2);
  group_free(&all);
}

/* Verifies all roots up to 17 ranks, and some of them above. */
static void prove_roots(const colli_algo *algo, int nranks) {
  for (int root = 0; root < nranks; root++) {
    bool some = root <= 1 || root == nranks / 2 || root == nranks - 1;
    if (algo->coll != COLLI_BROADCAST ? root == 0 : (nranks <= 17 || some))
      prove(algo, nranks, root);
  }
}

/* Verifies all algorithms of one collective for 1 to 64 ranks. */
static void prove_collective(colli_coll coll) {
  int found = 0;
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    if ((*algo)->coll != coll)
      continue;
    found++;
    for (int nranks = 1; nranks <= 64; nranks++)
      prove_roots(*algo, nranks);
  }
  cr_assert(found > 0, "no algorithm for %s", colli_coll_name(coll));
}

Test(verify, allreduce_1_to_64) {
  prove_collective(COLLI_ALLREDUCE);
}

Test(verify, broadcast_1_to_64) {
  prove_collective(COLLI_BROADCAST);
}

Test(verify, allgather_1_to_64) {
  prove_collective(COLLI_ALLGATHER);
}

Test(verify, barrier_1_to_64) {
  prove_collective(COLLI_BARRIER);
}

/* Larger numbers of ranks: those whose schedules are long (all ranks times all ranks) get one pass.
 */
Test(verify, samples_to_1024) {
  static const int samples[] = {65, 100, 127, 128, 129, 255, 256, 257, 511, 512, 1000, 1023, 1024};
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    for (size_t i = 0; i < sizeof(samples) / sizeof(samples[0]); i++) {
      int nranks = samples[i];
      group all = group_make(*algo, nranks, (*algo)->coll == COLLI_BROADCAST ? nranks / 3 : 0);
      int root = all.sched[0]->root;
      bool large = all.sched[0]->nsteps > 500;
      prove_one(*algo, &all, root, 2, i % 2, large ? 1 : 2);
      for (int s = 0; s < 3 && !large; s++)
        prove_one(*algo, &all, root, slot_counts[s], !(i % 2), 2);
      group_free(&all);
    }
  }
}

/* What the verifier must object to, said by hand: each of its checks at least once. */
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
      {"deadlock", COLLI_BARRIER, "dissemination", 4, receive_first, "for ever"},
      {"block", COLLI_ALLGATHER, "ring", 4, read_others_input, "does not have"},
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
