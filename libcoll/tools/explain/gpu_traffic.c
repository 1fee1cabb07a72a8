/* gpu_traffic.c: bytes that ranks move, and over which links. */
#include "gpu_traffic.h"

/* How many GPUs of a host have ranks, at most. */
int explain_gpus_of_host(const question *q) {
  const int most = (q->net.nranks + q->net.hosts - 1) / q->net.hosts;
  return q->gpus < most ? q->gpus : most;
}

/* The GPU of a rank, counted over all hosts. */
int explain_gpu_of(const question *q, int rank) {
  const long long host = (long long)rank * q->net.hosts / q->net.nranks;
  const long long first = (host * q->net.nranks + q->net.hosts - 1) / q->net.hosts;
  return (int)(host * explain_gpus_of_host(q) + (rank - first) % q->gpus);
}

/* A rank reads from another one's slot. */
void explain_read_slot(traffic *t, int rank, int from, double bytes) {
  const int here = explain_gpu_of(t->q, rank), there = explain_gpu_of(t->q, from);
  bytes *= t->times;
  if (here == there) {
    t->ranks[rank].reads += bytes;
    return;
  }
  t->ranks[rank].reads_far += bytes;
  t->in[here] += bytes;
  t->out[there] += bytes;
}

/* A kernel of a rank reads `bytes` of each of the slots [first, end), and writes as many in all if
 * it folds them, or all of them if it copies. */
void explain_run_kernel(traffic *t, int rank, int first, int end, double bytes, bool folds) {
  if (bytes == 0 || first == end)
    return;
  for (int from = first; from < end; from++)
    explain_read_slot(t, rank, from, bytes);
  /* Of a tree, each combination is a kernel, and its result on the way is written and read. */
  const int more = folds && t->shape.tree ? end - first - 2 : 0;
  t->ranks[rank].reads += t->times * bytes * more;
  t->ranks[rank].writes += t->times * (folds ? bytes * (1 + more) : bytes * (end - first));
  t->ranks[rank].operations += t->times * (1 + more);
}

/* Bytes that a rank has in a call on blocks of so many; or puts into its slot. */
double explain_input_of(const question *q, int rank, double bytes) {
  switch (q->coll) {
  case COLLI_BARRIER:
    return 0;
  case COLLI_BROADCAST:
    return rank == q->root ? bytes : 0;
  case COLLI_SCATTER:
    return rank == q->root ? bytes * q->net.nranks : 0;
  default:
    return q->coll == COLLI_ALLTOALL || q->coll == COLLI_REDUCE_SCATTER ? bytes * q->net.nranks
                                                                        : bytes;
  }
}

/* Bytes of its result. */
double explain_result_of(const question *q, int rank, double bytes) {
  switch (q->coll) {
  case COLLI_BARRIER:
    return 0;
  case COLLI_EXSCAN:
    return rank > 0 ? bytes : 0;
  case COLLI_REDUCE:
    return rank == q->root ? bytes : 0;
  case COLLI_GATHER:
    return rank == q->root ? bytes * q->net.nranks : 0;
  case COLLI_ALLGATHER:
  case COLLI_ALLTOALL:
    return bytes * q->net.nranks;
  default:
    return bytes;
  }
}
