/* reduce_local.c: coll_reduce_local(), which combines two buffers of one rank. */
#include "libcoll/base/error.h"
#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/exec/reduce.h"
#include "libcoll/progress/enter.h"

#define BYTES_MAX ((size_t)1 << 47) /* more than current processors can address */

/* The arguments of a call. */
typedef struct local_call {
  const void *in;
  void *inout;
  size_t count;
  int type;
  coll_op op;
} local_call;

static const char *const name = "reduce_local";

/* Checks type, count and buffers. */
static coll_status check_buffers(const local_call *call, coll_error *error) {
  size_t bytes, elem_bytes = coll_type_bytes((coll_type)call->type);
  if (elem_bytes == 0)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                           "%d is no coll_type; see coll.h for the list", call->type);
  if (__builtin_mul_overflow(call->count, elem_bytes, &bytes) || bytes > BYTES_MAX)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                           "count %zu of %s is more than memory can hold; is it a negative number?",
                           call->count, colli_type_name(call->type));
  if (call->count && (!call->in || !call->inout))
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name, "%s is NULL",
                           call->in ? "inout" : "in");
  const char *in = call->in, *inout = call->inout;
  if (bytes && in != inout && in < inout + bytes && inout < in + bytes)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                           "in and inout overlap; use disjoint buffers, or the same");
  return COLL_OK;
}

/* Finds what combines elements: a kernel, or a function of the program's own. */
static coll_status find_op(const local_call *call, colli_reduce_fn *reduce,
                           const colli_user_op **user, coll_error *error) {
  *reduce = NULL;
  *user = colli_user_op_of(call->op);
  if (*user) {
    if ((*user)->premul)
      return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                             "a pre-multiplied sum multiplies the input of a whole collective; use "
                             "sum");
    return COLL_OK;
  }
  if (call->op < 0 || call->op >= COLL_OP_COUNT)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                           "%jd is no coll_op; see coll_types.h for the list, or make one with "
                           "coll_op_create",
                           (intmax_t)call->op);
  if (call->op == COLL_AVG)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                           "avg is about all ranks; use sum, and divide");
  *reduce =
      call->type < COLL_TYPE_COUNT ? colli_kernels_best()->reduce[call->type][call->op] : NULL;
  if (!*reduce)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, name,
                           "%s does not take %s; docs/types.md has the table",
                           colli_op_name(call->op), colli_type_name(call->type));
  return COLL_OK;
}

/* The whole call; error may be NULL. */
static coll_status reduce_local(const local_call *call, coll_error *error) {
  colli_reduce_fn reduce;
  const colli_user_op *user;
  coll_status status = check_buffers(call, error);
  if (status == COLL_OK)
    status = find_op(call, &reduce, &user, error);
  if (status != COLL_OK || call->count == 0)
    return status;
  if (user)
    user->fn(call->in, call->inout, call->inout, call->count, (coll_type)call->type, user->context);
  else
    reduce(call->inout, NULL, call->in, call->inout, call->count);
  return COLL_OK;
}

coll_status coll_reduce_local(const void *in, void *inout, size_t count, coll_type type, coll_op op,
                              coll_comm *comm) {
  const local_call call = {in, inout, count, (int)type, op};
  if (!comm)
    return reduce_local(&call, NULL);
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  coll_error error = COLL_ERROR_INIT;
  status = reduce_local(&call, &error);
  if (status != COLL_OK)
    colli_comm_refuse_as(comm, &error);
  colli_call_leave(comm);
  return status;
}
