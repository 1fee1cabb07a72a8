/*
 * limits.c: what a GPU can do at best. An all-reduce of R ranks on one GPU reads R vectors and
 * writes R, so its limit is a copy of R vectors: by the driver, or by a kernel, whichever is
 * faster. The limit of a short one is an empty launch that waits for an event of another stream.
 * Ranks on GPUs of their own read their share from each other: each GPU from the next, all at once.
 */
#include <stdio.h>

#include "libcoll/gpu/code.h"
#include "libcoll/gpu/kernels/fold_args.h"

#include "probe.h"

enum { MOST_DEVICES = 16, BLOCKS_LEAST = 2, BLOCKS_MOST = 8 };

/* A copy within a device, or from a peer. */
typedef struct copy {
  const probe *p;
  colli_cu_context context;
  colli_cu_stream stream;
  colli_cu_function kernel; /* NULL: the driver copies */
  uint32_t blocks;
  struct coll_gpu_piece piece;
} copy;

/* Copies of several devices at a time. */
typedef struct copies {
  copy of[MOST_DEVICES];
  int count;
} copies;

/* Puts a copy into a device's stream. */
static void put_one(const copy *c) {
  struct coll_gpu_copy args = {.piece = {c->piece}, .pieces = 1};
  void *const pointer = &args;
  const colli_cu_launch_config config = {
      .grid = {c->blocks, 1, 1}, .block = {COLL_GPU_THREADS, 1, 1}, .stream = c->stream};
  if (c->kernel)
    PROBE_OK(c->p, launch_kernel, &config, c->kernel, (void *[]){pointer}, NULL);
  else
    PROBE_OK(c->p, memcpy_dtod_async, c->piece.to, c->piece.from, c->piece.bytes, c->stream);
}

static void put_copies(void *context) {
  const copies *all = context;
  for (int i = 0; i < all->count; i++) {
    PROBE_OK(all->of[i].p, ctx_set_current, all->of[i].context);
    put_one(&all->of[i]);
  }
}

static void wait_copies(void *context) {
  const copies *all = context;
  for (int i = 0; i < all->count; i++)
    PROBE_OK(all->of[i].p, stream_synchronize, all->of[i].stream);
}

/* Measures copies as they are set up, and prints their time. */
static void measure_one(copies *all, const char *name, int ms, int ranks) {
  const copy *first = &all->of[0];
  const double us = probe_time(ms, put_copies, wait_copies, all);
  printf("{\"limit\": \"%s\", \"by\": \"%s\", \"blocks\": %u, \"ranks\": %d, \"copied\": %llu, "
         "\"us\": %.3f}\n",
         name, first->kernel ? "kernel" : "driver", first->blocks, ranks,
         (unsigned long long)first->piece.bytes, us);
}

/* Measures copies by the driver, and by kernels with few and many blocks. */
static void measure(copies *all, const char *name, const colli_cu_function *kernels, int ms,
                    int ranks) {
  const probe *p = all->of[0].p;
  int multiprocessors;
  PROBE_OK(p, device_get_attribute, &multiprocessors,
           COLLI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p->device);
  measure_one(all, name, ms, ranks);
  for (int i = 0; i < all->count; i++)
    all->of[i].kernel = kernels[i];
  /* More blocks than there are vectors of 16 bytes to copy would do nothing. */
  const size_t useful = (all->of[0].piece.bytes / 16 + COLL_GPU_THREADS) / COLL_GPU_THREADS;
  uint32_t each = BLOCKS_LEAST, blocks = 0;
  while (each <= BLOCKS_MOST && blocks < useful) {
    blocks = each * (uint32_t)multiprocessors;
    blocks = blocks < useful ? blocks : (uint32_t)useful;
    for (int i = 0; i < all->count; i++)
      all->of[i].blocks = blocks;
    measure_one(all, name, ms, ranks);
    each *= 2;
  }
}

/* The kernel that copies, in the current context. */
static colli_cu_function load_copy(const probe *p) {
  colli_cu_module module;
  colli_cu_function function;
  PROBE_OK(p, module_load, &module, colli_gpu_ptx[COLLI_GPU_FILE_COPY], 0, NULL, NULL);
  PROBE_OK(p, module_get_function, &function, module, "coll_copy");
  return function;
}

/* Copies the vectors of all ranks within a device. */
static void measure_copy(const probe *p, const probe_options *options, size_t bytes) {
  const size_t room = bytes * (size_t)options->ranks;
  const colli_cu_function kernel = load_copy(p);
  copies one = {.count = 1};
  one.of[0] = (copy){.p = p, .stream = probe_stream(p)};
  PROBE_OK(p, ctx_get_current, &one.of[0].context);
  one.of[0].piece = (struct coll_gpu_piece){probe_memory(p, room), probe_memory(p, room), room};
  measure(&one, "copy", &kernel, options->ms, options->ranks);
  PROBE_OK(p, mem_free, one.of[0].piece.to);
  PROBE_OK(p, mem_free, one.of[0].piece.from);
}

/* Each device copies from the next one what an all-reduce must fetch from peers. */
static void measure_peers(probe devices[], const probe_options *options, size_t bytes) {
  const int count = devices[0].ndevices < MOST_DEVICES ? devices[0].ndevices : MOST_DEVICES;
  const size_t fetched = 2 * bytes * (size_t)(count - 1) / (size_t)count / 4 * 4;
  colli_cu_function kernels[MOST_DEVICES];
  copies all = {.count = count};
  for (int i = 0; i < count; i++) {
    copy *c = &all.of[i];
    c->p = &devices[i];
    PROBE_OK(c->p, primary_ctx_retain, &c->context, i);
    PROBE_OK(c->p, ctx_set_current, c->context);
    c->stream = probe_stream(c->p);
    kernels[i] = load_copy(c->p);
    c->piece.to = probe_memory(c->p, fetched);
    c->piece.bytes = fetched;
    all.of[(i + count - 1) % count].piece.from = probe_memory(c->p, fetched);
  }
  for (int i = 0; i < count; i++) {
    PROBE_OK(&devices[i], ctx_set_current, all.of[i].context);
    const colli_cu_result result =
        devices[i].cuda.ctx_enable_peer_access(all.of[(i + 1) % count].context, 0);
    if (result != COLLI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      probe_check(&devices[i], "ctx_enable_peer_access", result);
  }
  measure(&all, "peer", kernels, options->ms, count);
}

/* Launches that wait for each other, in two streams. */
typedef struct chain {
  const probe *p;
  colli_cu_stream streams[2];
  colli_cu_event events[2];
  int turn;
  bool waits;
} chain;

static void put_launch(void *context) {
  chain *c = context;
  const int own = c->turn;
  if (c->waits) {
    c->turn = 1 - own;
    PROBE_OK(c->p, stream_wait_event, c->streams[own], c->events[1 - own], 0);
  }
  probe_launch(c->p, c->p->empty, c->streams[own], NULL);
  if (c->waits)
    PROBE_OK(c->p, event_record, c->events[own], c->streams[own]);
}

static void wait_launches(void *context) {
  const chain *c = context;
  for (int i = 0; i < 2; i++)
    PROBE_OK(c->p, stream_synchronize, c->streams[i]);
}

/* An empty launch, alone and with an event. */
static void measure_launch(const probe *p, int ms) {
  chain c = {.p = p};
  for (int i = 0; i < 2; i++) {
    c.streams[i] = probe_stream(p);
    PROBE_OK(p, event_create, &c.events[i], COLLI_CU_EVENT_DISABLE_TIMING);
    PROBE_OK(p, event_record, c.events[i], c.streams[i]);
  }
  const double alone = probe_time(ms, put_launch, wait_launches, &c);
  c.waits = true;
  printf("{\"limit\": \"launch\", \"us\": %.3f}\n", alone);
  printf("{\"limit\": \"launch_event\", \"us\": %.3f}\n",
         probe_time(ms, put_launch, wait_launches, &c));
}

void probe_limits(const probe_options *options) {
  probe p, devices[MOST_DEVICES];
  probe_load(&p);
  probe_use(&p, options->device);
  const bool peers = options->which && options->which[0] == 'p';
  if (!peers)
    measure_launch(&p, options->ms);
  for (int i = 0; peers && i < p.ndevices && i < MOST_DEVICES; i++) {
    probe_load(&devices[i]);
    probe_use(&devices[i], i);
  }
  for (int i = 0; i < options->nbytes; i++) {
    if (peers)
      measure_peers(devices, options, options->bytes[i]);
    else
      measure_copy(&p, options, options->bytes[i]);
  }
}
