/*
 * gpu.c: what a call in streams of GPUs does, for coll_explain: the mode, rounds, meets and bytes
 * of libcoll/stream. No driver is asked, and no GPU needed.
 */
#include <stdlib.h>
#include <string.h>

#include "explain.h"
#include "libcoll/base/param.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/direct_shape.h"

#define STAGED_OPERATIONS 6 /* two copies; "reached", a wait and its reset; "left" */

/* ---- the mode -------------------------------------------------------------------------------- */

/* How the call moves through slots. */
static colli_direct_shape shape_of(const question *q, const answer *a, size_t slot_bytes) {
  const bool tree = colli_reduces(q->coll) && a->shape.order == COLLI_ORDER_TREE && q->nranks > 2;
  return (colli_direct_shape){q->coll, (size_t)q->nranks, slot_bytes, tree, false};
}

/* Whether this call is staged also where others are not; then why. */
static const char *refuse_call(const question *q, const answer *a, size_t slot_bytes) {
  const bool has_place = q->type >= COLL_INT32_LOC;
  if (q->varying && q->coll != COLLI_ALLGATHER && q->coll != COLLI_REDUCE_SCATTER)
    return "not all ranks know all counts of this collective";
  const colli_direct_shape shape = shape_of(q, a, slot_bytes);
  if (colli_direct_piece(&shape) == 0)
    return "COLL_GPU_SLOT_BYTES is too small for a block of each rank";
  if (!colli_reduces(q->coll))
    return NULL;
  if (!colli_gpu_folds(q->type, has_place ? COLL_MINLOC : COLL_SUM, false))
    return "there is no kernel for the type";
  return NULL;
}

/* Whether all calls of these ranks are staged; then why. */
static const char *refuse_ranks(const question *q, colli_gpu_mode asked) {
  const bool one = q->gpus == 1;
  if (q->hosts > 1)
    return "the ranks are on several hosts, and the call is not divided among those of each";
  if (q->nranks == 1)
    return "there are no other ranks";
  if (asked == COLLI_GPU_STAGED)
    return "COLL_GPU_MODE is staged";
  if (q->apart && !one)
    return "the GPUs have no peer access to each other";
  if (asked == COLLI_GPU_SPIN && q->gpus < q->nranks)
    return "COLL_GPU_MODE is spin, which could hang where ranks share a GPU";
  if (asked == COLLI_GPU_MEET && !(one && q->threads))
    return "COLL_GPU_MODE is meet, which is for threads that share one GPU";
  return NULL;
}

/* The mode of ranks that reach each other's memory. */
static colli_gpu_mode choose_direct(const question *q, colli_gpu_mode asked, const char **reason) {
  const bool meets = asked != COLLI_GPU_ORDERED && q->gpus == 1 && q->threads;
  *reason = q->captured                  ? "captured calls ask the host"
            : asked == COLLI_GPU_ORDERED ? "COLL_GPU_MODE is ordered"
            : meets                      ? "the ranks are threads that share a GPU"
            : q->gpus < q->nranks        ? "ranks share a GPU, so they must not spin"
            : (size_t)q->nranks * sizeof(uint32_t) > COLLI_GPU_STATE_AT
                ? "there are too many ranks to spin"
                : NULL;
  if (meets && !q->captured)
    return COLLI_GPU_MEET;
  if (*reason)
    return COLLI_GPU_ORDERED;
  *reason = "each rank has its own GPU, with access to the others";
  return COLLI_GPU_SPIN;
}

/* Sets the mode, and what goes with it. */
static void choose_mode(const question *q, const answer *a, gpu_call *call) {
  static colli_params params;
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(&params, &error) != COLL_OK)
    explain_refuse("%s", error.message);
  const colli_gpu_mode asked = (colli_gpu_mode)params.number[COLLI_PARAM_GPU_MODE];
  call->slot_bytes = (size_t)params.number[COLLI_PARAM_GPU_SLOT_BYTES];
  call->mode = COLLI_GPU_STAGED;
  call->reason = refuse_ranks(q, asked);
  if (!call->reason)
    call->reason = refuse_call(q, a, call->slot_bytes);
  if (!call->reason)
    call->mode = (int)choose_direct(q, asked, &call->reason);
}

/* ---- what ranks move ------------------------------------------------------------------------- */

/* Bytes of all ranks so far, and of their GPUs. */
typedef struct traffic {
  const question *q;
  colli_direct_shape shape;
  gpu_rank *ranks;
  double *in, *out; /* over the link of each GPU */
  double *memory;   /* of each GPU */
  double times;     /* how often what is added happens */
} traffic;

/* How many GPUs of a host have ranks, at most. */
static int gpus_of_host(const question *q) {
  const int most = (q->nranks + q->hosts - 1) / q->hosts;
  return q->gpus < most ? q->gpus : most;
}

/* The GPU of a rank, counted over all hosts. */
static int gpu_of(const question *q, int rank) {
  const long long host = (long long)rank * q->hosts / q->nranks;
  const long long first = (host * q->nranks + q->hosts - 1) / q->hosts;
  return (int)(host * gpus_of_host(q) + (rank - first) % q->gpus);
}

/* A rank reads from another one's slot. */
static void read_slot(traffic *t, int rank, int from, double bytes) {
  const int here = gpu_of(t->q, rank), there = gpu_of(t->q, from);
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
static void run_kernel(traffic *t, int rank, int first, int end, double bytes, bool folds) {
  if (bytes == 0 || first == end)
    return;
  for (int from = first; from < end; from++)
    read_slot(t, rank, from, bytes);
  /* Of a tree, each combination is a kernel, and its result on the way is written and read. */
  const int more = folds && t->shape.tree ? end - first - 2 : 0;
  t->ranks[rank].reads += t->times * bytes * more;
  t->ranks[rank].writes += t->times * (folds ? bytes * (1 + more) : bytes * (end - first));
  t->ranks[rank].operations += t->times * (1 + more);
}

/* Bytes that a rank has in a call on blocks of so many; or puts into its slot. */
static double input_of(const question *q, int rank, double bytes) {
  switch (q->coll) {
  case COLLI_BARRIER:
    return 0;
  case COLLI_BROADCAST:
    return rank == q->root ? bytes : 0;
  case COLLI_SCATTER:
    return rank == q->root ? bytes * q->nranks : 0;
  default:
    return q->coll == COLLI_ALLTOALL || q->coll == COLLI_REDUCE_SCATTER ? bytes * q->nranks : bytes;
  }
}

/* Bytes of its result. */
static double result_of(const question *q, int rank, double bytes) {
  switch (q->coll) {
  case COLLI_BARRIER:
    return 0;
  case COLLI_EXSCAN:
    return rank > 0 ? bytes : 0;
  case COLLI_REDUCE:
    return rank == q->root ? bytes : 0;
  case COLLI_GATHER:
    return rank == q->root ? bytes * q->nranks : 0;
  case COLLI_ALLGATHER:
  case COLLI_ALLTOALL:
    return bytes * q->nranks;
  default:
    return bytes;
  }
}

/* One rank folds its segment of a round, then copies all. */
static void reduce_segments(traffic *t, int rank, size_t bytes) {
  const size_t n = (size_t)t->q->nranks;
  const size_t segment = colli_direct_segment(&t->shape, bytes);
  const size_t first = (size_t)rank * segment < bytes ? (size_t)rank * segment : bytes;
  const size_t own = bytes - first < segment ? bytes - first : segment;
  run_kernel(t, rank, 0, (int)n, (double)own, true);
  for (size_t at = 0, from = 0; at < bytes; at += segment, from++)
    read_slot(t, rank, (int)from, (double)(bytes - at < segment ? bytes - at : segment));
  t->ranks[rank].writes += t->times * (double)bytes;
  t->ranks[rank].operations += t->times;
}

/* Adds what a rank does in a round with so many bytes of each block. */
static void add_round(traffic *t, int rank, size_t piece) {
  const question *q = t->q;
  const int n = q->nranks;
  const double bytes = (double)piece, input = input_of(q, rank, bytes);
  if (input > 0) {
    t->ranks[rank].reads += t->times * input;
    t->ranks[rank].writes += t->times * input;
    t->ranks[rank].operations += t->times;
  }
  if (result_of(q, rank, bytes) == 0)
    return;
  if (colli_direct_in_segments(&t->shape, piece))
    reduce_segments(t, rank, piece);
  else if (q->coll == COLLI_SCAN || q->coll == COLLI_EXSCAN)
    run_kernel(t, rank, 0, rank + (q->coll == COLLI_SCAN), bytes, true);
  else if (colli_reduces(q->coll))
    run_kernel(t, rank, 0, n, bytes, true);
  else if (q->coll == COLLI_BROADCAST || q->coll == COLLI_SCATTER)
    run_kernel(t, rank, q->root, q->root + 1, bytes, false);
  else
    run_kernel(t, rank, 0, n, bytes, false);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Adds rounds of so many bytes of each block. */
static void add_rounds(gpu_call *call, traffic *t, size_t count, size_t piece) {
  t->times = (double)count;
  call->rounds += count;
  call->in_segments |= count > 0 && colli_direct_in_segments(&t->shape, piece);
  call->meets += count * (1u + colli_direct_in_segments(&t->shape, piece) + t->q->captured);
  for (int rank = 0; rank < t->q->nranks && count > 0; rank++)
    add_round(t, rank, piece);
}

/* Adds the rounds of a call in GPU memory. */
static void count_direct(const question *q, gpu_call *call, traffic *t) {
  call->piece = colli_direct_piece(&t->shape);
  const size_t rest = q->bytes % call->piece;
  add_rounds(call, t, q->bytes / call->piece, call->piece);
  add_rounds(call, t, rest > 0 || q->bytes == 0, rest);
  int each = 3; /* ORDERED: "reached", a wait and its reset */
  if (call->mode == COLLI_GPU_SPIN)
    each = 1;
  if (call->mode == COLLI_GPU_MEET) /* an event, and a wait for each of the others */
    each = q->nranks;
  for (int rank = 0; rank < q->nranks; rank++)
    t->ranks[rank].operations += (double)call->meets * each + 1; /* and the end */
}

/* Adds the copies of a staged call: what it reads and writes is copied whole. */
static void count_staged(const question *q, traffic *t) {
  for (int rank = 0; rank < q->nranks; rank++) {
    gpu_rank *it = &t->ranks[rank];
    it->reads = input_of(q, rank, (double)q->bytes);
    it->writes = result_of(q, rank, (double)q->bytes);
    it->operations = STAGED_OPERATIONS - (it->reads == 0) - (it->writes == 0);
    t->in[gpu_of(q, rank)] += it->writes;
    t->out[gpu_of(q, rank)] += it->reads;
  }
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* Finds the GPUs with most bytes. */
static void find_busiest(const question *q, gpu_call *call, const traffic *t) {
  for (int rank = 0; rank < q->nranks; rank++)
    t->memory[gpu_of(q, rank)] += t->ranks[rank].reads + t->ranks[rank].writes;
  for (int gpu = 0; gpu < q->hosts * gpus_of_host(q); gpu++) {
    call->in_bytes = larger(call->in_bytes, t->in[gpu]);
    call->out_bytes = larger(call->out_bytes, t->out[gpu]);
    call->memory_bytes = larger(call->memory_bytes, t->memory[gpu] + t->out[gpu]);
  }
}

void explain_gpu_count(const question *q, const answer *a, gpu_call *call) {
  *call = (gpu_call){.mode = COLLI_GPU_AUTO};
  traffic t = {.q = q, .shape = shape_of(q, a, 0)};
  const size_t ngpus = (size_t)q->hosts * (size_t)gpus_of_host(q);
  call->ranks = t.ranks = calloc((size_t)q->nranks, sizeof(*t.ranks));
  t.in = calloc(3 * ngpus, sizeof(*t.in));
  if (!t.ranks || !t.in)
    explain_refuse("out of memory");
  t.out = t.in + ngpus;
  t.memory = t.out + ngpus;
  choose_mode(q, a, call);
  t.shape.slot_bytes = call->slot_bytes;
  if (call->mode == COLLI_GPU_STAGED)
    count_staged(q, &t);
  else
    count_direct(q, call, &t);
  find_busiest(q, call, &t);
  free(t.in);
}
