/*
 * nccl.c: NCCL's all-reduce, if its library can be loaded: ranks are threads, rank r on GPU r
 * modulo their number. Timed as coll_perf times calls in a stream. What is declared here is the
 * part of NCCL's interface that it uses, as of NCCL 2.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "probe.h"

/* ncclSuccess, ncclFloat32, ncclSum */
enum { NCCL_SUCCESS = 0, NCCL_FLOAT = 7, NCCL_SUM = 0 };

typedef struct nccl_id {
  char internal[128];
} nccl_id;

typedef struct nccl {
  int (*get_version)(int *version);
  int (*get_id)(nccl_id *id);
  int (*init)(void **comm, int nranks, nccl_id id, int rank);
  int (*all_reduce)(const void *send, void *recv, size_t count, int type, int op, void *comm,
                    void *stream);
  const char *(*last_error)(void *comm);
  int (*destroy)(void *comm);
} nccl;

/* What the ranks have in common. */
typedef struct job {
  const probe_options *options;
  nccl library;
  nccl_id id;
  pthread_barrier_t barrier;
  long calls; /* of a measurement */
  double us;
} job;

typedef struct rank {
  job *job;
  probe p;
  int number;
  pthread_t thread;
  void *comm;
  colli_cu_stream stream;
  colli_cu_deviceptr send, recv;
} rank;

/* Looks up a function. */
static void find(void *handle, const char *symbol, void *field) {
  void *function = dlsym(handle, symbol);
  if (!function)
    probe_die("NCCL has no %s", symbol);
  memcpy(field, &function, sizeof(function));
}

/* Loads the library. */
static void load(nccl *library, const char *name) {
  void *handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!handle)
    probe_die("NCCL cannot be loaded: %s", dlerror());
  find(handle, "ncclGetVersion", &library->get_version);
  find(handle, "ncclGetUniqueId", &library->get_id);
  find(handle, "ncclCommInitRank", &library->init);
  find(handle, "ncclAllReduce", &library->all_reduce);
  find(handle, "ncclGetLastError", &library->last_error);
  find(handle, "ncclCommDestroy", &library->destroy);
}

/* Ends the process if NCCL failed; other ranks may wait for this one. */
static void check(const nccl *library, const char *function, int result) {
  if (result == NCCL_SUCCESS)
    return;
  const char *text = library->last_error(NULL);
  probe_die("%s failed with result %d: %s", function, result, text ? text : "no description");
}

/* Makes `calls` all-reduces of a size; the time of all. */
static double repeat(rank *r, size_t bytes, long calls) {
  const nccl *library = &r->job->library;
  pthread_barrier_wait(&r->job->barrier);
  const double start = probe_now_us();
  for (long i = 0; i < calls; i++)
    check(library, "ncclAllReduce",
          library->all_reduce((void *)r->send, (void *)r->recv, bytes / sizeof(float), NCCL_FLOAT,
                              NCCL_SUM, r->comm, r->stream));
  PROBE_OK(&r->p, stream_synchronize, r->stream);
  pthread_barrier_wait(&r->job->barrier);
  return probe_now_us() - start;
}

/* Every rank contributes 1 in each element: the first and last sum must be the number of ranks. */
static void verify(const rank *r, size_t bytes) {
  float sums[2];
  PROBE_OK(&r->p, memcpy_dtoh_async, &sums[0], r->recv, sizeof(float), r->stream);
  PROBE_OK(&r->p, memcpy_dtoh_async, &sums[1], r->recv + bytes - sizeof(float), sizeof(float),
           r->stream);
  PROBE_OK(&r->p, stream_synchronize, r->stream);
  if (sums[0] != (float)r->job->options->ranks || sums[1] != sums[0])
    probe_die("NCCL's sums of %zu bytes are %g and %g", bytes, (double)sums[0], (double)sums[1]);
}

/* Measures a size; rank 0 chooses how often, and prints. */
static void measure(rank *r, size_t bytes) {
  job *const all = r->job;
  repeat(r, bytes, 5);
  const double few = repeat(r, bytes, 5);
  if (r->number == 0) {
    all->calls = (long)(all->options->ms * 1e3 / (few / 5)) + 1;
    all->calls = all->calls > 5000 ? 5000 : all->calls;
  }
  pthread_barrier_wait(&all->barrier);
  const double us = repeat(r, bytes, all->calls) / (double)all->calls;
  verify(r, bytes);
  int version = 0;
  all->library.get_version(&version);
  if (r->number == 0)
    printf("{\"nccl\": \"allreduce\", \"version\": %d, \"ranks\": %d, \"bytes\": %zu, "
           "\"us\": %.3f}\n",
           version, all->options->ranks, bytes, us);
}

/* A rank. */
static void *run(void *context) {
  rank *r = context;
  const probe_options *options = r->job->options;
  size_t room = 0;
  for (int i = 0; i < options->nbytes; i++)
    room = options->bytes[i] > room ? options->bytes[i] : room;
  probe_use(&r->p, r->number % r->p.ndevices);
  r->stream = probe_stream(&r->p);
  r->send = probe_memory(&r->p, room);
  r->recv = probe_memory(&r->p, room);
  PROBE_OK(&r->p, memset_d32_async, r->send, 0x3f800000, room / sizeof(float), r->stream);
  PROBE_OK(&r->p, stream_synchronize, r->stream);
  const nccl *library = &r->job->library;
  check(library, "ncclCommInitRank",
        library->init(&r->comm, options->ranks, r->job->id, r->number));
  for (int i = 0; i < options->nbytes; i++)
    measure(r, options->bytes[i]);
  library->destroy(r->comm);
  return NULL;
}

void probe_nccl(const probe_options *options) {
  job all = {.options = options};
  probe p;
  probe_load(&p);
  probe_use(&p, 0);
  load(&all.library, options->library);
  check(&all.library, "ncclGetUniqueId", all.library.get_id(&all.id));
  rank *ranks = calloc((size_t)options->ranks, sizeof(*ranks));
  if (!ranks)
    probe_die("out of memory");
  pthread_barrier_init(&all.barrier, NULL, (unsigned)options->ranks);
  for (int i = 0; i < options->ranks; i++) {
    ranks[i] = (rank){.job = &all, .p = p, .number = i};
    if (pthread_create(&ranks[i].thread, NULL, run, &ranks[i]) != 0)
      probe_die("no thread for rank %d", i);
  }
  for (int i = 0; i < options->ranks; i++)
    pthread_join(ranks[i].thread, NULL);
  pthread_barrier_destroy(&all.barrier);
  free(ranks);
}
