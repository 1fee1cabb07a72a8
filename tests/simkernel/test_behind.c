/*
 * test_behind.c: ranks leave a coordinator, which does not notice, and return with a list of
 * another one, while the first still has their checkins; one of them comes back without the commit.
 * Those checkins do not prove that the list was not committed, so the coordinator asks again. The
 * model found this (tests/model).
 *
 *   0.1 s  a cut between rank 0 and ranks 1, 3, 4, 5, which have checked in with it; it does not
 *          notice, and waits for rank 6, which comes late
 *   4.7 s  these four agree on a list under rank 1; 1, 4 and 5 return, but rank 3 does not hear so
 *   7.4 s  rank 3 comes back to rank 0, through rank 2, with that list
 *   7.6 s  rank 6 comes, so rank 0 goes on; and the cut heals
 */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "libcoll/recovery/shrink_internal.h"
#include "support_job.h"

enum { FEW = 7, LATE = 6, MANY = 256 };

static const bool leaves[FEW] = {[1] = true, [3] = true, [4] = true, [5] = true};

/* Virtual times behind the creation. */
#define CUT_NS  (100 * SK_MS)
#define LATE_NS (7250 * SK_MS) /* and then rank 6 needs 0.3 s to find rank 0 */
#define HEAL_NS (7650 * SK_MS)

/* What a rank got. */
typedef struct part {
  coll_status status;
  uint64_t result; /* a communicator's number, or a word */
  int members;     /* of that communicator, or those who agreed */
  uint64_t begin_ns, end_ns;
  coll_comm *comm;
  char message[400];
} part;

static struct {
  int nranks;
  bool agrees, aborts;
  coll_id id;
  bool have_id;
  part parts[MANY];
  uint64_t commits_ns; /* when the four did, and */
  uint64_t asks_ns;    /* when rank 0 or 1 asked again; 0: did not */
  uint64_t most;       /* messages of a rank until all had answered */
} scene;

/* ---- faults ---------------------------------------------------------------------------------- */

static void cut_between(int a, int b, bool cut) {
  sk_cut(a, b, cut);
  sk_cut(b, a, cut);
}

static void cut_off(uint64_t cut) {
  for (int rank = 1; rank < FEW; rank++)
    if (leaves[rank])
      cut_between(0, rank, cut != 0);
}

static void abort_call(int rank) {
  coll_comm_abort(scene.parts[rank].comm);
}

static void strike_abort(uint64_t rank) {
  sk_interrupt((int)rank, abort_call);
}

void __real_shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags);
void __wrap_shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags);

/* What rank 1 says of the outcome does not reach rank 3. */
static void watch_few(const shrink *s, const shrink_order *order) {
  if (order->kind == SHRINK_COMMIT && s->b.rank == 1 && !scene.commits_ns) {
    scene.commits_ns = sk_now_ns();
    cut_between(1, 3, true);
  }
  if (order->kind != SHRINK_AGAIN || s->b.rank != 0 || scene.asks_ns)
    return;
  scene.asks_ns = sk_now_ns();
  if (scene.aborts)
    sk_at(scene.asks_ns + SK_MS, strike_abort, 2);
}

/* Rank 0 dies when it has told only rank 1 of its list. Counts messages while rank 1 asks the
 * others. */
static void watch_many(const shrink *s, const shrink_order *order, uint8_t *flags) {
  if (s->b.rank == 0 && order->kind == SHRINK_BUILD) {
    for (int r = 2; r < s->b.nranks; r++)
      flags[r] &= (uint8_t)~SHRINK_FOR;
    sk_kill_after(0, 4);
  }
  if (s->b.rank == 1 && order->kind == SHRINK_AGAIN && !scene.asks_ns) {
    scene.asks_ns = sk_now_ns();
    sk_reset_counts();
  }
  if (s->b.rank == 1 && order->kind == SHRINK_BUILD && scene.asks_ns && !scene.most)
    for (int r = 1; r < s->b.nranks; r++) {
      const sk_counts count = sk_count(r);
      scene.most =
          count.sends + count.receives > scene.most ? count.sends + count.receives : scene.most;
    }
}

void __wrap_shrink_pass_down(shrink *s, const shrink_order *order, const uint8_t *flags) {
  uint8_t those[MANY];
  memcpy(those, flags, (size_t)s->b.nranks);
  if (scene.nranks > FEW)
    watch_many(s, order, those);
  else
    watch_few(s, order);
  __real_shrink_pass_down(s, order, those);
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Who leaves gives rank 0 up first, and rank 3 last; the others are patient. */
static int patience_ms(int rank) {
  if (scene.nranks > FEW)
    return 20000;
  return rank == 3 ? 5000 : leaves[rank] ? 3000 : 12000;
}

static void take_part(int rank, coll_config *config) {
  part *p = &scene.parts[rank];
  coll_comm *child = NULL;
  uint64_t word = ~(UINT64_C(1) << rank % 64);
  int absent = 0;
  p->begin_ns = sk_now_ns();
  p->status = scene.agrees ? coll_comm_agree(p->comm, &word, &absent, config)
                           : coll_comm_shrink(p->comm, config, &child);
  p->end_ns = sk_now_ns();
  p->result = child ? child->comm_id : word;
  p->members = child ? child->nranks : scene.nranks - absent;
  if (scene.nranks == FEW)
    sk_sleep(60 * SK_S); /* it stays alive */
  coll_comm_destroy(&child);
}

static void rank_main(int rank, void *arg) {
  (void)arg;
  part *p = &scene.parts[rank];
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  config.heartbeat_ms = 30000;
  config.create_timeout_ms = patience_ms(rank);
  if (rank == 0) {
    cr_assert_eq(coll_unique_id(&scene.id, &config), COLL_OK);
    scene.have_id = true;
  }
  cr_assert(sk_await(&scene.have_id, 10 * SK_S));
  cr_assert_eq(coll_comm_create(&p->comm, &scene.id, scene.nranks, rank, &config), COLL_OK, "%s",
               error.message);
  if (scene.nranks == FEW && rank == 0) {
    sk_at(sk_now_ns() + CUT_NS, cut_off, 1);
    sk_at(sk_now_ns() + HEAL_NS, cut_off, 0);
    cut_between(1, 2, true); /* it would tell rank 2 who leads */
  }
  if (scene.nranks == FEW && rank == LATE)
    sk_sleep(LATE_NS);
  take_part(rank, &config);
  snprintf(p->message, sizeof(p->message), "%.*s", (int)sizeof(p->message) - 1, error.message);
  coll_comm_destroy(&p->comm);
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void run(int nranks, int ranks_per_host, bool agrees, bool aborts) {
  const job_config config = job_defaults(1, nranks, ranks_per_host);
  memset(&scene, 0, sizeof(scene));
  scene.nranks = nranks;
  scene.agrees = agrees;
  scene.aborts = aborts;
  sk_open(&config.kernel);
  cr_assert(sk_run(rank_main, NULL, 300 * SK_S));
  cr_expect_gt(scene.asks_ns, 0);
}

/* All who returned with something have the same; how many they are. */
static int count_together(void) {
  const part *first = NULL;
  int count = 0;
  for (int rank = 0; rank < scene.nranks; rank++) {
    const part *p = &scene.parts[rank];
    if (!sk_is_alive(rank) || p->status != COLL_OK)
      continue;
    first = first ? first : p;
    count++;
    cr_expect(p->result == first->result && p->members == first->members,
              "rank %d has another result, of %d ranks", rank, p->members);
  }
  return count;
}

/* Ranks 1, 4 and 5 return; the others learn that they are too few, as soon as rank 0 has waited for
 * as long as for any silent rank. */
static void desert(bool agrees) {
  run(FEW, 1, agrees, false);
  cr_expect_gt(scene.commits_ns, 0);
  cr_expect_eq(count_together(), 3);
  for (int rank = 0; rank < FEW; rank++) {
    const part *p = &scene.parts[rank];
    const bool returns = leaves[rank] && rank != 3;
    cr_expect_eq(p->status, returns ? COLL_OK : COLL_ERR_TIMEOUT, "rank %d: %s", rank, p->message);
    cr_expect_leq(p->end_ns, 13 * SK_S, "rank %d: %.3f s", rank, (double)p->end_ns / 1e9);
  }
  sk_close();
}

Test(behind, shrink, .timeout = 60) {
  desert(false);
}

Test(behind, agreement, .timeout = 60) {
  desert(true);
}

/* Rank 2 aborts while rank 0 waits for answers. */
Test(behind, abort, .timeout = 60) {
  run(FEW, 1, false, true);
  cr_expect_eq(count_together(), 3);
  for (int rank = 0; rank < FEW; rank++) {
    const part *p = &scene.parts[rank];
    if (leaves[rank] && rank != 3)
      continue;
    cr_expect_eq(p->status, COLL_ERR_ABORTED, "rank %d: %s", rank, p->message);
    cr_expect_leq(p->end_ns, scene.asks_ns + SK_S, "rank %d", rank);
  }
  sk_close();
}

/* Who is asked and is there answers, and all go on together. Questions and answers go through the
 * tree, so no rank handles many. */
Test(behind, many_answer, .timeout = 120) {
  const int nranks = extent(MANY, MANY, 64);
  run(nranks, 8, false, false);
  cr_expect_eq(count_together(), nranks - 1);
  printf("at most %d messages of a rank\n", (int)scene.most);
  cr_expect(scene.most > 0 && scene.most <= 40);
  sk_close();
}
