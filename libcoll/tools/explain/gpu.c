/*
 * gpu.c: what a call in streams of GPUs does, for coll_explain: the mode, rounds, meets and bytes
 * of libcoll/stream. No driver is asked, and no GPU needed.
 */
#include <stdlib.h>
#include <string.h>

#include "gpu_traffic.h"
#include "libcoll/base/param.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/levels.h"

#define STAGED_OPERATIONS 6 /* two copies; "reached", a wait and its reset; "left" */

/* ---- the mode -------------------------------------------------------------------------------- */

/* How the call moves through slots. */
static colli_direct_shape shape_of(const question *q, const answer *a, size_t slot_bytes) {
  const bool tree =
      colli_reduces(q->coll) && a->shape.order == COLLI_ORDER_TREE && q->net.nranks > 2;
  return (colli_direct_shape){q->coll, (size_t)q->net.nranks, slot_bytes, tree, false};
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
  if (q->net.hosts > 1)
    return "the ranks are on several hosts, and the call is not divided among those of each";
  if (q->net.nranks == 1)
    return "there are no other ranks";
  if (asked == COLLI_GPU_STAGED)
    return "COLL_GPU_MODE is staged";
  if (q->apart && !one)
    return "the GPUs have no peer access to each other";
  if (asked == COLLI_GPU_SPIN && q->gpus < q->net.nranks)
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
            : q->gpus < q->net.nranks    ? "ranks share a GPU, so they must not spin"
            : (size_t)q->net.nranks * sizeof(uint32_t) > COLLI_GPU_STATE_AT
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
  const colli_gpu_mode asked = (colli_gpu_mode)explain_param(COLLI_PARAM_GPU_MODE);
  call->slot_bytes = explain_param(COLLI_PARAM_GPU_SLOT_BYTES);
  call->mode = COLLI_GPU_STAGED;
  call->reason = refuse_ranks(q, asked);
  if (!call->reason)
    call->reason = refuse_call(q, a, call->slot_bytes);
  if (!call->reason)
    call->mode = (int)choose_direct(q, asked, &call->reason);
}

/* ---- what ranks move ------------------------------------------------------------------------- */

/* One rank folds its segment of a round, then copies all. */
static void reduce_segments(traffic *t, int rank, size_t bytes) {
  const size_t n = (size_t)t->q->net.nranks;
  const size_t segment = colli_direct_segment(&t->shape, bytes);
  const size_t first = (size_t)rank * segment < bytes ? (size_t)rank * segment : bytes;
  const size_t own = bytes - first < segment ? bytes - first : segment;
  explain_run_kernel(t, rank, 0, (int)n, (double)own, true);
  for (size_t at = 0, from = 0; at < bytes; at += segment, from++)
    explain_read_slot(t, rank, (int)from, (double)(bytes - at < segment ? bytes - at : segment));
  t->ranks[rank].writes += t->times * (double)bytes;
  t->ranks[rank].operations += t->times;
}

/* Adds what a rank does in a round with so many bytes of each block. */
static void add_round(traffic *t, int rank, size_t piece) {
  const question *q = t->q;
  const int n = q->net.nranks;
  const double bytes = (double)piece, input = explain_input_of(q, rank, bytes);
  if (input > 0) {
    t->ranks[rank].reads += t->times * input;
    t->ranks[rank].writes += t->times * input;
    t->ranks[rank].operations += t->times;
  }
  if (explain_result_of(q, rank, bytes) == 0)
    return;
  if (colli_direct_in_segments(&t->shape, piece))
    reduce_segments(t, rank, piece);
  else if (q->coll == COLLI_SCAN || q->coll == COLLI_EXSCAN)
    explain_run_kernel(t, rank, 0, rank + (q->coll == COLLI_SCAN), bytes, true);
  else if (colli_reduces(q->coll))
    explain_run_kernel(t, rank, 0, n, bytes, true);
  else if (q->coll == COLLI_BROADCAST || q->coll == COLLI_SCATTER)
    explain_run_kernel(t, rank, q->root, q->root + 1, bytes, false);
  else
    explain_run_kernel(t, rank, 0, n, bytes, false);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Adds rounds of so many bytes of each block. */
static void add_rounds(gpu_call *call, traffic *t, size_t count, size_t piece) {
  t->times = (double)count;
  call->rounds += count;
  call->in_segments |= count > 0 && colli_direct_in_segments(&t->shape, piece);
  for (int rank = 0; rank < t->q->net.nranks && count > 0; rank++)
    add_round(t, rank, piece);
}

/* Adds the rounds of a call in slots. */
static void count_in_slots(const question *q, gpu_call *call, traffic *t) {
  call->piece = colli_direct_piece(&t->shape);
  const size_t rest = q->bytes % call->piece;
  add_rounds(call, t, q->bytes / call->piece, call->piece);
  add_rounds(call, t, rest > 0 || q->bytes == 0, rest);
  call->meets = colli_direct_meets(&t->shape, q->bytes, q->captured);
}

/* How many kernels the work of all takes. */
static int kernels_of_party(const question *q) {
  const int n = q->net.nranks;
  if (q->coll == COLLI_BARRIER || q->bytes == 0)
    return 0;
  if (q->coll == COLLI_ALLREDUCE || q->coll == COLLI_REDUCE)
    return 1;
  if (colli_reduces(q->coll))
    return q->coll == COLLI_EXSCAN ? n - 1 : n;
  const int copies = q->coll == COLLI_ALLGATHER || q->coll == COLLI_ALLTOALL ? n * n : n;
  return (copies + COLL_GPU_PLACES - 1) / COLL_GPU_PLACES;
}

/* Whether one rank does the work of all (stream/direct_party.h), and adds it: each buffer is read
 * and written once, but by copies as often as it is copied. */
static bool count_party(const question *q, gpu_call *call, traffic *t) {
  const double bytes = (double)q->bytes;
  if (call->mode != COLLI_GPU_MEET || q->net.nranks > COLL_GPU_PLACES || t->shape.tree)
    return false;
  call->party = true;
  call->meets = 1;
  for (int rank = 0; rank < q->net.nranks; rank++) {
    gpu_rank *it = &t->ranks[rank];
    it->writes = explain_result_of(q, rank, bytes);
    it->reads = colli_reduces(q->coll) ? explain_input_of(q, rank, bytes) : it->writes;
    it->operations = 3; /* an event, a wait, the end */
  }
  /* One of them, any, has a wait for each of the others instead, the kernels, and an event more. */
  t->ranks[0].operations += q->net.nranks - 1 + kernels_of_party(q);
  return true;
}

/* Adds a call in GPU memory. */
static void count_direct(const question *q, gpu_call *call, traffic *t) {
  if (count_party(q, call, t))
    return;
  if (!explain_count_in_place(t, call))
    count_in_slots(q, call, t);
  int each = 3; /* ORDERED: "reached", a wait and its reset */
  if (call->mode == COLLI_GPU_SPIN)
    each = 1;
  if (call->mode == COLLI_GPU_MEET) /* an event, and a wait for each of the others */
    each = q->net.nranks;
  for (int rank = 0; rank < q->net.nranks; rank++)
    t->ranks[rank].operations += /* and the end; with events there is one of it */
        (double)call->meets * each + 1 + (call->mode == COLLI_GPU_MEET);
}

/* Finds the parts of a staged call (stream/staged_parts.h). */
static void count_parts(const question *q, gpu_call *call) {
  const size_t elements =
      colli_staged_elements(q->coll, q->varying, q->net.nranks, q->type_bytes,
                            colli_staged_part_of(explain_param(COLLI_PARAM_GPU_SLOT_BYTES)));
  call->parts = colli_staged_count(q->bytes / q->type_bytes, elements);
  call->part_bytes = call->parts > 1 ? elements * q->type_bytes : q->bytes;
}

/* Adds the copies of a staged call: what it reads and writes is copied whole. */
static void count_staged(const question *q, gpu_call *call, traffic *t) {
  count_parts(q, call);
  for (int rank = 0; rank < q->net.nranks; rank++) {
    gpu_rank *it = &t->ranks[rank];
    it->reads = explain_input_of(q, rank, (double)q->bytes);
    it->writes = explain_result_of(q, rank, (double)q->bytes);
    it->operations =
        (double)call->parts * (STAGED_OPERATIONS - (it->reads == 0) - (it->writes == 0));
    t->in[explain_gpu_of(q, rank)] += it->writes;
    t->out[explain_gpu_of(q, rank)] += it->reads;
  }
}

static double larger(double a, double b) {
  return a > b ? a : b;
}

/* Finds the GPUs with most bytes. */
static void find_busiest(const question *q, gpu_call *call, const traffic *t) {
  for (int rank = 0; rank < q->net.nranks; rank++)
    t->memory[explain_gpu_of(q, rank)] += t->ranks[rank].reads + t->ranks[rank].writes;
  for (int gpu = 0; gpu < q->net.hosts * explain_gpus_of_host(q); gpu++) {
    call->in_bytes = larger(call->in_bytes, t->in[gpu]);
    call->out_bytes = larger(call->out_bytes, t->out[gpu]);
    call->memory_bytes = larger(call->memory_bytes, t->memory[gpu] + t->out[gpu]);
  }
}

void explain_gpu_count(const question *q, const answer *a, gpu_call *call) {
  *call = (gpu_call){.mode = COLLI_GPU_AUTO};
  traffic t = {.q = q, .shape = shape_of(q, a, 0)};
  const size_t ngpus = (size_t)q->net.hosts * (size_t)explain_gpus_of_host(q);
  call->ranks = t.ranks = calloc((size_t)q->net.nranks, sizeof(*t.ranks));
  t.in = calloc(3 * ngpus, sizeof(*t.in));
  if (!t.ranks || !t.in)
    described_refuse("out of memory");
  t.out = t.in + ngpus;
  t.memory = t.out + ngpus;
  choose_mode(q, a, call);
  t.shape.slot_bytes = call->slot_bytes;
  if (call->mode == COLLI_GPU_STAGED)
    count_staged(q, call, &t);
  else
    count_direct(q, call, &t);
  find_busiest(q, call, &t);
  free(t.in);
}
