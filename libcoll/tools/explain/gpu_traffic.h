/* gpu_traffic.h: counts what the ranks of a call in streams read and write. */
#ifndef COLLI_TOOLS_EXPLAIN_GPU_TRAFFIC_H
#define COLLI_TOOLS_EXPLAIN_GPU_TRAFFIC_H

#include "explain.h"
#include "libcoll/comm/direct_shape.h"

/* Bytes of all ranks so far, and of their GPUs. */
typedef struct traffic {
  const question *q;
  colli_direct_shape shape;
  gpu_rank *ranks;
  double *in, *out; /* over the link of each GPU */
  double *memory;   /* of each GPU */
  double times;     /* how often what is added happens */
} traffic;

/* How many GPUs of a host have ranks, at most; and the GPU of a rank, counted over all hosts. */
int explain_gpus_of_host(const question *q);
int explain_gpu_of(const question *q, int rank);

/* A rank reads from another one's slot or buffer. */
void explain_read_slot(traffic *t, int rank, int from, double bytes);

/* A kernel of a rank reads `bytes` of each of ranks [first, end), and writes as many in all if it
 * folds them, or all of them if it copies. */
void explain_run_kernel(traffic *t, int rank, int first, int end, double bytes, bool folds);

/* Bytes that a rank has in a call on blocks of so many, or puts into its slot; and of its result.
 */
double explain_input_of(const question *q, int rank, double bytes);
double explain_result_of(const question *q, int rank, double bytes);

/* ---- gpu_in_place.c -------------------------------------------------------------------------- */

/* Adds a call whose buffers are registered, if ranks read them where they are: whether they do. */
bool explain_count_in_place(traffic *t, gpu_call *call);

#endif
