/*
 * alltoall_direct.c: every rank sends all its blocks at once and then receives all of the others'.
 *
 * Cost: alpha + (n-1) m beta for blocks of m bytes. Wins for short blocks: the latency is paid
 * once. Long ones arrive in any order and may congest links; pairwise serves one partner at a time.
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
#include "libcoll/algo/timeline.h"

static coll_status direct_emit(const colli_shape *shape, colli_sched **sched) {
  int n = shape->nranks, rank = shape->rank;
  colli_builder *builder = colli_builder_create(shape, n, 0, 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  for (int k = 1; k < n; k++) {
    int to = (rank + k) % n;
    colli_emit(builder, 0, COLLI_SEND, (colli_way){COLLI_NOBODY, to, COLLI_INPUT, COLLI_INPUT}, to);
  }
  if (!shape->in_place)
    colli_emit_own(builder, shape); /* while the messages are under way */
  for (int k = 1; k < n; k++) {
    int from = (rank + n - k) % n;
    colli_emit(builder, 0, COLLI_RECV | COLLI_STORE,
               (colli_way){from, COLLI_NOBODY, COLLI_OUTPUT, COLLI_OUTPUT}, from);
  }
  return colli_builder_finish(builder, sched);
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
