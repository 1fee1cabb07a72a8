/* test_scale.c: many ranks in one process, with the executor that real programs use. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "support_world.h"

#define LIMIT_NS (60 * COLLI_NS_PER_S)

/* One all-reduce on every rank. */
typedef struct scale {
  world world;
  size_t count;
  float **bufs;
  coll_request **requests;
  bool *started, *done;
  int failures;
} scale;

static bool act(void *ctx, int rank) {
  scale *s = ctx;
  if (s->done[rank])
    return false;
  if (!s->started[rank]) {
    s->started[rank] = true;
    coll_status status = coll_iallreduce(s->bufs[rank], s->bufs[rank], s->count, COLL_FLOAT32,
                                         COLL_SUM, s->world.comms[rank], &s->requests[rank]);
    s->failures += status != COLL_OK;
    s->done[rank] = status != COLL_OK;
    return true;
  }
  coll_status status = coll_test(&s->requests[rank]);
  if (status == COLL_IN_PROGRESS)
    return false;
  s->failures += status != COLL_OK;
  s->done[rank] = true;
  return true;
}

static bool done(void *ctx, int rank) {
  return ((scale *)ctx)->done[rank];
}

/* All-reduces `count` floats over `nranks` ranks and checks every rank's result. */
static void run(int nranks, size_t count, const char *algo) {
  world_config config = {.sim = {.seed = (uint64_t)nranks,
                                 .nranks = nranks,
                                 .alpha_ns = 5000,
                                 .jitter_ns = 2000,
                                 .ns_per_byte = 0.1,
                                 .pending = 20},
                         .transport = &sim_transport,
                         .slot_bytes = 4096,
                         .slot_count = 4,
                         .timeout_ms = 30000,
                         .algo = algo};
  size_t n = (size_t)nranks, bytes = count * sizeof(float);
  scale s = {.count = count,
             .bufs = calloc(n, sizeof(float *)),
             .requests = calloc(n, sizeof(coll_request *)),
             .started = calloc(n, sizeof(bool)),
             .done = calloc(n, sizeof(bool))};
  cr_assert(world_open(&s.world, &config));
  for (int rank = 0; rank < nranks; rank++) {
    s.bufs[rank] = malloc(bytes);
    data_fill(s.bufs[rank], count, COLL_FLOAT32, COLL_SUM, rank, 7);
  }
  float *want = malloc(bytes);
  data_reduce(want, count, COLL_FLOAT32, COLL_SUM, nranks, 7);
  cr_assert(world_run(&s.world, act, done, &s, LIMIT_NS));
  cr_assert_eq(s.failures, 0);
  for (int rank = 0; rank < nranks; rank++)
    cr_assert_eq(memcmp(s.bufs[rank], want, bytes), 0, "rank %d of %d, %zu elements", rank, nranks,
                 count);
  cr_log_info("%d ranks, %zu bytes: %.3f ms, %llu messages\n", nranks, bytes,
              (double)world_now(&s.world) / 1e6,
              (unsigned long long)sim_world_messages(s.world.sim));
  world_close(&s.world);
  for (int rank = 0; rank < nranks; rank++)
    free(s.bufs[rank]);
  free(want);
  free(s.bufs);
  free(s.requests);
  free(s.started);
  free(s.done);
}

Test(scale, ranks_256, .timeout = 120) {
  run(256, 1, NULL);
  run(256, 3001, NULL);
  run(256, 3001, "allreduce:ring");
  run(256, 3001, "allreduce:dbtree");
  run(256, 100, "allreduce:recdbl");
  run(512, 100, NULL);
}
