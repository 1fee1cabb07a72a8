/*
 * peer.h: what the programs around other libraries share: the command line, data, verification, and
 * coll_perf's method of timing. Each of them is
 *   PROGRAM [--seconds S] [--most S] OPERATION BYTES [BYTES ...]
 * and rank 0 prints "OPERATION BYTES MICROSECONDS" for each size: float sum, out of place, ordinary
 * memory, each rank the root in turn, operations back to back, mean of the slowest rank. BYTES is
 * the first column of coll_perf: of the vector, or of all ranks' blocks together. Both C and C++
 * read it.
 */
#ifndef PERF_COMPARE_PEER_H
#define PERF_COMPARE_PEER_H

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PEER_WARMUP    5
#define PEER_MAX_ITERS (1 << 22)

typedef enum peer_what {
  PEER_ALLREDUCE,
  PEER_BROADCAST,
  PEER_REDUCE,
  PEER_ALLGATHER,
  PEER_REDUCE_SCATTER,
  PEER_ALLTOALL,
  PEER_GATHER,
  PEER_SCATTER,
  PEER_BARRIER,
  PEER_WHAT_COUNT
} peer_what;

/* One size of an operation on one rank. */
typedef struct peer_cell {
  peer_what what;
  int rank, nranks;
  size_t count;        /* floats of the vector, or of a block */
  size_t nsend, nrecv; /* floats of this rank's buffers */
  float *send, *recv;
  double spent; /* seconds so far */
} peer_cell;

/* What a library does. The last argument of each is `context`. */
typedef struct peer_library {
  const char *name;
  void *context;
  int rank, nranks;
  size_t max_count; /* of all blocks together */
  /* NULL if the library can do the operation, or why it cannot. */
  const char *(*lacks)(peer_what what, void *context);
  void (*open)(const peer_cell *cell, void *context); /* before the first operation of a size */
  void (*run)(const peer_cell *cell, int root, void *context);
  void (*barrier)(void *context);
  double (*maximum)(double mine, void *context); /* over all ranks */
} peer_library;

typedef struct peer_options {
  double seconds, most;
  peer_what what;
  int nsizes;
  char **sizes;
} peer_options;

/* The name of an operation on the command line. */
static inline const char *peer_name(peer_what what) {
  static const char *const names[PEER_WHAT_COUNT] = {"allreduce", "broadcast",      "reduce",
                                                     "allgather", "reduce_scatter", "alltoall",
                                                     "gather",    "scatter",        "barrier"};
  return names[what];
}

/* Reads what follows a library's own options; false if it makes no sense. */
static inline bool peer_read(peer_options *options, int argc, char **argv) {
  options->seconds = 0.05;
  options->most = 1;
  int i = 1, what = 0;
  for (; i + 1 < argc && strncmp(argv[i], "--", 2) == 0; i += 2) {
    if (strcmp(argv[i], "--seconds") == 0)
      options->seconds = atof(argv[i + 1]);
    else if (strcmp(argv[i], "--most") == 0)
      options->most = atof(argv[i + 1]);
    else
      return false;
  }
  while (i < argc && what < PEER_WHAT_COUNT && strcmp(argv[i], peer_name((peer_what)what)) != 0)
    what++;
  options->what = (peer_what)what;
  options->nsizes = argc - i - 1;
  options->sizes = argv + i + 1;
  return i + 1 < argc && what < PEER_WHAT_COUNT && options->seconds > 0 && options->most > 0;
}

static inline double peer_now(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Element `index` of a rank's input; sums are exact. */
static inline float peer_value(size_t index, int rank) {
  return (float)((index * 7 + (size_t)rank * 3) % 4);
}

/* Whether the larger buffer of an operation holds a block for each rank. */
static inline bool peer_has_blocks(peer_what what) {
  return what == PEER_ALLGATHER || what == PEER_REDUCE_SCATTER || what == PEER_ALLTOALL ||
         what == PEER_GATHER || what == PEER_SCATTER;
}

/* Makes buffers of whole pages, and the input. False: out of memory. */
static inline bool peer_open(peer_cell *cell, const peer_library *library, peer_what what,
                             size_t bytes) {
  size_t n = (size_t)library->nranks, blocks = peer_has_blocks(what) ? n : 1;
  memset(cell, 0, sizeof(*cell));
  cell->what = what;
  cell->rank = library->rank;
  cell->nranks = library->nranks;
  cell->count = what == PEER_BARRIER ? 0 : bytes / (sizeof(float) * blocks);
  cell->nsend = cell->nrecv = cell->count;
  if (what == PEER_REDUCE_SCATTER || what == PEER_ALLTOALL || what == PEER_SCATTER)
    cell->nsend *= n;
  if (what == PEER_ALLGATHER || what == PEER_ALLTOALL || what == PEER_GATHER)
    cell->nrecv *= n;
  void *send = NULL, *recv = NULL;
  size_t room = cell->count * blocks * sizeof(float);
  if (posix_memalign(&send, 4096, room + 64) != 0 || posix_memalign(&recv, 4096, room + 64) != 0)
    return false;
  cell->send = (float *)send;
  cell->recv = (float *)recv;
  memset(send, 0, room);
  memset(recv, 0xff, room);
  for (size_t i = 0; i < cell->nsend; i++)
    cell->send[i] = peer_value(i, cell->rank);
  return true;
}

static inline void peer_close(peer_cell *cell) {
  free(cell->send);
  free(cell->recv);
}

/* Element `i` of what an operation from root 0 must leave on this rank. */
static inline float peer_wanted(const peer_cell *cell, size_t i) {
  size_t own = cell->count * (size_t)cell->rank;
  float sum = 0;
  switch (cell->what) {
  case PEER_BROADCAST:
    return peer_value(i, 0);
  case PEER_SCATTER:
    return peer_value(own + i, 0);
  case PEER_ALLGATHER:
  case PEER_GATHER:
    return peer_value(i % cell->count, (int)(i / cell->count));
  case PEER_ALLTOALL:
    return peer_value(own + i % cell->count, (int)(i / cell->count));
  default:
    for (int r = 0; r < cell->nranks; r++)
      sum += peer_value(cell->what == PEER_REDUCE_SCATTER ? own + i : i, r);
    return sum;
  }
}

/* Whether the result of an operation from root 0 is right on this rank. */
static inline bool peer_right(const peer_cell *cell) {
  bool at_root = cell->what == PEER_REDUCE || cell->what == PEER_GATHER;
  if ((at_root && cell->rank != 0) || (cell->what == PEER_BROADCAST && cell->rank == 0))
    return true; /* the root of a broadcast sends what it has: there is no second buffer */
  for (size_t i = 0; i < cell->nrecv; i++)
    if (cell->recv[i] != peer_wanted(cell, i))
      return false;
  return true;
}

/* Seconds of the slowest rank for `iters` operations back to back. */
static inline double peer_time(peer_cell *cell, const peer_library *library, int iters) {
  library->barrier(library->context);
  double start = peer_now();
  for (int i = 0; i < iters; i++)
    library->run(cell, i % cell->nranks, library->context);
  double seconds = library->maximum(peer_now() - start, library->context);
  cell->spent += seconds;
  return seconds;
}

/* How many operations of `one` seconds fit into `seconds`, `at_most` so many. */
static inline int peer_fitting(double one, double seconds, int at_most) {
  double fit = one > 0 ? seconds / one : at_most;
  return fit < 2 ? 2 : fit > at_most ? at_most : (int)fit;
}

/*
 * Times a cell after its first operation, which took `one` seconds: search, warm-up, measurement.
 * Returns seconds of an operation. What is slow gets fewer operations, down to two.
 */
static inline double peer_measure(peer_cell *cell, const peer_library *library,
                                  const peer_options *options, double one) {
  double wanted = options->seconds, most = options->most;
  for (int iters = 4; iters * one < most / 4 && iters <= PEER_MAX_ITERS; iters *= 4) {
    double seconds = peer_time(cell, library, iters);
    one = seconds / iters;
    if (seconds > wanted / 4)
      break;
  }
  int warmup = peer_fitting(one, (most - cell->spent) / 2, PEER_WARMUP);
  if (cell->spent + 4 * one < most)
    peer_time(cell, library, warmup);
  double left = most - cell->spent;
  int iters = peer_fitting(one, wanted < left ? wanted : left, PEER_MAX_ITERS);
  return peer_time(cell, library, iters) / iters;
}

/* Says why a size is skipped. */
static inline void peer_skip(const peer_library *library, const char *what, const char *size,
                             const char *why) {
  if (library->rank == 0)
    fprintf(stderr, "%s: %s %s is left out: %s\n", library->name, what, size, why);
}

/* Verifies and times one size, and prints its line. False if it cannot be done or is wrong. */
static inline bool peer_size(const peer_library *library, const peer_options *options,
                             const char *size) {
  const char *name = peer_name(options->what);
  size_t bytes = (size_t)strtoull(size, NULL, 10);
  size_t blocks = peer_has_blocks(options->what) ? (size_t)library->nranks : 1;
  if (bytes / sizeof(float) > library->max_count ||
      (options->what != PEER_BARRIER && bytes < sizeof(float) * blocks)) {
    peer_skip(library, name, size, bytes < 4096 ? "not an element a rank" : "beyond its counts");
    return true;
  }
  peer_cell cell;
  bool opened = peer_open(&cell, library, options->what, bytes);
  if (library->maximum(opened ? 0 : 1, library->context) > 0) {
    peer_skip(library, name, size, "not enough memory");
    peer_close(&cell);
    return false;
  }
  library->open(&cell, library->context);
  double one = peer_time(&cell, library, 1);
  double wrong = library->maximum(peer_right(&cell) ? 0 : 1, library->context);
  double seconds = peer_measure(&cell, library, options, one);
  if (library->rank == 0 && wrong == 0)
    printf("%s %zu %.4f\n", name, bytes, seconds * 1e6);
  fflush(stdout);
  if (wrong > 0)
    peer_skip(library, name, size, "its result is wrong");
  peer_close(&cell);
  return wrong == 0;
}

/* Runs all sizes between a library's start and its end; returns the exit status. */
static inline int peer_main(const peer_library *library, int argc, char **argv) {
  peer_options options;
  if (!peer_read(&options, argc, argv)) {
    if (library->rank == 0)
      fprintf(stderr, "usage: %s [--seconds S] [--most S] OPERATION BYTES [BYTES ...]\n",
              library->name);
    return 2;
  }
  const char *lack = library->lacks(options.what, library->context);
  for (int i = 0; lack && i < options.nsizes; i++)
    peer_skip(library, peer_name(options.what), options.sizes[i], lack);
  int failed = 0;
  for (int i = 0; !lack && i < options.nsizes; i++)
    failed |= !peer_size(library, &options, options.sizes[i]);
  return failed;
}

#endif
