/*
 * test_direct_streams.c: calls in the memory of (fake) GPUs, in several rounds each, of several
 * streams and communicators at once, eager and in graphs. Functions of the streams write the inputs
 * and check the results, so that no rank waits for anything until the end.
 */
#include <criterion/criterion.h>
#include <stdlib.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { COUNT = 2501, LANES = 3, GRAPHS = 2, STEPS = 40, MOST_RANKS = 5 };

TestSuite(direct_streams, .timeout = 120);

typedef enum kind { ALLREDUCE, SCAN, BROADCAST, ALLGATHER, REDUCE_SCATTER, ALLTOALL, KINDS } kind;

/* A stream of a rank, with memory and graphs of its own. */
typedef struct lane {
  colli_cu_stream stream;
  uint32_t *in, *out; /* MOST_RANKS blocks each */
  device_view in_view, out_view;
  device_graph graph[GRAPHS];
} lane;

/* One call: the same on all ranks. */
typedef struct step {
  struct worker *w;
  const lane *at;
  kind what;
  int root;
  size_t count;
  uint32_t number;
} step;

/* A rank on a communicator. */
typedef struct worker {
  coll_comm *comm;
  int rank, nranks;
  bool graphs; /* some of the calls are in graphs */
  bool waits;  /* the rank waits for its streams now and then */
  colli_prng common, own;
  lane lanes[LANES];
  step steps[STEPS];
  int made; /* how many of them */
  const lane *last;
  bool launched; /* the last one was a graph */
  atomic_int checked, wrong;
} worker;

/* Element i of a rank's input. */
static uint32_t input(const step *s, int rank, size_t i) {
  return s->number * 1000003u + (uint32_t)rank * 7919u + (uint32_t)i;
}

/* Element i of block b of the result. */
static uint32_t result(const step *s, int b, size_t i) {
  const worker *w = s->w;
  const size_t own = (size_t)w->rank * s->count + i;
  uint32_t sum = 0;
  switch (s->what) {
  case BROADCAST:
    return input(s, s->root, i);
  case ALLGATHER:
    return input(s, b, i);
  case ALLTOALL:
    return input(s, b, own);
  default:
    for (int r = 0; r < (s->what == SCAN ? w->rank + 1 : w->nranks); r++)
      sum += input(s, r, s->what == REDUCE_SCATTER ? own : i);
    return sum;
  }
}

/* Writes the input, in the stream. */
static void write_input(void *arg) {
  const step *s = arg;
  const size_t blocks = s->what >= REDUCE_SCATTER ? (size_t)s->w->nranks : 1;
  uint32_t *seen = (uint32_t *)(void *)s->at->in_view.seen;
  for (size_t i = 0; i < blocks * s->count; i++)
    seen[i] = input(s, s->w->rank, i);
}

/* Checks the result, in the stream. */
static void check_result(void *arg) {
  const step *s = arg;
  const int blocks = s->what == ALLGATHER || s->what == ALLTOALL ? s->w->nranks : 1;
  const uint32_t *seen = (const uint32_t *)(const void *)s->at->out_view.seen;
  size_t wrong = 0;
  for (int b = 0; b < blocks; b++)
    for (size_t i = 0; i < s->count; i++)
      wrong += seen[(size_t)b * s->count + i] != result(s, b, i);
  if (wrong > 0)
    fprintf(stderr, "rank %d: step %u, kind %d: %zu wrong\n", s->w->rank, s->number, s->what,
            wrong);
  atomic_fetch_add(&s->w->wrong, wrong > 0);
  atomic_fetch_add(&s->w->checked, 1);
}

/* Makes the call. */
static coll_status call(const step *s) {
  coll_comm *comm = s->w->comm;
  const uint32_t *in = s->at->in;
  uint32_t *out = s->at->out;
  void *stream = s->at->stream;
  switch (s->what) {
  case ALLREDUCE:
    return coll_allreduce_on_stream(in, out, s->count, COLL_UINT32, COLL_SUM, comm, stream);
  case SCAN:
    return coll_scan_on_stream(in, out, s->count, COLL_UINT32, COLL_SUM, comm, stream);
  case BROADCAST:
    return coll_broadcast_on_stream(in, out, s->count, COLL_UINT32, s->root, comm, stream);
  case ALLGATHER:
    return coll_allgather_on_stream(in, out, s->count, COLL_UINT32, comm, stream);
  case REDUCE_SCATTER:
    return coll_reduce_scatter_on_stream(in, out, s->count, COLL_UINT32, COLL_SUM, comm, stream);
  default:
    return coll_alltoall_on_stream(in, out, s->count, COLL_UINT32, comm, stream);
  }
}

/* What is in a lane's graph. */
static step graph_step(worker *w, const lane *at, int graph) {
  const int which = (int)(at - w->lanes) * GRAPHS + graph;
  return (step){.w = w,
                .at = at,
                .what = (kind)(which % KINDS),
                .root = which % w->nranks,
                .count = COUNT - (size_t)which};
}

/* Captures one call in each graph. */
static int make_graphs(worker *w) {
  coll_comm *comm = w->comm;
  const int rank = w->rank;
  for (int i = 0; i < LANES * GRAPHS; i++) {
    lane *at = &w->lanes[i / GRAPHS];
    const step s = graph_step(w, at, i % GRAPHS);
    device_capture(at->stream);
    RANK_OK(call(&s));
    at->graph[i % GRAPHS] = device_capture_end(at->stream);
  }
  return 0;
}

/* Makes a rank's streams, its memory and its graphs. */
static int begin(worker *w, coll_comm *comm, int rank, int nranks, bool graphs, uint64_t seed) {
  w->comm = comm;
  w->rank = rank;
  w->nranks = nranks;
  w->graphs = graphs;
  w->common = (colli_prng){seed};
  w->own = (colli_prng){seed * 64 + 1 + (uint64_t)rank};
  RANK_OK(device_share(comm));
  for (int i = 0; i < LANES; i++) {
    lane *at = &w->lanes[i];
    const size_t bytes = (size_t)nranks * COUNT * sizeof(uint32_t);
    at->stream = device_stream();
    at->in = device_memory.take(bytes);
    at->out = device_memory.take(bytes);
    at->in_view = device_look(at->in, bytes);
    at->out_view = device_look(at->out, bytes);
  }
  return graphs ? make_graphs(w) : 0;
}

/* Waits for a rank's streams. */
static void await_all(const worker *w) {
  for (int i = 0; i < LANES; i++)
    device_await(w->lanes[i].stream);
}

/* Puts the next call into a stream. Calls in graphs come in one order on all ranks only if streams
 * wait for each other. */
static int go_on(worker *w) {
  coll_comm *comm = w->comm;
  const int rank = w->rank;
  const lane *at = &w->lanes[colli_prng_next(&w->common) % LANES];
  const bool launches = w->graphs && colli_prng_next(&w->common) % 2;
  const int graph = (int)(colli_prng_next(&w->common) % GRAPHS);
  step *s = &w->steps[w->made];
  *s = graph_step(w, at, graph);
  if (!launches) {
    s->what = (kind)(colli_prng_next(&w->common) % KINDS);
    s->root = (int)(colli_prng_next(&w->common) % (uint64_t)w->nranks);
    s->count = colli_prng_next(&w->common) % COUNT;
  }
  s->number = (uint32_t)++w->made;
  if (w->waits && colli_prng_next(&w->own) % 16 == 0) /* each rank at other times */
    await_all(w);
  if (w->last && (launches || w->launched))
    device_follow(at->stream, w->last->stream);
  device_call(at->stream, write_input, s);
  device_push(&at->in_view, at->stream);
  if (launches)
    device_launch(&at->graph[graph], at->stream);
  else
    RANK_OK(call(s));
  device_pull(&at->out_view, at->stream);
  device_call(at->stream, check_result, s);
  w->last = at;
  w->launched = launches;
  return 0;
}

/* Ends a rank's part. */
static int end(worker *w) {
  coll_comm *comm = w->comm;
  const int rank = w->rank;
  await_all(w);
  RANK_OK(coll_comm_async_error(comm));
  RANK_CHECK(atomic_load(&w->wrong) == 0 && atomic_load(&w->checked) == w->made);
  for (int i = 0; i < LANES; i++) {
    device_memory.give(w->lanes[i].in);
    device_memory.give(w->lanes[i].out);
    for (int g = 0; w->graphs && g < GRAPHS; g++)
      device_graph_free(&w->lanes[i].graph[g]);
  }
  return 0;
}

/* What ranks do. */
typedef struct plan {
  uint64_t seed;
  bool graphs;
} plan;

/* One communicator. */
static int use_one(coll_comm *comm, int rank, int nranks, void *arg) {
  const plan *p = arg;
  worker *w = calloc(1, sizeof(*w));
  device_use(device_of_rank(rank));
  RANK_CHECK(begin(w, comm, rank, nranks, p->graphs, p->seed) == 0);
  w->waits = true; /* with two, ranks could wait for each other */
  while (w->made < STEPS)
    RANK_CHECK(go_on(w) == 0);
  RANK_CHECK(end(w) == 0);
  free(w);
  return 0;
}

/* Two, whose calls follow each other in another order on each rank. */
static int use_two(coll_comm *comm, int rank, int nranks, void *arg) {
  const plan *p = arg;
  coll_comm *comms[2] = {comm, NULL};
  worker *w = calloc(2, sizeof(*w));
  device_use(device_of_rank(rank));
  RANK_OK(coll_comm_dup(comm, NULL, &comms[1]));
  for (int i = 0; i < 2; i++)
    RANK_CHECK(begin(&w[i], comms[i], rank, nranks, p->graphs, p->seed + (uint64_t)i) == 0);
  while (w[0].made < STEPS || w[1].made < STEPS) {
    const unsigned first = colli_prng_next(&w[0].own) % 2;
    RANK_CHECK(go_on(&w[w[first].made < STEPS ? first : 1 - first]) == 0);
  }
  for (int i = 0; i < 2; i++)
    RANK_CHECK(end(&w[i]) == 0);
  RANK_OK(coll_comm_destroy(&comms[1]));
  free(w);
  return 0;
}

/* Goes through seeds, in modes up to the last. */
static void run(rank_fn fn, bool graphs, int last) {
  const int seeds = extent(2, 2, 1);
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_use(0);
  EACH_MODE(mode, 0, last)
    for (int seed = 1; seed <= (mode ? seeds : 1); seed++) {
      plan p = {(uint64_t)seed, graphs};
      const int nranks = 2 + (seed + mode) % (MOST_RANKS - 1);
      cr_assert_eq(run_threads(nranks, NULL, fn, &p), 0, "%s, seed %d", device_mode(mode), seed);
    }
}

Test(direct_streams, interleaved) {
  run(use_one, false, MODE_MEET);
}

Test(direct_streams, graphs_and_eager) {
  run(use_one, true, MODE_MEET);
}

Test(direct_streams, two_communicators) {
  /* With MEET, ranks' calls would wait for each other. */
  run(use_two, false, MODE_SPIN);
}
