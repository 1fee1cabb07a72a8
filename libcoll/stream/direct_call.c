/* direct_call.c: puts copies, meets and kernels of one collective into a stream. */
#include "libcoll/stream/direct_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/stream/direct_meet.h"

#define ALIGN          64        /* of pieces and segments */
#define CAPTURED_SLOT  2         /* eager calls take turns with the other two */
#define ONE_SHOT_BYTES (2 << 20) /* an all-reduce reads no more than this of all slots at once */

/* One round of a call. */
typedef struct direct_round {
  colli_direct_call *it;
  colli_gpu_passage *passage;
  coll_error *error;
  int slot;
  size_t first; /* bytes of each block in earlier rounds */
} direct_round;

/* ---- what a call moves ----------------------------------------------------------------------- */

/* Bytes of an element. */
static size_t elem_of(const colli_call *call) {
  return call->coll == COLLI_BARRIER ? 1 : coll_type_bytes((coll_type)call->type);
}

/* How many blocks a rank puts into its slot. */
static size_t parts_of(const coll_comm *comm, const colli_call *call) {
  const bool many = call->coll == COLLI_SCATTER || call->coll == COLLI_ALLTOALL ||
                    call->coll == COLLI_REDUCE_SCATTER;
  return many ? (size_t)comm->nranks : 1;
}

/* A block of input (where there are parts) or result: its first byte and its length. */
static size_t block(const colli_direct_call *it, bool of_input, size_t i, size_t *bytes) {
  const colli_call *call = it->call;
  const size_t elem = elem_of(call);
  const size_t *counts = of_input ? call->in_counts : call->out_counts;
  const size_t *displs = of_input ? call->in_displs : call->out_displs;
  *bytes = (call->varying ? counts[i] : call->count) * elem;
  return (call->varying ? displs[i] : i * call->count) * elem;
}

/* The longest block of all ranks, which all of them know. */
static size_t longest(const colli_direct_call *it) {
  const colli_call *call = it->call;
  size_t most = 0, bytes;
  if (call->coll == COLLI_BARRIER)
    return 0;
  for (size_t i = 0; i < (size_t)(call->varying ? it->comm->nranks : 1); i++) {
    block(it, call->coll == COLLI_REDUCE_SCATTER, i, &bytes);
    most = bytes > most ? bytes : most;
  }
  return most;
}

/* What of a block is in a round. */
static size_t in_round(const direct_round *r, size_t bytes) {
  const size_t left = bytes > r->first ? bytes - r->first : 0;
  return left < r->it->piece ? left : r->it->piece;
}

/* Whether an all-reduce of so many bytes is folded in segments. */
static bool in_segments(const colli_direct_call *it, size_t bytes) {
  const size_t n = (size_t)it->comm->nranks;
  return it->call->coll == COLLI_ALLREDUCE && n > 2 && bytes * n > ONE_SHOT_BYTES;
}

bool colli_direct_takes(const coll_comm *comm, const colli_call *call) {
  const colli_direct *direct = comm->direct;
  if (!direct || call->coll == COLLI_SENDRECV)
    return false;
  const bool all_know = call->coll == COLLI_ALLGATHER || call->coll == COLLI_REDUCE_SCATTER;
  if ((call->varying && !all_know) || direct->peers->slot_bytes / parts_of(comm, call) < ALIGN * 2)
    return false;
  colli_plan plan;
  const colli_plan_key key = colli_call_key(call, 0);
  colli_call_resolve(&comm->calls, call, &key, &plan);
  if (plan.checks_finite)
    return false;
  if (!colli_reduces(call->coll))
    return true;
  const bool left = plan.order == COLLI_ORDER_ANY || plan.order == COLLI_ORDER_LEFT ||
                    comm->nranks == 2; /* one tree of two is as good */
  return left && !plan.user && colli_gpu_folds((coll_type)call->type, call->op, plan.widened);
}

/* ---- make and free --------------------------------------------------------------------------- */

/* Takes memory for what kernels do not reach. */
static coll_status take_memory(colli_direct_call *it, coll_error *error) {
  coll_comm *comm = it->comm;
  const size_t beyond = comm->nranks > COLL_GPU_PLACES ? (size_t)comm->nranks - COLL_GPU_PLACES : 0;
  const int device = comm->direct->peers->device;
  const int from = it->reads ? colli_gpu_device_of(comm->gpu, it->call->sendbuf) : device;
  const int to = it->writes ? colli_gpu_device_of(comm->gpu, it->call->recvbuf) : device;
  it->afar = from != device && from != COLLI_GPU_HOST;
  it->on_host = to == COLLI_GPU_HOST;
  if (from == COLLI_GPU_HOST && !(it->in = colli_gpu_take_pinned(comm->gpu, it->reads, error)))
    return error->status;
  if (to != device && !(it->out = colli_gpu_take_pinned(comm->gpu, it->writes, error)))
    return error->status;
  const size_t bytes = beyond * it->rounds * 3 * sizeof(struct coll_gpu_piece);
  if (bytes && !(it->addresses = colli_gpu_take_pinned(comm->gpu, bytes, error)))
    return error->status;
  return COLL_OK;
}

coll_status colli_direct_call_make(coll_comm *comm, coll_request *request, int device,
                                   colli_direct_call *it) {
  const colli_gpu_peers *peers = comm->direct->peers;
  const colli_call *call = request->kept;
  const size_t elem = elem_of(call);
  coll_error error = COLL_ERROR_INIT;
  *it = (colli_direct_call){.comm = comm, .request = request, .call = call};
  if (device != peers->device)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, call->name,
                             "the stream is one of GPU %d, but the communicator uses GPU %d, which "
                             "was current when it was created; use a stream of that one, or "
                             "COLL_GPU_MODE=staged",
                             device, peers->device);
  if (call->coll != COLLI_BARRIER)
    colli_call_extent(&comm->calls, call, &it->reads, &it->writes);
  if (call->coll == COLLI_EXSCAN && comm->rank == 0)
    it->writes = 0;
  it->reads *= elem;
  it->writes *= elem;
  it->piece = peers->slot_bytes / parts_of(comm, call) / ALIGN * ALIGN;
  const size_t most = longest(it);
  it->rounds = most > 0 ? (most + it->piece - 1) / it->piece : 1;
  if (take_memory(it, &error) == COLL_OK)
    return COLL_OK;
  colli_direct_call_free(it);
  snprintf(error.operation, sizeof(error.operation), "%s", call->name);
  return colli_comm_refuse_as(comm, &error);
}

void colli_direct_call_free(colli_direct_call *it) {
  colli_pinned *const blocks[] = {it->in, it->out, it->addresses};
  for (int i = 0; i < 3; i++)
    if (blocks[i])
      colli_gpu_put_pinned(it->comm->gpu, blocks[i]);
  it->in = it->out = it->addresses = NULL;
}

coll_status colli_direct_call_settle(colli_direct_call *it, colli_gpu_passage *passage,
                                     unsigned *stops, coll_error *error) {
  colli_direct *direct = it->comm->direct;
  direct_round r = {.it = it};
  const size_t most = longest(it);
  const bool captured = passage->captured;
  it->way = colli_direct_way(direct, captured);
  it->waits = !captured && direct->open > 0 && direct->stream != passage->stream;
  if (!captured)
    direct->stream = passage->stream;
  it->first = direct->meets + 1;
  it->number = direct->calls;
  *stops = 0;
  if (it->way != COLLI_GPU_ORDERED)
    it->number = ++direct->calls;
  if (it->way == COLLI_GPU_MEET)
    return COLL_OK;
  *stops = it->waits;
  for (size_t i = 0; i < it->rounds; i++) {
    r.first = i * it->piece;
    *stops += (in_segments(it, in_round(&r, most)) ? 2 : 1) + captured;
  }
  const bool asks_host = it->way == COLLI_GPU_ORDERED || it->waits;
  return asks_host ? colli_gpu_passage_take_answer(passage, error) : COLL_OK;
}

/* ---- the parts of a round -------------------------------------------------------------------- */

/* Copies bytes in the stream. */
static coll_status put_copy(const direct_round *r, uint64_t to, uint64_t from, size_t bytes) {
  const colli_gpu_passage *passage = r->passage;
  const colli_cuda *cuda = &passage->gpu->cuda;
  if (bytes == 0)
    return COLL_OK;
  const colli_cu_result result = cuda->memcpy_async(to, from, bytes, passage->stream);
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  return colli_cuda_fail(cuda, r->error, "cuMemcpyAsync", passage->device, result);
}

/* The address of this rank's input, or of its result, for copies and kernels. */
static uint64_t input_of(const colli_direct_call *it) {
  return (uint64_t)(it->in ? it->in->memory : it->call->sendbuf);
}

static uint64_t result_of(const colli_direct_call *it) {
  return (uint64_t)(it->out ? it->out->memory : it->call->recvbuf);
}

/* Lets all ranks meet. */
static coll_status put_meet(const direct_round *r) {
  colli_direct_call *it = r->it;
  return colli_direct_put_meet(it->comm->direct, r->passage, it->way, it->request, it->place++ * 2,
                               r->error);
}

/* Room for addresses that are not arguments; where the host and the device see it. */
static void *take_addresses(const direct_round *r, size_t bytes) {
  colli_direct_call *it = r->it;
  if (bytes == 0)
    return NULL;
  char *at = (char *)it->addresses->memory + it->used;
  it->used += bytes;
  return at;
}

/* Copies pieces by a kernel, which does nothing if the guard's word is not 0. */
static coll_status put_pieces(const direct_round *r, const struct coll_gpu_piece *pieces,
                              size_t count, uint64_t guard) {
  const size_t beyond = count > COLL_GPU_PLACES ? count - COLL_GPU_PLACES : 0;
  void *table = take_addresses(r, beyond * sizeof(*pieces));
  const colli_gpu_copy_call copy = {pieces, (uint32_t)count, table, (uint64_t)table, guard};
  return colli_gpu_launch_copy(&r->passage->gpu->cuda, r->it->comm->direct->programs,
                               r->passage->stream, &copy, r->error);
}

/* Copies this rank's pieces into its slot, unless it has gone on without the others. */
static coll_status put_input(const direct_round *r) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const size_t parts = parts_of(it->comm, it->call);
  const uint64_t slot = colli_gpu_peers_slot(peers, peers->rank, r->slot);
  coll_status status = COLL_OK;
  if (it->reads == 0)
    return COLL_OK;
  struct coll_gpu_piece *pieces = malloc(parts * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  for (size_t i = 0; i < parts; i++) {
    size_t bytes = it->reads, at = 0;
    if (parts > 1)
      at = block(it, true, i, &bytes);
    pieces[i] = (struct coll_gpu_piece){slot + i * it->piece, input_of(it) + at + r->first,
                                        in_round(r, bytes)};
    if (it->afar) { /* kernels do not reach it */
      const uint64_t near = colli_gpu_peers_result(peers, r->passage->captured) + i * it->piece;
      if (status == COLL_OK)
        status = put_copy(r, near, pieces[i].from, pieces[i].bytes);
      pieces[i].from = near;
    }
  }
  if (status == COLL_OK)
    status = put_pieces(r, pieces, parts, colli_direct_guard(it->comm->direct, it->way));
  free(pieces);
  return status;
}

/* Copies from the slots of ranks [first, end): from `part` of each, `blocks` of the result or its
 * beginning. */
static coll_status pull(const direct_round *r, int first, int end, size_t part, bool blocks) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  struct coll_gpu_piece *pieces = malloc((size_t)(end - first) * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  size_t count = 0;
  for (int rank = first; rank < end; rank++) {
    size_t bytes = it->writes, at = 0;
    if (blocks)
      at = block(it, false, (size_t)rank, &bytes);
    bytes = in_round(r, bytes);
    if (bytes > 0)
      pieces[count++] = (struct coll_gpu_piece){
          result_of(it) + at + r->first,
          colli_gpu_peers_slot(peers, rank, r->slot) + part * it->piece, bytes};
  }
  const coll_status status = count > 0 ? put_pieces(r, pieces, count, 0) : COLL_OK;
  free(pieces);
  return status;
}

/* Folds `bytes` at `offset` of the slots of ranks [0, end) into `to`. The guard is that of its
 * kernel. */
static coll_status fold(const direct_round *r, int end, size_t offset, uint64_t to, size_t bytes,
                        uint64_t guard) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const coll_type type = (coll_type)it->call->type;
  const bool alone = end == 1 && it->call->op >= COLL_LAND && it->call->op <= COLL_LXOR;
  const bool wide = it->comm->calls.accumulate == COLL_ACCUMULATE_FLOAT32 &&
                    colli_gpu_folds(type, it->call->op, true);
  const uint32_t inputs = alone ? 2 : (uint32_t)end;
  const uint64_t direct =
      colli_gpu_folds_at(type, to) ? to : colli_gpu_peers_result(peers, r->passage->captured);
  if (bytes == 0)
    return COLL_OK;
  uint64_t *from = malloc(inputs * sizeof(*from));
  if (!from)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  for (int rank = 0; rank < end; rank++)
    from[rank] = colli_gpu_peers_slot(peers, rank, r->slot) + offset;
  if (alone) /* with itself, which makes it 0 or 1 */
    from[1] = from[0];
  void *table = take_addresses(r, colli_gpu_fold_words(inputs, 1) * sizeof(uint64_t));
  const colli_gpu_fold_call call = {.type = type,
                                    .op = alone ? COLL_LAND : it->call->op,
                                    .wide = wide,
                                    .nranks = it->comm->nranks,
                                    .ninputs = inputs,
                                    .noutputs = 1,
                                    .inputs = from,
                                    .outputs = &direct,
                                    .count = bytes / elem_of(it->call),
                                    .table = table,
                                    .table_at = (uint64_t)table,
                                    .guard = guard};
  coll_status status = colli_gpu_launch_fold(&r->passage->gpu->cuda, it->comm->direct->programs,
                                             r->passage->stream, &call, r->error);
  free(from);
  return status == COLL_OK && direct != to ? put_copy(r, to, direct, bytes) : status;
}

/* The second half of an all-reduce in segments: each rank folds its segment into its own slot, all
 * meet, and copy all segments. Nobody else reads this rank's segment of its slot meanwhile. */
static coll_status reduce_segments(const direct_round *r, size_t bytes) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const size_t n = (size_t)peers->nranks, rank = (size_t)peers->rank;
  const size_t segment = ((bytes + n - 1) / n + ALIGN - 1) / ALIGN * ALIGN;
  const size_t first = rank * segment < bytes ? rank * segment : bytes;
  const size_t own = bytes - first < segment ? bytes - first : segment;
  struct coll_gpu_piece *pieces = malloc(n * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  size_t count = 0;
  for (size_t at = 0; at < bytes; at += segment, count++)
    pieces[count] = (struct coll_gpu_piece){result_of(it) + r->first + at,
                                            colli_gpu_peers_slot(peers, (int)count, r->slot) + at,
                                            bytes - at < segment ? bytes - at : segment};
  coll_status status =
      fold(r, peers->nranks, first, colli_gpu_peers_slot(peers, peers->rank, r->slot) + first, own,
           colli_direct_guard(it->comm->direct, it->way));
  if (status == COLL_OK)
    status = put_meet(r);
  if (status == COLL_OK)
    status = put_pieces(r, pieces, count, 0);
  free(pieces);
  return status;
}

/* After all have met: makes this rank's part of the result. */
static coll_status put_result(const direct_round *r) {
  const colli_direct_call *it = r->it;
  const int n = it->comm->nranks, rank = it->comm->rank, root = it->call->root;
  const uint64_t to = result_of(it) + r->first;
  const size_t bytes = in_round(r, it->writes);
  if (it->writes == 0)
    return COLL_OK;
  switch (it->call->coll) {
  case COLLI_ALLREDUCE:
    if (in_segments(it, bytes))
      return reduce_segments(r, bytes);
    return fold(r, n, 0, to, bytes, 0);
  case COLLI_REDUCE:
    return fold(r, n, 0, to, bytes, 0);
  case COLLI_REDUCE_SCATTER:
    return fold(r, n, (size_t)rank * it->piece, to, bytes, 0);
  case COLLI_SCAN:
    return fold(r, rank + 1, 0, to, bytes, 0);
  case COLLI_EXSCAN:
    return fold(r, rank, 0, to, bytes, 0);
  case COLLI_BROADCAST:
    return pull(r, root, root + 1, 0, false);
  case COLLI_SCATTER:
    return pull(r, root, root + 1, (size_t)rank, false);
  case COLLI_ALLGATHER:
  case COLLI_GATHER:
    return pull(r, 0, n, 0, true);
  case COLLI_ALLTOALL:
    return pull(r, 0, n, (size_t)rank, true);
  default:
    return COLL_OK;
  }
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* Copies the input from memory of the host to pinned memory. A thread of the driver calls this. */
static void fetch_input(void *arg) {
  const colli_direct_call *it = arg;
  memcpy(it->in->memory, it->call->sendbuf, it->reads);
}

/* Copies the result to memory of the host; between its blocks there may be other data. */
static void deliver_result(void *arg) {
  const colli_direct_call *it = arg;
  char *to = it->call->recvbuf;
  const char *from = it->out->memory;
  size_t bytes;
  if (!it->call->varying || it->call->coll != COLLI_ALLGATHER) {
    memcpy(to, from, it->writes);
    return;
  }
  for (size_t i = 0; i < (size_t)it->comm->nranks; i++) {
    const size_t at = block(it, false, i, &bytes);
    memcpy(to + at, from + at, bytes);
  }
}

/* Has the host do something when the stream comes there. */
static coll_status put_host(const direct_round *r, colli_cu_host_fn function) {
  const colli_cuda *cuda = &r->passage->gpu->cuda;
  const colli_cu_result result = cuda->launch_host_func(r->passage->stream, function, r->it);
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  return colli_cuda_fail(cuda, r->error, "cuLaunchHostFunc", r->passage->device, result);
}

/* Copies the result to memory of another device. */
static coll_status put_blocks(const direct_round *r) {
  const colli_direct_call *it = r->it;
  const uint64_t to = (uint64_t)it->call->recvbuf;
  if (!it->call->varying || it->call->coll != COLLI_ALLGATHER)
    return put_copy(r, to, result_of(it), it->writes);
  coll_status status = COLL_OK;
  for (size_t i = 0; i < (size_t)it->comm->nranks && status == COLL_OK; i++) {
    size_t bytes;
    const size_t at = block(it, false, i, &bytes);
    status = put_copy(r, to + at, result_of(it) + at, bytes);
  }
  return status;
}

/* Lets the stream wait until calls in other streams have ended. */
static coll_status put_order(const direct_round *r) {
  if (r->it->way == COLLI_GPU_MEET)
    return colli_direct_put_order(r->it->comm->direct, r->passage, r->error);
  return colli_gpu_passage_wait(r->passage, r->error);
}

/* Puts one round into the stream. */
static coll_status put_round(const direct_round *r) {
  coll_status status = COLL_OK;
  if (r->passage->captured) /* whatever uses the slot before has ended on all ranks */
    status = put_meet(r);
  if (status == COLL_OK)
    status = put_input(r);
  if (status == COLL_OK)
    status = put_meet(r);
  return status == COLL_OK ? put_result(r) : status;
}

coll_status colli_direct_call_fill(colli_direct_call *it, colli_gpu_passage *passage,
                                   coll_error *error) {
  direct_round r = {.it = it, .passage = passage, .error = error};
  colli_direct *direct = it->comm->direct;
  coll_status status = it->waits ? put_order(&r) : COLL_OK;
  if (status == COLL_OK && it->in)
    status = put_host(&r, fetch_input);
  for (size_t i = 0; i < it->rounds && status == COLL_OK; i++) {
    r.first = i * it->piece;
    r.slot = passage->captured ? CAPTURED_SLOT : (int)(direct->rounds++ % CAPTURED_SLOT);
    status = put_round(&r);
  }
  if (status == COLL_OK && it->out)
    status = it->on_host ? put_host(&r, deliver_result) : put_blocks(&r);
  if (status != COLL_OK)
    return status;
  return it->way != COLLI_GPU_ORDERED ? colli_direct_put_end(direct, passage, it->number, error)
                                      : colli_gpu_passage_end(passage, error);
}
