/*
 * test_ptx_meet.c: coll_meet orders what ranks do before and after it, also where memory is weak;
 * the host can always release a rank; and each bug that is planted in its PTX is found.
 */
#include "tests/gpu/support_meet.h"

#include <criterion/criterion.h>
#include <criterion/logging.h>

#include "extent.h"

/* Instructions of a warp, for each rank. What needs more than these never ends: usually two
 * thousand are enough. */
enum { MOST = 100000, BUG_SEEDS = 20 };

TestSuite(ptx_meet, .timeout = 300);

/* What came of a run. */
typedef struct {
  bool ended, right, early;
  uint64_t races;
} outcome;

static outcome run(const ptx_module *m, const meet_setup *setup) {
  outcome o;
  meet_world *w = meet_open(m, setup);
  o.ended = meet_step(w, MOST * (uint64_t)w->setup.ranks);
  o.right = o.ended && meet_right(w, MEET_ALL);
  o.early = w->early;
  for (int i = 0; o.right && i < setup->ranks; i++) {
    const meet_rank *r = &w->rank[i];
    const uint32_t last = setup->epoch + MEET_ALL;
    o.right = r->left == last && r->arrived == last && r->state.epoch == last && !r->state.released;
  }
  o.races = meet_close(w);
  return o;
}

/* Expects that nothing is wrong, whatever the seed. */
static void expect_order(gpu_model model, int ranks, int seeds, uint32_t epoch) {
  ptx_module *m = meet_module(NULL);
  for (int seed = 1; seed <= seeds; seed++) {
    const meet_setup setup = {.model = model,
                              .seed = (uint64_t)seed,
                              .ranks = ranks,
                              .threads = 32 * (1 + (uint32_t)seed % 3),
                              .epoch = epoch};
    const outcome o = run(m, &setup);
    cr_assert(o.ended && o.right && !o.early && !o.races,
              "model %d, %d ranks, seed %d: ended %d, right %d, left early %d, %llu races", model,
              ranks, seed, o.ended, o.right, o.early, (unsigned long long)o.races);
  }
  ptx_free(m);
}

/* The same in all models, mostly in those that find something. */
static void expect_ranks(int ranks, int seeds) {
  expect_order(GPU_PLAIN, ranks, 1 + seeds / 10, 0);
  expect_order(GPU_WEAK, ranks, seeds, 0);
  expect_order(GPU_RACES, ranks, seeds, 0);
}

Test(ptx_meet, two_ranks) {
  expect_ranks(2, extent_seeds(50, 50, 8, 1000));
}
Test(ptx_meet, three_ranks) {
  expect_ranks(3, extent_seeds(50, 50, 8, 1000));
}
Test(ptx_meet, eight_ranks) {
  expect_ranks(8, extent_seeds(30, 30, 4, 1000));
}
Test(ptx_meet, nine_ranks) {
  expect_ranks(9, extent_seeds(30, 30, 4, 1000));
}
Test(ptx_meet, more_ranks_than_threads) {
  expect_ranks(MEET_RANKS, extent(3, 10, 1));
}

/* The number of the epoch wraps around, also where a signed one would. */
static const uint32_t epochs[] = {UINT32_MAX - 3, INT32_MAX - 3u};
Test(ptx_meet, epochs_wrap_around) {
  for (int i = 0; i < 2; i++)
    for (int ranks = 2; ranks <= 5; ranks++)
      expect_order(ranks % 2 ? GPU_WEAK : GPU_RACES, ranks, extent_seeds(20, 20, 5, 100),
                   epochs[i]);
}

/* ---- ranks that never come ---- */

/* Waits until all ranks that run have come; the last never does. */
static meet_world *open_with_absent(const ptx_module *m, const meet_setup *setup) {
  meet_world *w = meet_open(m, setup);
  int come = 0;
  for (int i = 0; i < 1000 && come < setup->ranks - 1; i++) {
    cr_assert(!meet_step(w, 1000));
    come = 0;
    for (int r = 0; r < setup->ranks; r++)
      come += __atomic_load_n(&w->rank[r].arrived, __ATOMIC_SEQ_CST) == setup->epoch + 1;
  }
  cr_assert_eq(come, setup->ranks - 1);
  cr_assert_eq(w->rank[setup->ranks - 1].arrived,
               setup->epoch); /* so the host sees who is missing */
  return w;
}

/* What is wrong with ranks that were released in their first meet; NULL: nothing. */
static const char *wrong_with_released(meet_world *w) {
  if (!meet_step(w, MOST * (uint64_t)w->setup.ranks))
    return "does not end";
  for (int r = 0; r < w->setup.ranks - w->setup.absent; r++) {
    const meet_rank *rank = &w->rank[r];
    if (rank->left != w->setup.epoch || rank->state.epoch != w->setup.epoch)
      return "says that it has passed";
    if (!rank->state.released || rank->arrived != w->setup.epoch + 1)
      return "comes again";
    for (int i = 0; i < w->setup.ranks; i++)
      if (rank->words[i] - w->setup.epoch > 1)
        return "was told of later meets";
  }
  return NULL;
}

static void release(meet_rank *rank) {
  __atomic_store_n(&rank->abort, 1, __ATOMIC_SEQ_CST);
}

/* Ranks wait for one that never comes, as long as the host lets them, and not longer. */
static const char *with_absent(const ptx_module *m, const meet_setup *setup) {
  meet_world *w = open_with_absent(m, setup);
  cr_assert(!meet_step(w, 100000));
  release(&w->rank[0]); /* only this one: the others go on waiting */
  cr_assert(!meet_step(w, 100000 * (uint64_t)setup->ranks));
  const bool gone = w->rank[0].run == NULL;
  for (int r = 1; r < setup->ranks - 1; r++)
    cr_assert_eq(w->rank[r].left, setup->epoch);
  for (int r = 1; r < setup->ranks; r++)
    release(&w->rank[r]);
  const char *wrong = wrong_with_released(w);
  meet_close(w); /* with races: later rounds wait for nobody */
  return wrong || gone ? wrong : "is not released alone";
}

Test(ptx_meet, the_host_releases_ranks) {
  static const int ranks[] = {3, 9, MEET_RANKS};
  ptx_module *m = meet_module(NULL);
  for (int i = 0; i < 3 * extent_seeds(6, 6, 3, 40); i++) {
    const meet_setup setup = {.model = (gpu_model)(i / 3 % 3),
                              .seed = (uint64_t)i,
                              .ranks = ranks[i % 3],
                              .threads = 32u << i % 2,
                              .epoch = 7,
                              .absent = 1};
    const char *wrong = with_absent(m, &setup);
    cr_assert_null(wrong, "seed %d: a released rank %s", i, wrong);
  }
  ptx_free(m);
}

/* A rank that is released from the beginning: those that its first warp waits for have come, others
 * have not. */
static const char *released_before(const ptx_module *m, uint64_t seed) {
  const meet_setup setup = {.model = GPU_PLAIN,
                            .seed = seed,
                            .ranks = MEET_RANKS,
                            .threads = 64,
                            .absent = MEET_RANKS - 1};
  meet_world *w = meet_open(m, &setup);
  release(&w->rank[0]);
  for (int i = 1; i < 32; i++)
    w->rank[0].words[i] = 1;
  const char *wrong = wrong_with_released(w);
  meet_close(w);
  return wrong;
}

Test(ptx_meet, released_by_one_thread) {
  ptx_module *m = meet_module((meet_edit[]){{", 63;", 1, ", 0;"}, {0}}); /* each time, so soon */
  for (uint64_t seed = 0; seed < 10 * BUG_SEEDS; seed++) {
    const char *wrong = released_before(m, seed);
    cr_assert_null(wrong, "seed %d: a released rank %s", (int)seed, wrong);
  }
  ptx_free(m);
}

/* The host releases all ranks at any time: all end, and the rounds before the last that all passed
 * are right. */
Test(ptx_meet, released_at_any_time) {
  ptx_module *m = meet_module(NULL);
  for (int seed = 1; seed <= extent_seeds(20, 40, 6, 600); seed++) {
    const meet_setup setup = {.model = seed % 2 ? GPU_WEAK : GPU_PLAIN,
                              .seed = (uint64_t)seed,
                              .ranks = 2 + seed % 7,
                              .threads = 32};
    meet_world *w = meet_open(m, &setup);
    uint32_t passed = MEET_ALL + 1;
    meet_step(w, colli_prng_next(&w->random) % (5000 * (uint64_t)setup.ranks));
    for (int r = 0; r < setup.ranks; r++)
      release(&w->rank[r]);
    cr_assert(meet_step(w, MOST * (uint64_t)w->setup.ranks), "seed %d", seed);
    for (int r = 0; r < setup.ranks; r++)
      passed = w->rank[r].left < passed ? w->rank[r].left : passed;
    cr_assert(!w->early && meet_right(w, passed > 0 ? passed - 1 : 0), "seed %d", seed);
    meet_close(w);
  }
  ptx_free(m);
}

/* ---- planted bugs ---- */

/* How a bug shows. */
enum { WRONG = 1, RACES = 2, HANGS = 4, EARLY = 8 };

typedef struct {
  const char *name;
  meet_edit edits[3];
  int shows; /* in each of these ways for some seed */
  uint32_t epoch;
  bool one_slot;
} bug;

static const bug bugs[] = {
    {"no fence, so no release", {{"fence.acq_rel.sys", 1, "//"}}, WRONG | RACES, 0, false},
    {"a fence for the block",
     {{"fence.acq_rel.sys", 1, "fence.acq_rel.cta"}},
     WRONG | RACES,
     0,
     false},
    {"a fence for the device", {{"fence.acq_rel.sys", 1, "fence.acq_rel.gpu"}}, RACES, 0, false},
    {"the flag before the fence",
     {{"fence.acq_rel.sys;", 1, ""}, {"ld.acquire.sys", 1, "fence.acq_rel.sys; ld.acquire.sys"}},
     WRONG | RACES,
     0,
     false},
    {"a weak flag", {{"st.relaxed.sys.global", 1, "st.global"}}, RACES, 0, false},
    {"a flag for the device",
     {{"st.relaxed.sys.global", 1, "st.relaxed.gpu.global"}},
     RACES,
     0,
     false},
    {"no acquire", {{"ld.acquire.sys", 1, "ld.relaxed.sys"}}, WRONG | RACES, 0, false},
    {"an acquire for the device", {{"ld.acquire.sys", 1, "ld.acquire.gpu"}}, RACES, 0, false},
    {"no barrier at the end", {{"bar.sync", 2, "//"}}, EARLY, 0, false},
    {"the epoch is not advanced", {{"st.global.u32", 2, "//"}}, WRONG | RACES, 0, false},
    {"two epochs in turn", {{"add.s32", 1, "xor.b32"}}, RACES | HANGS, 0, false},
    {"the epoch before is enough", {{", -1;", 1, ", -2;"}}, WRONG | RACES | EARLY, 0, false},
    {"an epoch that does not wrap", {{"sub.s32", 1, "sub.sat.s32"}}, HANGS, INT32_MAX - 3u, false},
    {"one slot in place of two", {{0}}, WRONG | RACES, 0, true},
};

/* In which ways a bug shows, in a model; counts seeds for each. */
static int try_bug(const bug *b, gpu_model model, int counts[4]) {
  ptx_module *m = meet_module(b->edits);
  int shows = 0;
  for (int seed = 1; seed <= BUG_SEEDS; seed++) {
    const meet_setup setup = {.model = model,
                              .seed = (uint64_t)seed,
                              .ranks = 2 + seed % 3,
                              .threads = 32 * (1 + (uint32_t)seed % 3),
                              .epoch = b->epoch,
                              .one_slot = b->one_slot};
    const outcome o = run(m, &setup);
    const int now = (o.ended && !o.right ? WRONG : 0) | (o.races ? RACES : 0) |
                    (o.ended ? 0 : HANGS) | (o.early ? EARLY : 0);
    for (int i = 0; i < 4; i++)
      counts[i] += now >> i & 1;
    shows |= now;
  }
  ptx_free(m);
  return shows;
}

Test(ptx_meet, planted_bugs_are_found) {
  for (size_t i = 0; i < sizeof(bugs) / sizeof(*bugs); i++) {
    int weak[4] = {0}, races[4] = {0};
    const int shows = try_bug(&bugs[i], GPU_WEAK, weak) | try_bug(&bugs[i], GPU_RACES, races);
    cr_log_info(
        "%s: of %d seeds weak %d wrong, %d hang, %d early; watched %d races, %d hang, %d early",
        bugs[i].name, BUG_SEEDS, weak[0], weak[2], weak[3], races[1], races[2], races[3]);
    cr_expect_eq(shows & bugs[i].shows, bugs[i].shows, "%s: shows as %d, expected %d", bugs[i].name,
                 shows, bugs[i].shows);
  }
}

/* These show only when a rank is released. */
static const bug release_bugs[] = {
    {.name = "the host's word is not read", {{", 63;", 1, ", 0x7fffffff;"}}},
    {.name = "a release that is forgotten", {{"st.volatile.shared", 2, "//"}}},
    {.name = "a released rank comes again", {{"st.global.u32", 1, "//"}}},
    {.name = "no barrier at the beginning", {{"bar.sync", 1, "//"}, {", 63;", 1, ", 0;"}}},
};

Test(ptx_meet, planted_bugs_of_release_are_found) {
  for (size_t i = 0; i < sizeof(release_bugs) / sizeof(*release_bugs); i++) {
    ptx_module *m = meet_module(release_bugs[i].edits);
    int waits = 0, before = 0;
    for (uint64_t seed = 0; seed < BUG_SEEDS; seed++) {
      const meet_setup setup = {
          .model = GPU_WEAK, .seed = seed, .ranks = 3, .threads = 32, .epoch = 7, .absent = 1};
      waits += with_absent(m, &setup) != NULL;
    }
    for (uint64_t seed = 0; seed < 10 * BUG_SEEDS; seed++)
      before += released_before(m, seed) != NULL;
    cr_log_info("%s: of %d seeds %d that wait, of %d %d that are released before",
                release_bugs[i].name, BUG_SEEDS, waits, 10 * BUG_SEEDS, before);
    cr_expect(waits || before, "%s", release_bugs[i].name);
    ptx_free(m);
  }
}
