/*
 * test_faults.c: a program in which one call of the driver fails, each in turn: the library says
 * so, or goes on with the right results; no rank hangs, and everything is given back. Calls in
 * streams are staged, or stay in GPU memory unless the failing call is one that prepares that.
 */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum {
  RANKS = 2,
  COUNT = 5000,
  MOST_CALLS = 300,
  MOST_CALLS_DIRECT = 700,
  GRANULE = 2 << 20,
  LIMIT_S = 40,
  NEVER = 1000000
};

/* The calls before this one are those that open the driver. If one fails, there is none for the
 * communicator, which takes all memory for the host's. */
enum { FIRST = 4 };

TestSuite(faults, .timeout = 400);

/* What ranks share. */
typedef struct scene {
  int fail; /* which call of rank 0's driver */
  bool direct;
  int shared[RANKS]; /* what coll_comm_use_gpu() gave; -1: it was not called */
  coll_id id;
  coll_error errors[RANKS];
  atomic_int ended; /* programs without an error */
} scene;

/* The program of a rank. */
typedef struct program {
  coll_comm *comm;
  int rank;
  coll_status status; /* of the first call of the library that failed */
  bool failed;        /* a call of the driver that the program made itself failed */
  colli_cuda cuda;
  colli_cu_stream stream;
  int32_t *memory[3], *result[3];
  colli_cu_deviceptr reserved, mapped; /* addresses, and how many bytes of them have memory */
} program;

/* Makes the driver ready, and memory. */
static void prepare(program *p) {
  const colli_cuda *cuda = &p->cuda;
  colli_cu_context context;
  coll_error error = COLL_ERROR_INIT;
  p->failed = colli_cuda_load(&p->cuda, COLL_PLUGINS "/fake_gpu.so", &error) != COLL_OK;
  p->failed = p->failed || cuda->primary_ctx_retain(&context, p->rank) != COLLI_CUDA_SUCCESS ||
              cuda->ctx_set_current(context) != COLLI_CUDA_SUCCESS ||
              cuda->stream_create(&p->stream, COLLI_CU_STREAM_NON_BLOCKING, 0);
  for (int i = 0; i < 3 && !p->failed; i++) {
    colli_cu_deviceptr at = 0;
    p->failed = cuda->mem_alloc(&at, COUNT * sizeof(int32_t)) != COLLI_CUDA_SUCCESS;
    p->memory[i] = (int32_t *)at;
    if (!p->failed)
      p->failed = cuda->memset_d32_async(at, 1, COUNT, p->stream) != COLLI_CUDA_SUCCESS;
  }
  p->failed = p->failed || cuda->stream_synchronize(p->stream) != COLLI_CUDA_SUCCESS;
}

/* Maps two allocations, one behind the other. */
static void map_memory(program *p) {
  const colli_cuda *cuda = &p->cuda;
  const colli_cu_allocation_prop prop = {.type = COLLI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requested_handle_types =
                                             COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                         .location = {COLLI_CU_MEM_LOCATION_TYPE_DEVICE, p->rank}};
  const colli_cu_access access = {prop.location, COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  if (!p->failed)
    p->failed = cuda->mem_address_reserve(&p->reserved, 2 * GRANULE, 0, 0, 0) != COLLI_CUDA_SUCCESS;
  for (int i = 0; i < 2 && !p->failed; i++) {
    colli_cu_allocation it;
    p->failed = cuda->mem_create(&it, GRANULE, &prop, 0) != COLLI_CUDA_SUCCESS;
    if (p->failed)
      return;
    p->failed = cuda->mem_map(p->reserved + p->mapped, GRANULE, 0, it, 0) != COLLI_CUDA_SUCCESS;
    if (!p->failed)
      p->mapped += GRANULE;
    if (cuda->mem_release(it) != COLLI_CUDA_SUCCESS)
      p->failed = true;
  }
  if (!p->failed)
    p->failed = cuda->mem_set_access(p->reserved, p->mapped, &access, 1) != COLLI_CUDA_SUCCESS;
}

/* Makes a call of the library unless something has failed. */
#define TRY(p, call)                                                                               \
  do {                                                                                             \
    if ((p)->status == COLL_OK && !(p)->failed)                                                    \
      (p)->status = (call);                                                                        \
  } while (0)

/* Shares GPU memory, or not. */
static coll_status share(program *p, scene *s) {
  const coll_status status = coll_comm_use_gpu(p->comm);
  s->shared[p->rank] = (int)status;
  return status == COLL_ERR_UNSUPPORTED ? COLL_OK : status;
}

/* Calls of all kinds: sums of the first vector, later of the second, messages into the third. */
static void communicate(program *p) {
  coll_request *request = NULL;
  coll_comm *comm = p->comm;
  const int other = 1 - p->rank;
  int32_t *a = p->memory[0], *b = p->memory[1], *c = p->memory[2];
  TRY(p, coll_allreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm));
  TRY(p, coll_allreduce_on_stream(b, b, COUNT, COLL_INT32, COLL_SUM, comm, p->stream));
  TRY(p, coll_alltoall_on_stream(b, b, COUNT / RANKS, COLL_INT32, comm, p->stream)); /* as it was */
  TRY(p, coll_iallreduce(a, a, COUNT, COLL_INT32, COLL_SUM, comm, &request));
  if (request)
    TRY(p, coll_wait(&request, -1));
  TRY(p, coll_group_start(comm));
  TRY(p, coll_send_on_stream(b, COUNT, COLL_INT32, other, 0, comm, p->stream));
  TRY(p, coll_recv_on_stream(c, COUNT, COLL_INT32, other, 0, NULL, comm, p->stream));
  TRY(p, coll_group_end(comm));
  TRY(p, coll_barrier_on_stream(comm, p->stream));
  if (!p->failed)
    p->failed = p->cuda.stream_synchronize(p->stream) != COLLI_CUDA_SUCCESS;
  TRY(p, coll_comm_async_error(comm));
}

/* Calls on registered memory, which do not change the vectors. */
static void use_registered(program *p) {
  coll_comm *comm = p->comm;
  coll_registration *it = NULL;
  int32_t *b = p->memory[1];
  void *given = NULL;
  TRY(p, coll_mem_alloc_gpu(comm, COUNT * sizeof(int32_t), &given));
  TRY(p, coll_comm_register(comm, b, COUNT * sizeof(int32_t), &it));
  TRY(p, coll_allreduce_on_stream(b, given, COUNT, COLL_INT32, COLL_SUM, comm, p->stream));
  TRY(p, coll_comm_deregister(comm, &it));
  map_memory(p);
  const size_t bytes = COUNT * sizeof(int32_t);
  void *virtual = (char *)p->reserved + GRANULE - bytes / 2; /* in both */
  TRY(p, coll_comm_register(comm, virtual, bytes, &it));
  TRY(p, coll_allreduce_on_stream(virtual, given, COUNT, COLL_INT32, COLL_SUM, comm, p->stream));
  TRY(p, coll_comm_deregister(comm, &it));
  TRY(p, coll_mem_free(comm, given));
}

/* Gives back what prepare() took. */
static void give_back(program *p) {
  const colli_cuda *cuda = &p->cuda;
  if (p->stream)
    cuda->stream_synchronize(p->stream);
  for (int i = 0; i < 3; i++)
    if (p->memory[i])
      cuda->mem_free((colli_cu_deviceptr)p->memory[i]);
  if (p->mapped)
    cuda->mem_unmap(p->reserved, p->mapped);
  if (p->reserved)
    cuda->mem_address_free(p->reserved, 2 * GRANULE);
  if (p->stream)
    cuda->stream_destroy(p->stream);
}

/* Reads the results by way of the test's own driver functions, none of which fails. */
static int check(const program *p, int rank) {
  static int32_t values[COUNT];
  for (int i = 0; i < 3; i++) {
    const colli_cu_result result =
        p->cuda.memcpy_dtoh_async(values, (colli_cu_deviceptr)p->memory[i], sizeof(values), NULL);
    for (int k = 0; k < COUNT && result == COLLI_CUDA_SUCCESS; k++)
      RANK_CHECK(values[k] == (i == 0 ? 4 : 2));
  }
  return 0;
}

/* Runs the program on a communicator of its own. */
static int run_program(coll_comm *mine, int rank, scene *s) {
  program p = {.comm = mine, .rank = rank};
  prepare(&p);
  if (s->direct)
    TRY(&p, share(&p, s));
  if (s->direct && s->shared[rank] == COLL_OK)
    use_registered(&p);
  communicate(&p);
  coll_error *error = &s->errors[rank];
  *error = (coll_error)COLL_ERROR_INIT;
  if (p.status != COLL_OK)
    coll_last_error(mine, error);
  /* A call that was refused on all ranks, and then the other one may have aborted. */
  RANK_CHECK(error->status == p.status || error->status == COLL_ERR_ABORTED);
  if (p.status == COLL_OK && !p.failed) {
    RANK_CHECK(check(&p, rank) == 0);
    atomic_fetch_add(&s->ended, 1);
  } else {
    coll_comm_abort(mine); /* what a program does that cannot go on */
  }
  RANK_CHECK(coll_barrier(mine) == COLL_OK || p.status != COLL_OK || p.failed ||
             atomic_load(&s->ended) < RANKS);
  give_back(&p);
  return 0;
}

static int run_rank(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  char text[16];
  coll_comm *mine = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 20000;
  config.error = &error;
  alarm(LIMIT_S);
  snprintf(text, sizeof(text), "%d", rank == 0 ? s->fail : 0);
  setenv("GPU_FAIL", text, 1);
  device_load(); /* the communicator that the test got knows of none */
  if (rank == 0)
    RANK_OK(coll_unique_id(&s->id, NULL));
  RANK_OK(coll_barrier(comm));
  if (coll_comm_create(&mine, &s->id, nranks, rank, &config) != COLL_OK) {
    fprintf(stderr, "rank %d: create: %s\n", rank, error.message);
    return 2;
  }
  const int result = run_program(mine, rank, s);
  const coll_status ended = coll_comm_destroy(&mine);
  RANK_CHECK(ended == COLL_OK);
  /* Default streams, the program's context, and what the driver may have refused to take back: that
   * is one thing, or if it could not enter the device at the very end, its stream and modules. An
   * area of GPU memory, its events, and registered memory if another rank may still use them. */
  const bool all = atomic_load(&s->ended) == RANKS;
  const unsigned kept = !s->direct ? 0 : !all ? 5 : rank == 0 && s->fail < NEVER ? 7 : 0;
  RANK_CHECK(device_held() <= MOST_DEVICES + 2u + kept);
  return result;
}

/* Runs the program; false if the failing call lay behind its end. */
static bool run_with(int fail, bool direct) {
  scene *s = shared_memory(sizeof(*s));
  s->fail = fail;
  s->direct = direct;
  s->shared[0] = s->shared[1] = -1;
  cr_expect_eq(run_processes(RANKS, NULL, run_rank, s, LIMIT_S, NULL), 0, "GPU_FAIL=%d", fail);
  for (int r = 0; r < RANKS; r++) /* or another error, if the other one has failed since */
    cr_expect(s->shared[r] != COLL_ERR_UNSUPPORTED || s->shared[1 - r] != COLL_OK, "GPU_FAIL=%d",
              fail);
  for (int r = 0; r < RANKS; r++) {
    const coll_error *error = &s->errors[r];
    cr_expect_neq(error->status, COLL_ERR_TIMEOUT, "GPU_FAIL=%d: %s", fail, error->message);
    if (error->status != COLL_OK)
      cr_expect(strlen(error->message) > 0);
    if (r == 0 && error->status == COLL_ERR_SYSTEM)
      cr_expect(strstr(error->message, "CUDA"), "GPU_FAIL=%d: %s", fail, error->message);
  }
  return atomic_load(&s->ended) < RANKS;
}

/* Goes through the calls of the driver. */
static void run_all(int most, int stride, bool direct) {
  int failed = 0;
  for (int fail = FIRST + stride / 2; fail <= most; fail += stride)
    failed += run_with(fail, direct);
  cr_expect_gt(failed, 0);
  cr_expect_not(run_with(NEVER, direct));
}

Test(faults, each_call_staged) {
  DEVICE_NEEDS_FAKE("GPU_FAIL");
  setenv("COLL_GPU_SLOT_BYTES", "32768", 1); /* calls in streams have three parts */
  run_all(MOST_CALLS, extent(23, 1, 23), false);
}

Test(faults, each_call_direct) {
  DEVICE_NEEDS_FAKE("GPU_FAIL");
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  setenv("COLL_GPU_MODE", "ordered", 1);
  run_all(MOST_CALLS_DIRECT, extent(97, 3, 97), true);
}
