/*
 * gpu_in_place.c: what a call in streams of GPUs does if its buffers are registered: the library
 * decides the same (comm/direct_shape.h), and libcoll/stream/direct_in_place.c does it.
 */
#include "gpu_traffic.h"
#include "libcoll/comm/direct.h"

/* A rank folds so much of all ranks' inputs. */
static void fold(traffic *t, int rank, size_t bytes) {
  const int n = t->q->net.nranks;
  const size_t most = t->shape.tree ? colli_direct_fold_piece(&t->shape, (size_t)n) : bytes;
  if (bytes == 0)
    return;
  t->times = (double)(bytes / most);
  explain_run_kernel(t, rank, 0, n, (double)most, true);
  t->times = 1;
  explain_run_kernel(t, rank, 0, n, (double)(bytes % most), true);
}

/* A rank copies from the others, and from itself or not: so much of each. */
static void copy_all(traffic *t, int rank, bool own, double bytes) {
  gpu_rank *it = &t->ranks[rank];
  for (int from = 0; from < t->q->net.nranks; from++)
    if (own || from != rank) {
      explain_read_slot(t, rank, from, bytes);
      it->writes += bytes;
    }
  it->operations += own || t->q->net.nranks > 1;
}

/* A rank folds its segment of an all-reduce, and copies those of all or of the others, in so many
 * rounds. */
static void reduce_segments(traffic *t, int rank, bool own, size_t rounds) {
  const size_t bytes = t->q->bytes, segment = colli_direct_segment(&t->shape, bytes);
  const size_t piece = rounds == 1 ? segment : colli_direct_slot_piece(&t->shape);
  for (size_t first = 0, from = 0; first < bytes; first += segment, from++) {
    const size_t all = bytes - first < segment ? bytes - first : segment;
    if ((int)from == rank)
      for (size_t at = 0; at < all; at += piece)
        fold(t, rank, all - at < piece ? all - at : piece);
    if (own || (int)from != rank) {
      explain_read_slot(t, rank, (int)from, (double)all);
      t->ranks[rank].writes += (double)all;
    }
  }
  t->ranks[rank].operations += (double)rounds;
}

/* Adds what a rank does between the meets. */
static void add_rank(traffic *t, int rank, colli_direct_reads reads) {
  const question *q = t->q;
  const double bytes = (double)q->bytes;
  if (reads.to && q->coll != COLLI_ALLREDUCE && explain_input_of(q, rank, bytes) > 0) {
    t->ranks[rank].reads += bytes; /* its own part goes to its place first */
    t->ranks[rank].writes += bytes;
    t->ranks[rank].operations++;
  }
  if (q->coll == COLLI_ALLREDUCE && reads.to)
    reduce_segments(t, rank, false, 1);
  else if (colli_direct_ends_in_slots(&t->shape, reads))
    reduce_segments(t, rank, true, colli_direct_slot_rounds(&t->shape, q->bytes));
  else if (colli_reduces(q->coll) && explain_result_of(q, rank, bytes) > 0)
    fold(t, rank, q->bytes);
  else if (q->coll == COLLI_BROADCAST && rank != q->root)
    explain_run_kernel(t, rank, q->root, q->root + 1, bytes, false);
  else if (q->coll == COLLI_ALLGATHER || q->coll == COLLI_ALLTOALL)
    copy_all(t, rank, !reads.to, bytes);
}

bool explain_count_in_place(traffic *t, gpu_call *call) {
  const question *q = t->q;
  const bool input = q->registered & EXPLAIN_INPUT, result = q->registered & EXPLAIN_RESULT;
  const size_t in_slots = colli_direct_meets(&t->shape, q->bytes, q->captured);
  const colli_direct_reads reads =
      colli_direct_choose_reads(q->coll, q->varying, q->in_place, input, result);
  if (!q->registered || q->bytes == 0 || (!reads.from && !reads.to))
    return false;
  call->readable = true;
  call->meets = colli_direct_meets_in_place(&t->shape, reads, q->bytes, q->captured);
  if (call->meets > in_slots)
    return false;
  call->in_place = true;
  call->in_slots = colli_direct_ends_in_slots(&t->shape, reads);
  call->reads_results = reads.to;
  call->reads_inputs = reads.from;
  t->times = 1;
  for (int rank = 0; rank < q->net.nranks; rank++) {
    add_rank(t, rank, reads);
    /* It looks whether others went on without it, and says whether it does. */
    t->ranks[rank].operations += (call->mode != COLLI_GPU_MEET) + (call->mode == COLLI_GPU_ORDERED);
  }
  return true;
}
