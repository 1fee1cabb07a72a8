/*
 * ucc.c: the operations of UCC, timed as coll_perf times; peer.h has the command line and the
 * method. MPI starts the ranks and lets them find each other, and nothing else. To build:
 * mpicc.openmpi -O2 ucc.c $(pkg-config --cflags --libs ucc); to start: mpirun.openmpi.
 */
#include <limits.h>
#include <mpi.h>
#include <sched.h>
#include <ucc/api/ucc.h>
#include <unistd.h>

#include "peer.h"

/* A UCC team of all ranks. */
typedef struct world {
  ucc_lib_h lib;
  ucc_context_h context;
  ucc_team_h team;
  int rank, nranks;
  bool yields; /* there are more ranks than processors, so who waits hands its own over */
} world;

/* Ends all ranks if a call has failed. */
static void check(ucc_status_t status, const char *call) {
  if (status == UCC_OK || status == UCC_INPROGRESS)
    return;
  fprintf(stderr, "ucc: %s: %s\n", call, ucc_status_string(status));
  MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Lets UCC work while a rank waits. */
static void progress(const world *w) {
  ucc_context_progress(w->context);
  if (w->yields)
    sched_yield();
}

/* ---- how UCC's ranks find each other --------------------------------------------------------- */

/* Begins to gather what all ranks give. */
static ucc_status_t gather_begin(void *mine, void *all, size_t bytes, void *info, void **request) {
  (void)info;
  MPI_Request *pending = malloc(sizeof(*pending));
  if (!pending)
    return UCC_ERR_NO_MEMORY;
  MPI_Iallgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD, pending);
  *request = pending;
  return UCC_OK;
}

/* Whether all have given it. */
static ucc_status_t gather_test(void *request) {
  int done = 0;
  MPI_Test(request, &done, MPI_STATUS_IGNORE);
  return done ? UCC_OK : UCC_INPROGRESS;
}

static ucc_status_t gather_end(void *request) {
  free(request);
  return UCC_OK;
}

/* Makes the team. */
static void connect_all(world *w) {
  const ucc_oob_coll_t meeting = {.allgather = gather_begin,
                                  .req_test = gather_test,
                                  .req_free = gather_end,
                                  .n_oob_eps = (uint32_t)w->nranks,
                                  .oob_ep = (uint32_t)w->rank};
  const ucc_lib_params_t lib = {.mask = UCC_LIB_PARAM_FIELD_THREAD_MODE,
                                .thread_mode = UCC_THREAD_SINGLE};
  const ucc_context_params_t context = {.mask = UCC_CONTEXT_PARAM_FIELD_OOB, .oob = meeting};
  const ucc_team_params_t team = {.mask = UCC_TEAM_PARAM_FIELD_OOB | UCC_TEAM_PARAM_FIELD_EP |
                                          UCC_TEAM_PARAM_FIELD_EP_RANGE,
                                  .oob = meeting,
                                  .ep = (uint64_t)w->rank,
                                  .ep_range = UCC_COLLECTIVE_EP_RANGE_CONTIG};
  ucc_lib_config_h lib_config;
  ucc_context_config_h context_config;
  check(ucc_lib_config_read(NULL, NULL, &lib_config), "ucc_lib_config_read");
  check(ucc_init(&lib, lib_config, &w->lib), "ucc_init");
  ucc_lib_config_release(lib_config);
  check(ucc_context_config_read(w->lib, NULL, &context_config), "ucc_context_config_read");
  check(ucc_context_create(w->lib, &context, context_config, &w->context), "ucc_context_create");
  ucc_context_config_release(context_config);
  check(ucc_team_create_post(&w->context, 1, &team, &w->team), "ucc_team_create_post");
  ucc_status_t status;
  while ((status = ucc_team_create_test(w->team)) == UCC_INPROGRESS)
    progress(w);
  check(status, "ucc_team_create_test");
}

/* Ends the team. */
static void disconnect(world *w) {
  ucc_status_t status;
  while ((status = ucc_team_destroy(w->team)) == UCC_INPROGRESS)
    progress(w);
  check(status, "ucc_team_destroy");
  check(ucc_context_destroy(w->context), "ucc_context_destroy");
  check(ucc_finalize(w->lib), "ucc_finalize");
}

/* ---- operations ------------------------------------------------------------------------------ */

/* UCC 1.8 has scatterv only. */
static const char *lacks(peer_what what, void *context) {
  (void)context;
  return what == PEER_SCATTER ? "it has none over UCX" : NULL;
}

/* UCC takes buffers with each call. */
static void open_cell(const peer_cell *cell, void *context) {
  (void)cell;
  (void)context;
}

/* Starts an operation and waits for its end. */
static void run_to_end(const world *w, ucc_coll_args_t *args) {
  ucc_coll_req_h request;
  check(ucc_collective_init(args, &request, w->team), "ucc_collective_init");
  check(ucc_collective_post(request), "ucc_collective_post");
  ucc_status_t status;
  while ((status = ucc_collective_test(request)) == UCC_INPROGRESS)
    progress(w);
  check(status, "ucc_collective_test");
  ucc_collective_finalize(request);
}

/* Runs one operation. Counts of buffers with a block for each rank are those of all blocks. */
static void run_collective(const peer_cell *cell, int root, void *context) {
  static const ucc_coll_type_t types[PEER_WHAT_COUNT] = {
      UCC_COLL_TYPE_ALLREDUCE, UCC_COLL_TYPE_BCAST,          UCC_COLL_TYPE_REDUCE,
      UCC_COLL_TYPE_ALLGATHER, UCC_COLL_TYPE_REDUCE_SCATTER, UCC_COLL_TYPE_ALLTOALL,
      UCC_COLL_TYPE_GATHER,    UCC_COLL_TYPE_SCATTER,        UCC_COLL_TYPE_BARRIER};
  const ucc_coll_buffer_info_t none = {.datatype = UCC_DT_FLOAT32,
                                       .mem_type = UCC_MEMORY_TYPE_HOST};
  ucc_coll_args_t args = {.coll_type = types[cell->what], .op = UCC_OP_SUM, .root = (uint64_t)root};
  args.src.info = args.dst.info = none;
  args.src.info.buffer = cell->send;
  args.src.info.count = cell->nsend;
  args.dst.info.buffer = cell->recv;
  args.dst.info.count = cell->nrecv;
  if (cell->what == PEER_BROADCAST && cell->rank != root) /* in place: UCC knows no other */
    args.src.info.buffer = cell->recv;
  run_to_end(context, &args);
}

static void barrier(void *context) {
  ucc_coll_args_t args = {.coll_type = UCC_COLL_TYPE_BARRIER};
  run_to_end(context, &args);
}

/* The largest of all ranks' numbers. */
static double maximum(double mine, void *context) {
  double all = 0;
  ucc_coll_args_t args = {.coll_type = UCC_COLL_TYPE_ALLREDUCE, .op = UCC_OP_MAX};
  args.src.info = (ucc_coll_buffer_info_t){
      .buffer = &mine, .count = 1, .datatype = UCC_DT_FLOAT64, .mem_type = UCC_MEMORY_TYPE_HOST};
  args.dst.info = args.src.info;
  args.dst.info.buffer = &all;
  run_to_end(context, &args);
  return all;
}

int main(int argc, char **argv) {
  MPI_Init(&argc, &argv);
  world w = {0};
  MPI_Comm_rank(MPI_COMM_WORLD, &w.rank);
  MPI_Comm_size(MPI_COMM_WORLD, &w.nranks);
  w.yields = w.nranks > sysconf(_SC_NPROCESSORS_ONLN);
  connect_all(&w);
  const peer_library library = {.name = "ucc",
                                .context = &w,
                                .rank = w.rank,
                                .nranks = w.nranks,
                                .max_count = INT_MAX,
                                .lacks = lacks,
                                .open = open_cell,
                                .run = run_collective,
                                .barrier = barrier,
                                .maximum = maximum};
  const int failed = peer_main(&library, argc, argv);
  disconnect(&w);
  MPI_Finalize();
  return failed;
}
