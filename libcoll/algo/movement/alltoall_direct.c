/*
 * alltoall_direct.c: every rank sends all its blocks at once and then receives all of the others'.
 *
 *   direct        Cost: alpha + (n-1) m beta for blocks of m bytes. Wins for short blocks: the
 *                 latency is paid once. Long ones arrive in any order and may congest links;
 *                 pairwise serves one partner at a time. Of blocks that take several passes, each
 *                 pass waits for what the one before it receives.
 *   direct_sites  the same with lanes for each way, so that no pass waits. Wins for long blocks
 *                 between sites: a line with a long latency is full. It needs two
 *                 connections for each pair of ranks.
 *
 * Source: folklore; "linear" in Thakur, Rabenseifner and Gropp 2005.
 *
 * 5 ranks: one round, 20 messages; rank 2 for example:
 *
 *     0 --.           .--> 3
 *     1 --+--> 2      +--> 4
 *     3 --+      2 ---+--> 0
 *     4 --'           '--> 1
 *
 * Works in place too: the block from a rank replaces the block that was sent to it.
 */
#include "libcoll/algo/distance.h"
#include "libcoll/algo/replay.h"
#include "libcoll/algo/timeline.h"

/*
 * The lane of a message, of 2 * bits: the lowest bit in which the two ranks differ chooses two
 * lanes, and the sender's value of it one of these. So in each lane a rank either only sends or
 * only receives; but ranks that differ only in higher bits share the last two lanes.
 */
static int lane_of(int from, int to, int bits) {
  const int lowest = __builtin_ctz((unsigned)(from ^ to));
  return 2 * (lowest < bits ? lowest : bits - 1) + (from >> lowest & 1);
}

/* Emits a schedule with lanes for each way and each of the lowest bits of ranks; 0: with one lane.
 * In place, a block of another lane is stored when the one that was there has been sent. */
static coll_status emit_lanes(const colli_shape *shape, int bits, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank, sent = -1;
  colli_builder *builder = colli_builder_create(shape, n, 0, bits ? 2 * bits : 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  for (int k = 1; k < n; k++) {
    const int to = (rank + k) % n, lane = bits ? lane_of(rank, to, bits) : 0;
    const colli_way out = {COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT};
    const int handle = colli_emit(builder, lane, COLLI_SEND, out, to);
    sent = k == 1 ? handle : sent;
  }
  if (!shape->in_place)
    colli_emit_own(builder, shape); /* while the messages are under way */
  for (int k = 1; k < n; k++) {
    const int from = (rank + n - k) % n, lane = bits ? lane_of(from, rank, bits) : 0;
    const colli_way in = {from, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT};
    const int got = colli_emit(builder, lane, COLLI_RECV | COLLI_STORE, in, from);
    if (bits && shape->in_place)
      colli_builder_dep(builder, got, sent + n - k - 1);
  }
  return colli_builder_finish(builder, sched);
}

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  return emit_lanes(shape, 0, sched);
}

static coll_status sites_emit(const colli_shape *shape, colli_sched **sched) {
  const int bits = colli_log2_up(shape->nranks), most = COLLI_MAX_LANES / 2;
  return emit_lanes(shape, bits < most ? bits : most, sched);
}

/* One pass of any rank. */
static void direct_pass(colli_timeline *at, const colli_shape *shape, const void *ctx) {
  (void)ctx;
  int peers = shape->nranks - 1;
  colli_timeline sender = *at;
  for (int k = 0; k < peers; k++)
    colli_timeline_send(at);
  if (!shape->in_place)
    colli_timeline_copy(at);
  for (int k = 0; k < peers; k++)
    colli_timeline_receive(at, colli_timeline_send(&sender));
}

static double direct_cost(const colli_shape *shape, const colli_partition *partition,
                          size_t elem_bytes, const colli_model *model) {
  double peers = shape->nranks - 1, copies = shape->in_place ? 0 : 1;
  colli_work work = {.steps = 2 * peers + copies, .received = peers, .waits = 1, .reduced = copies};
  return colli_timeline_cost(shape, partition, elem_bytes, model, work, direct_pass, NULL);
}

const colli_algo colli_alltoall_direct = {
    .name = "direct",
    .id = 71,
    .coll = COLLI_ALLTOALL,
    .when = "short blocks: one round, everybody to everybody",
    .source = "folklore; see Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .pipelined = false,
    .exchanges = true,
    .reach = COLLI_REACH_ALL,
    .nchunks = colli_nchunks_blocks,
    .emit = direct_emit,
    .cost = direct_cost,
};

/* By a replay where ranks are few; else each rank sends all the time, over links whose average is
 * that of direct. */
static double sites_cost(const colli_shape *shape, const colli_partition *partition,
                         size_t elem_bytes, const colli_model *model) {
  const double replayed = colli_replay_cost(sites_emit, shape, partition, elem_bytes, model);
  if (replayed >= 0)
    return replayed;
  const colli_model links =
      colli_algo_model(&colli_alltoall_direct, shape, partition, elem_bytes, model);
  const colli_terms t = colli_terms_make(partition, elem_bytes, &links);
  const double peers = shape->nranks - 1, copies = shape->in_place ? 0 : 1;
  const double work = 2 * links.step_ns, link = t.copy_hop - links.step_ns - links.alpha_ns;
  const double slice = peers * (work > link ? work : link) + copies * t.work_reduce;
  const colli_work all = {
      .steps = 2 * peers + copies, .received = peers, .waits = 1, .reduced = copies};
  return colli_cost_bound(links.alpha_ns + t.filled * t.passes * t.slices * slice, all, &t, &links);
}

const colli_algo colli_alltoall_direct_sites = {
    .name = "direct_sites",
    .id = 154,
    .coll = COLLI_ALLTOALL,
    .ranks_max = 256, /* of the 1,024 descriptors that a process usually may have, it needs two for
                       * each other rank */
    .when = "long blocks between sites: the line is full, however long its latency is",
    .source = "folklore; see Thakur, Rabenseifner and Gropp 2005",
    .orders = COLLI_GIVES_ANY,
    .varying = true,
    .exchanges = true,
    .groups = true,
    .sites = true,
    .nchunks = colli_nchunks_blocks,
    .emit = sites_emit,
    .cost = sites_cost,
};
