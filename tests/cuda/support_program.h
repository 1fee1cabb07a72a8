/*
 * support_program.h: random programs of calls in streams, of every collective, type, operation and
 * size, in several streams, in groups, and in graphs that are launched between other calls. Ranks
 * are threads. The calls follow each other in an order that docs/gpu.md allows, and each rank waits
 * when it likes.
 */
#ifndef TESTS_CUDA_SUPPORT_PROGRAM_H
#define TESTS_CUDA_SUPPORT_PROGRAM_H

#include <stdatomic.h>

#include "case.h"

enum { PROGRAM_LANES = 3 }; /* streams of a rank, at most */

/* What the ranks of a seed share. */
typedef struct program {
  uint64_t seed;
  const char *mode;
  int nranks, devices, lanes;
  size_t long_bytes; /* of some all-reduces, or 0 */
  int ngroups;       /* of GPUs that reach each other: support_levels.h; or 0: all do */
  int mode_number;   /* with groups: MODE_... */
  bool verbose;
  bool direct;       /* calls stay in GPU memory */
  bool graphs;       /* some are in graphs */
  bool gates;        /* a rank holds its streams while it makes calls */
  atomic_int passed; /* the last step whose graphs one rank has seen end */
} program;

/* A rank_fn: runs the program that arg is. */
int program_run(coll_comm *comm, int rank, int nranks, void *arg);

#endif
