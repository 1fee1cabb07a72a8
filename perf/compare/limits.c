/*
 * limits.c: what this machine allows: the least time of a collective's memory traffic, and of a
 * cache line's way from core to core. limits_tcp.c has what sockets allow.
 *
 *   limits --ranks N OPERATION BYTES ...   prints "OPERATION BYTES US" for each size
 *   limits handover                        prints "handover US": one way of a cache line
 *
 * The memory traffic of an operation on S bytes (the larger buffer, as coll_perf counts) is what
 * its ranks must at least read and write, done by min(N, cores) threads at once, each on its part:
 *
 *   all-reduce      reads N * S, writes N * S    sums N vectors into N others
 *   reduce          reads N * S, writes S        sums N vectors into one
 *   reduce-scatter  reads N * S, writes S        the same
 *   broadcast       reads S, writes N * S        copies one vector to N others, the root's own too
 *   all-gather      reads S, writes N * S        copies one vector to N others
 *   all-to-all      reads N * S, writes N * S    copies N vectors
 *   gather, scatter reads S, writes S            copies one vector
 *
 * Buffers stay in the caches if they fit, as an operation's do. Where there is a root, each rank is
 * the root in turn, as in coll_perf, and the vector that only the root has changes with it. The
 * faster of ordinary and streaming stores counts.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "machine.h"

#define MAX_RANKS  64
#define BLOCK      1024 /* floats that stay in the first-level cache while they are summed */
#define TARGET_S   0.02
#define DEADLINE_S 5.0

/* ---- memory ---------------------------------------------------------------------------------- */

typedef struct traffic {
  const char *name;
  bool reads_all, writes_all; /* N vectors, or one */
  bool sums;                  /* what it reads into one */
  bool in_turns, out_turns;   /* the one vector is another one each time */
} traffic;

static const traffic operations[] = {
    {"allreduce", true, true, true, false, false},
    {"reduce", true, false, true, false, true},
    {"reduce_scatter", true, false, true, false, false},
    {"broadcast", false, true, false, true, false},
    {"allgather", false, true, false, false, false},
    {"alltoall", true, true, false, false, false},
    {"gather", false, false, false, false, true},
    {"scatter", false, false, false, true, false},
};

typedef struct work {
  const traffic *what;
  size_t count; /* floats of a vector */
  int ncores, nin, nout;
  int turns_in, turns_out; /* vectors that take turns as the only one */
  float *in[MAX_RANKS], *out[MAX_RANKS];
  bool stream;
  int iterations;
  atomic_int ready, go;
} work;

typedef struct worker {
  work *w;
  int index;
  double seconds; /* that it took */
} worker;

/* Writes floats with nontemporal or ordinary stores. */
static void store_sum(float *to, const float *from, size_t count, bool stream) {
#if defined(__x86_64__)
  if (stream && count % 16 == 0) {
    for (size_t i = 0; i < count; i += 4)
      _mm_stream_ps(to + i, _mm_loadu_ps(from + i));
    return;
  }
#endif
  memcpy(to, from, count * sizeof(*to));
}

/* Sums all inputs of a stretch into each output; `turn` is the first of these. */
static void sum(const work *w, int turn, size_t first, size_t last) {
  float block[BLOCK];
  for (size_t at = first; at < last; at += BLOCK) {
    size_t some = last - at < BLOCK ? last - at : BLOCK;
    const float *a = w->in[0] + at, *b = w->in[w->nin > 1] + at;
    float *to = w->nout == 1 && !w->stream ? w->out[turn] + at : block;
    for (size_t i = 0; i < some; i++)
      to[i] = a[i] + b[i];
    for (int k = 2; k < w->nin; k++)
      for (size_t i = 0; i < some; i++)
        to[i] += w->in[k][at + i];
    for (int k = 0; k < w->nout && to == block; k++)
      store_sum(w->out[turn + k] + at, block, some, w->stream);
  }
}

/* Copies a stretch of each input to an output, or of the only input to all outputs. */
static void copy_part(const work *w, int turn_in, int turn_out, size_t first, size_t last) {
  for (int k = 0; k < w->nout; k++)
    store_sum(w->out[turn_out + k] + first, w->in[turn_in + (w->nin > 1 ? k : 0)] + first,
              last - first, w->stream);
}

/* A core's part of all iterations. */
static void *labour(void *arg) {
  worker *me = arg;
  work *w = me->w;
  size_t part = (w->count / (size_t)w->ncores + 15) / 16 * 16, first = part * (size_t)me->index;
  size_t last = me->index == w->ncores - 1 || first + part > w->count ? w->count : first + part;
  pin(me->index);
  atomic_fetch_add(&w->ready, 1);
  while (!atomic_load(&w->go))
    ;
  double start = now_s();
  for (int i = 0; i < w->iterations && first < last; i++) {
    if (w->what->sums)
      sum(w, i % w->turns_out, first, last);
    else
      copy_part(w, i % w->turns_in, i % w->turns_out, first, last);
  }
  me->seconds = now_s() - start;
  return NULL;
}

/* Seconds of one iteration by all cores. */
static double run_once(work *w, int iterations) {
  pthread_t threads[MAX_RANKS];
  worker workers[MAX_RANKS];
  w->iterations = iterations;
  w->ready = w->go = 0;
  for (int i = 0; i < w->ncores; i++) {
    workers[i] = (worker){.w = w, .index = i};
    if (pthread_create(&threads[i], NULL, labour, &workers[i]) != 0)
      die("pthread_create");
  }
  while (atomic_load(&w->ready) < w->ncores)
    sched_yield();
  atomic_store(&w->go, 1);
  double slowest = 0;
  for (int i = 0; i < w->ncores; i++) {
    pthread_join(threads[i], NULL);
    slowest = workers[i].seconds > slowest ? workers[i].seconds : slowest;
  }
  return slowest / iterations;
}

/* The time of the faster kind of stores, in us. */
static double time_work(work *w) {
  double best = 0;
  for (int stream = 0; stream < 2; stream++) {
    w->stream = stream;
    double once = run_once(w, 2);
    int fit = (int)(TARGET_S / (once > 1e-9 ? once : 1e-9));
    fit = fit < 2 ? 2 : fit > 1 << 20 ? 1 << 20 : fit;
    for (int round = 0; round < 3; round++) {
      double seconds = run_once(w, fit);
      if (best == 0 || seconds < best)
        best = seconds;
    }
  }
  return best * 1e6;
}

/* Measures one size of an operation. */
static void measure_size(const traffic *what, int nranks, size_t bytes) {
  int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
  work w = {.what = what, .count = bytes / sizeof(float)};
  w.ncores = nranks < cores ? nranks : cores;
  w.nin = what->reads_all ? nranks : 1;
  w.nout = what->writes_all ? nranks : 1;
  w.turns_in = what->in_turns ? nranks : 1;
  w.turns_out = what->out_turns ? nranks : 1;
  int inputs = w.nin * w.turns_in, outputs = w.nout * w.turns_out;
  if (w.count == 0)
    return;
  for (int k = 0; k < inputs + outputs; k++) {
    void *memory = NULL;
    if (posix_memalign(&memory, 4096, bytes + 64) != 0)
      die("posix_memalign");
    memset(memory, 0x3f, bytes); /* not zeros: memory can be twice as fast for them */
    if (k < inputs)
      w.in[k] = memory;
    else
      w.out[k - inputs] = memory;
  }
  printf("%s %zu %.4f\n", what->name, bytes, time_work(&w));
  for (int k = 0; k < inputs; k++)
    free(w.in[k]);
  for (int k = 0; k < outputs; k++)
    free(w.out[k]);
}

/* ---- a cache line ---------------------------------------------------------------------------- */

typedef struct line {
  _Alignas(128) atomic_uint number;
} line;

/* Echoes each number. */
static void *echo(void *arg) {
  line *lines = arg;
  double end = now_s() + DEADLINE_S;
  pin(1);
  for (unsigned seen = 0, number; (number = atomic_load(&lines[0].number)) != ~0u;) {
    if (number != seen)
      atomic_store(&lines[1].number, seen = number);
    else if (number == 0 && now_s() > end)
      break;
  }
  return NULL;
}

/* Measures the round-trip time. */
static void *call(void *arg) {
  line *lines = arg;
  const unsigned rounds = 200000;
  double end = now_s() + DEADLINE_S, start;
  pin(0);
  unsigned i = 0;
  for (start = now_s(); i < rounds; i++) {
    atomic_store(&lines[0].number, i + 1);
    for (unsigned looks = 0; atomic_load(&lines[1].number) != i + 1; looks++)
      if (looks % 4096 == 4095 && now_s() > end)
        break;
  }
  double seconds = now_s() - start;
  atomic_store(&lines[0].number, ~0u);
  printf("handover %.4f\n", seconds / i / 2 * 1e6);
  return NULL;
}

/* Runs two functions in parallel. */
static void run_both(void *(*a)(void *), void *arg_a, void *(*b)(void *), void *arg_b) {
  pthread_t threads[2];
  if (pthread_create(&threads[0], NULL, a, arg_a) != 0 ||
      pthread_create(&threads[1], NULL, b, arg_b) != 0)
    die("pthread_create");
  pthread_join(threads[0], NULL);
  pthread_join(threads[1], NULL);
}

int main(int argc, char **argv) {
  if (argc == 2 && strcmp(argv[1], "handover") == 0) {
    line lines[2] = {0};
    run_both(call, lines, echo, lines);
    return 0;
  }
  int nranks = argc > 3 && strcmp(argv[1], "--ranks") == 0 ? atoi(argv[2]) : 0;
  const traffic *what = NULL;
  for (size_t i = 0; nranks > 0 && i < sizeof(operations) / sizeof(operations[0]); i++)
    if (strcmp(operations[i].name, argv[3]) == 0)
      what = &operations[i];
  if (!what || nranks > MAX_RANKS) {
    fprintf(stderr, "usage: limits --ranks N OPERATION BYTES ...  (or: limits handover)\n");
    return 2;
  }
  for (int i = 4; i < argc; i++)
    measure_size(what, nranks, strtoull(argv[i], NULL, 10));
  return 0;
}
