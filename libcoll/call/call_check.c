/* call_check.c: detects wrong calls, as far as one rank can, before anything is sent. */
#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/names.h"
#include "libcoll/call/calls.h"

#define BYTES_MAX ((size_t)1 << 47) /* more than current processors can address */

/* Checks that `copies` times `count` elements can exist. */
static coll_status check_count(const colli_call *call, size_t count, size_t copies,
                               coll_error *error) {
  size_t total;
  if (!__builtin_mul_overflow(count, coll_type_bytes((coll_type)call->type), &total) &&
      !__builtin_mul_overflow(total, copies, &total) && total <= BYTES_MAX)
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                         "count %zu of %s is more than memory can hold; is it a negative number?",
                         count, colli_type_name(call->type));
}

/* Checks one rank's table of counts and displacements. */
static coll_status check_blocks(const colli_calls *calls, const colli_call *call, const char *what,
                                const size_t *counts, const size_t *displs, coll_error *error) {
  if (!counts)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name, "%s is NULL", what);
  size_t end = 0;
  for (int rank = 0; rank < calls->exec->nranks; rank++) {
    size_t first = displs ? displs[rank] : end;
    if (__builtin_add_overflow(first, counts[rank], &end) ||
        check_count(call, end, 1, error) != COLL_OK)
      return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                             "%s[%d] = %zu, at element %zu, is more than memory can hold", what,
                             rank, counts[rank], first);
  }
  return COLL_OK;
}

/* The elements up to the end of the last block. */
static size_t blocks_end(const colli_calls *calls, const size_t *counts, const size_t *displs) {
  size_t most = 0, end = 0;
  for (int rank = 0; rank < calls->exec->nranks; rank++) {
    end = (displs ? displs[rank] : end) + counts[rank];
    if (counts[rank] && end > most)
      most = end;
  }
  return most;
}

/* The element at which a rank's block begins. */
static size_t block_first(const size_t *counts, const size_t *displs, int block) {
  COLLI_ASSERT(counts && block >= 0);
  size_t first = 0;
  if (displs)
    return displs[block];
  for (int rank = 0; rank < block; rank++)
    first += counts[rank];
  return first;
}

/* Elements that a call reads from sendbuf and writes to recvbuf on this rank. */
void colli_call_extent(const colli_calls *calls, const colli_call *call, size_t *reads,
                       size_t *writes) {
  bool root = call->root == calls->exec->rank, varying = call->varying;
  size_t n = (size_t)calls->exec->nranks, own = call->count, all = call->count * n;
  COLLI_ASSERT_RANK(call->coll < COLLI_COLL_COUNT, calls->exec->rank);
  COLLI_ASSERT_RANK(!varying || colli_exact(call->coll), calls->exec->rank);
  *reads = *writes = own;
  switch (call->coll) {
  case COLLI_REDUCE:
    *writes = root ? own : 0;
    break;
  case COLLI_BROADCAST:
    *reads = root ? own : 0;
    break;
  case COLLI_ALLGATHER:
    *reads = varying ? call->in_counts[calls->exec->rank] : own;
    *writes = varying ? blocks_end(calls, call->out_counts, call->out_displs) : all;
    break;
  case COLLI_REDUCE_SCATTER:
    *reads = varying ? blocks_end(calls, call->in_counts, call->in_displs) : all;
    *writes = varying ? call->out_counts[calls->exec->rank] : own;
    break;
  case COLLI_GATHER:
    *writes = !root ? 0 : varying ? blocks_end(calls, call->out_counts, call->out_displs) : all;
    break;
  case COLLI_SCATTER:
    *reads = !root ? 0 : varying ? blocks_end(calls, call->in_counts, call->in_displs) : all;
    break;
  case COLLI_ALLTOALL:
    *reads = varying ? blocks_end(calls, call->in_counts, call->in_displs) : all;
    *writes = varying ? blocks_end(calls, call->out_counts, call->out_displs) : all;
    break;
  default:
    break;
  }
}

/* Whether the buffers are in place in a way that the collective allows. */
static bool in_place(const colli_calls *calls, const colli_call *call) {
  const char *in = call->sendbuf, *out = call->recvbuf;
  size_t bytes = coll_type_bytes((coll_type)call->type), rank = (size_t)calls->exec->rank;
  size_t own = call->count * rank * bytes;
  switch (call->coll) {
  case COLLI_ALLGATHER:
  case COLLI_GATHER:
    if (call->varying)
      own = block_first(call->out_counts, call->out_displs, calls->exec->rank) * bytes;
    return in == out + own;
  case COLLI_REDUCE_SCATTER:
  case COLLI_SCATTER:
    if (call->varying)
      own = block_first(call->in_counts, call->in_displs, calls->exec->rank) * bytes;
    return out == in + own || (call->coll == COLLI_REDUCE_SCATTER && in == out);
  default:
    return in == out;
  }
}

/* Checks where the buffers are. */
coll_status colli_call_check_buffers(const colli_calls *calls, const colli_call *call,
                                     coll_error *error) {
  size_t reads, writes, bytes = coll_type_bytes((coll_type)call->type);
  colli_call_extent(calls, call, &reads, &writes);
  if (reads && !call->sendbuf)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name, "sendbuf is NULL");
  if (writes && !call->recvbuf)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name, "recvbuf is NULL");
  const char *in = call->sendbuf, *out = call->recvbuf;
  if (!reads || !writes || in + reads * bytes <= out || out + writes * bytes <= in ||
      in_place(calls, call))
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                         "sendbuf and recvbuf overlap; use disjoint buffers, or work in place as "
                         "coll_collectives.h says for %s",
                         call->name);
}

/* Checks an in-place all-to-all with counts, which needs the same blocks on both sides. */
static coll_status check_exchange(const colli_calls *calls, const colli_call *call,
                                  coll_error *error) {
  if (call->sendbuf != call->recvbuf || !call->sendbuf)
    return COLL_OK;
  for (int rank = 0; rank < calls->exec->nranks; rank++)
    if (call->in_counts[rank] != call->out_counts[rank] ||
        block_first(call->in_counts, call->in_displs, rank) !=
            block_first(call->out_counts, call->out_displs, rank))
      return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                             "in place, but what goes to rank %d is not where and as long as "
                             "what comes from it",
                             rank);
  return COLL_OK;
}

/* Checks counts and, where the rank has them, tables of counts. */
static coll_status check_counts(const colli_calls *calls, const colli_call *call,
                                coll_error *error) {
  size_t copies = colli_exact(call->coll) ? (size_t)calls->exec->nranks : 1;
  bool root = call->root == calls->exec->rank;
  coll_status status = check_count(call, call->count, call->varying ? 1 : copies, error);
  if (status != COLL_OK || !call->varying)
    return status;
  if (call->coll != COLLI_GATHER && (call->coll != COLLI_SCATTER || root))
    status = check_blocks(calls, call, call->coll == COLLI_ALLTOALL ? "sendcounts" : "counts",
                          call->in_counts, call->in_displs, error);
  if (status == COLL_OK && (call->coll == COLLI_ALLTOALL || (call->coll == COLLI_GATHER && root)))
    status = check_blocks(calls, call, call->coll == COLLI_ALLTOALL ? "recvcounts" : "counts",
                          call->out_counts, call->out_displs, error);
  if (status != COLL_OK || !root || (call->coll != COLLI_GATHER && call->coll != COLLI_SCATTER))
    return status == COLL_OK && call->coll == COLLI_ALLTOALL ? check_exchange(calls, call, error)
                                                             : status;
  size_t own = (call->coll == COLLI_GATHER ? call->out_counts : call->in_counts)[calls->exec->rank];
  if (own == call->count)
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                         "counts[%d] is %zu, but this rank's own block has %zu elements",
                         calls->exec->rank, own, call->count);
}

/* Checks that an operation exists and takes the type. */
coll_status colli_call_check_op(const colli_calls *calls, const colli_call *call,
                                coll_error *error) {
  const colli_user_op *user = colli_user_op_of(call->op);
  if (user) {
    if (user->premul && (int)user->type != call->type)
      return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                             "the operation was made for %s, not %s",
                             colli_type_name((int)user->type), colli_type_name(call->type));
    return COLL_OK;
  }
  if (call->op < 0 || call->op >= COLL_OP_COUNT)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "%jd is no coll_op; see coll_types.h for the list, or make one with "
                           "coll_op_create",
                           (intmax_t)call->op);
  bool scan = call->coll == COLLI_SCAN || call->coll == COLLI_EXSCAN;
  if (scan && call->op == COLL_AVG)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "avg is not for prefixes; use sum, and divide");
  if (call->type >= COLL_TYPE_COUNT || !calls->exec->kernels->reduce[call->type][call->op])
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "%s does not take %s; docs/types.md has the table",
                           colli_op_name(call->op), colli_type_name(call->type));
  return COLL_OK;
}

/* Checks everything about a collective call that one rank can see. */
coll_status colli_call_check(const colli_calls *calls, const colli_call *call, coll_error *error) {
  if (call->coll == COLLI_BARRIER)
    return COLL_OK;
  if (coll_type_bytes((coll_type)call->type) == 0)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "%d is no coll_type; see coll.h for the list", call->type);
  if (colli_rooted(call->coll) && (call->root < 0 || call->root >= calls->exec->nranks))
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, call->name,
                           "root %d is not in 0 .. %d", call->root, calls->exec->nranks - 1);
  coll_status status =
      colli_reduces(call->coll) ? colli_call_check_op(calls, call, error) : COLL_OK;
  if (status == COLL_OK)
    status = check_counts(calls, call, error);
  return status == COLL_OK ? colli_call_check_buffers(calls, call, error) : status;
}
