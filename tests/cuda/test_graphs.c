/* test_graphs.c: stream-ordered calls captured in CUDA graphs, launched between other calls. */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "tests/gpu/driver/extra.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

TestSuite(graphs, .timeout = 120);

enum { COUNT = 1000, LAUNCHES = 100 };
enum { LAUNCHES_ON_A_GPU = 2 }; /* a full stream of a GPU would hold the threads */

/* The program's side of graphs. */
typedef struct graphs {
#define GRAPHS_FIELD(field, name, suffix, version, arguments) colli_cu_result(*field) arguments;
  FAKE_CUDA_EXTRA(GRAPHS_FIELD)
#undef GRAPHS_FIELD
} graphs;

static graphs load_graphs(const colli_cuda *cuda) {
  graphs g;
#define GRAPHS_FIND(field, name, suffix, version, arguments)                                       \
  {                                                                                                \
    void *symbol = dlsym(cuda->handle, #name #suffix);                                             \
    cr_assert_not_null(symbol, #name);                                                             \
    memcpy(&g.field, &symbol, sizeof(symbol));                                                     \
  }
  FAKE_CUDA_EXTRA(GRAPHS_FIND)
#undef GRAPHS_FIND
  return g;
}

/* What a rank works with. */
typedef struct work {
  const colli_cuda *cuda;
  graphs g;
  colli_cu_stream stream;
  float *in, *out, *all; /* on the device */
  colli_cu_graph graph;
  colli_cu_graph_exec exec;
} work;

#define CUDA_OK(call) RANK_CHECK((call) == COLLI_CUDA_SUCCESS)

static int begin(work *w, coll_comm *comm, int rank, int nranks) {
  w->cuda = device_use(device_of_rank(rank));
  w->g = load_graphs(w->cuda);
  RANK_OK(device_share(comm));
  w->stream = device_stream();
  w->in = device_memory.take(COUNT * sizeof(float));
  w->out = device_memory.take(COUNT * sizeof(float));
  w->all = device_memory.take((size_t)nranks * COUNT * sizeof(float));
  return 0;
}

static int end(work *w, int rank) {
  CUDA_OK(w->g.graph_exec_destroy(w->exec));
  CUDA_OK(w->g.graph_destroy(w->graph));
  device_memory.give(w->in);
  device_memory.give(w->out);
  device_memory.give(w->all);
  device_stream_give(w->stream);
  return 0;
}

/* Captures an all-reduce, and after it a group of an all-gather and a broadcast. */
static int capture(work *w, coll_comm *comm, int rank) {
  CUDA_OK(w->g.stream_begin_capture(w->stream, COLLI_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  RANK_OK(coll_allreduce_on_stream(w->in, w->out, COUNT, COLL_FLOAT32, COLL_SUM, comm, w->stream));
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_allgather_on_stream(w->in, w->all, COUNT, COLL_FLOAT32, comm, w->stream));
  RANK_OK(coll_broadcast_on_stream(w->in, w->in, 1, COLL_FLOAT32, 0, comm, w->stream));
  RANK_OK(coll_group_end(comm));
  CUDA_OK(w->g.stream_end_capture(w->stream, &w->graph));
  CUDA_OK(w->g.graph_instantiate(&w->exec, w->graph, 0));
  return 0;
}

/* Sets the input, in the stream. */
static int set_input(const work *w, float *host, int rank, int turn) {
  for (int i = 0; i < COUNT; i++)
    host[i] = (float)(rank + 1 + turn + i);
  CUDA_OK(w->cuda->memcpy_htod_async((colli_cu_deviceptr)w->in, host, COUNT * sizeof(float),
                                     w->stream));
  CUDA_OK(w->cuda->stream_synchronize(w->stream));
  return 0;
}

/* Checks the result of a launch, or of an all-reduce without a graph. */
static int check(const work *w, int rank, int nranks, int turn, bool launched) {
  static _Thread_local float out[COUNT], all[COUNT * 8];
  device_memory.read(out, w->out, sizeof(out));
  device_memory.read(all, w->all, (size_t)nranks * COUNT * sizeof(float));
  for (int i = 0; i < COUNT; i++) {
    const int sum = nranks * (nranks + 1) / 2 + nranks * (turn + i);
    RANK_CHECK(out[i] == (float)sum);
    for (int r = 0; launched && r < nranks; r++)
      RANK_CHECK(all[r * COUNT + i] == (float)(r + 1 + turn + i));
  }
  return 0;
}

static int launch_between_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  static _Thread_local float host[COUNT];
  work w;
  (void)arg;
  if (begin(&w, comm, rank, nranks) != 0 || capture(&w, comm, rank) != 0)
    return 1;
  for (int turn = 0; turn < extent(30, LAUNCHES, 12); turn++) {
    const bool launches = turn % 3 != 2;
    if (set_input(&w, host, rank, turn) != 0)
      return 1;
    if (launches)
      CUDA_OK(w.g.graph_launch(w.exec, w.stream));
    else
      RANK_OK(coll_allreduce_on_stream(w.in, w.out, COUNT, COLL_FLOAT32, COLL_SUM, comm, w.stream));
    CUDA_OK(w.cuda->stream_synchronize(w.stream));
    RANK_OK(coll_comm_async_error(comm));
    if (check(&w, rank, nranks, turn, launches) != 0)
      return 1;
  }
  return end(&w, rank);
}

Test(graphs, launched_between_calls) {
  device_use(0);
  EACH_MODE(i, 0, MODE_MEET)
    for (int nranks = 1; nranks <= 5; nranks++)
      cr_assert_eq(run_threads(nranks, NULL, launch_between_calls, NULL), 0, "%d ranks, %s", nranks,
                   device_mode(i));
}

/* Many launches at once, without a word between them; and a graph that is launched when its
 * communicator is gone: it ends. */
static int launch_many(coll_comm *comm, int rank, int nranks, void *arg) {
  static _Thread_local float host[COUNT];
  coll_comm *child;
  work w;
  (void)arg;
  device_may_leak();
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  if (begin(&w, child, rank, nranks) != 0 || capture(&w, child, rank) != 0 ||
      set_input(&w, host, rank, 0) != 0)
    return 1;
  for (int i = 0; i < (device_is_real() ? LAUNCHES_ON_A_GPU : LAUNCHES); i++)
    CUDA_OK(w.g.graph_launch(w.exec, w.stream));
  CUDA_OK(w.cuda->stream_synchronize(w.stream));
  RANK_OK(coll_comm_async_error(child));
  RANK_OK(coll_barrier(comm));
  child->watch.timeout_ns = COLLI_NS_PER_MS; /* the graph will not be gone */
  RANK_OK(coll_comm_destroy(&child));
  CUDA_OK(w.g.graph_launch(w.exec, w.stream));
  CUDA_OK(w.cuda->stream_synchronize(w.stream));
  return end(&w, rank);
}

Test(graphs, launched_many_times) {
  device_use(0);
  device_may_leak();
  EACH_MODE(i, 0, MODE_MEET)
    cr_assert_eq(run_threads(3, NULL, launch_many, NULL), 0, "%s", device_mode(i));
}

/* ---- a driver that says late that a graph is gone -------------------------------------------- */

/* What ranks and the driver know of each other. */
typedef struct late_scene {
  int others;       /* ranks but rank 0 */
  atomic_int ended; /* of them: their communicator has */
  atomic_int told;  /* how often the driver has told rank 0 that a graph is gone */
} late_scene;

/* What the driver would call. */
typedef struct late {
  colli_cu_host_fn destroy;
  void *argument;
  late_scene *scene;
} late;

static __typeof__(((colli_cuda *)0)->user_object_create) create_at_once;
static _Thread_local late_scene *own_scene;

/* A thread of the driver: others have waited a second for rank 0 if they look into its memory. */
static void *tell_late(void *arg) {
  late *it = arg;
  if (!WAIT_UNTIL(atomic_load(&it->scene->ended) == it->scene->others, slow_s(20)))
    abort();
  atomic_fetch_add(&it->scene->told, 1);
  it->destroy(it->argument);
  free(it);
  return NULL;
}

static void begin_to_tell(void *arg) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, tell_late, arg) != 0 || pthread_detach(thread) != 0)
    abort();
}

/* cuUserObjectCreate() */
static colli_cu_result create_late(colli_cu_user_object *handle, void *argument,
                                   colli_cu_host_fn destroy, unsigned references, unsigned flags) {
  late *it = malloc(sizeof(*it));
  if (!it)
    abort();
  *it = (late){destroy, argument, own_scene};
  return create_at_once(handle, it, begin_to_tell, references, flags);
}

/* Rank 0's communicator does not end before its graphs are gone. */
static int destroy_graphs(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child;
  work w;
  own_scene = arg;
  device_may_leak(); /* what rank 0 might have looked into */
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  if (begin(&w, child, rank, nranks) != 0)
    return 1;
  if (rank == 0)
    comm->family->gpu->cuda.user_object_create = create_late;
  if (capture(&w, child, rank) != 0)
    return 1;
  const int captured = child->streams->captured;
  RANK_CHECK(captured > 0 && end(&w, rank) == 0);
  RANK_OK(coll_comm_destroy(&child));
  if (rank > 0)
    atomic_fetch_add(&own_scene->ended, 1);
  else
    RANK_CHECK(atomic_load(&own_scene->told) == captured);
  return 0;
}

Test(graphs, gone_late) {
  const colli_cuda *cuda = device_use(0);
  create_at_once = cuda->user_object_create;
  device_may_leak();
  EACH_MODE(i, 0, MODE_MEET) {
    late_scene s = {.others = 2};
    cr_assert_eq(run_threads(3, NULL, destroy_graphs, &s), 0, "%s", device_mode(i));
  }
}
