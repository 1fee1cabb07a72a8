/* direct_call.c: puts copies, meets and kernels of one collective into a stream. */
#include "libcoll/stream/direct_call.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/stream/direct_in_place.h"
#include "libcoll/stream/direct_meet.h"
#include "libcoll/stream/direct_party.h"
#include "libcoll/stream/direct_round.h"

/* ---- make and free --------------------------------------------------------------------------- */

/* Whether there may be other data between the blocks of the input. */
static bool has_gaps(const colli_direct_call *it) {
  return it->call->varying && it->call->coll == COLLI_REDUCE_SCATTER;
}

/* Takes memory for what kernels do not reach, and for addresses that are not their arguments. */
static coll_status take_memory(colli_direct_call *it, coll_error *error) {
  coll_comm *comm = it->comm;
  const size_t beyond = comm->nranks > COLL_GPU_PLACES ? (size_t)comm->nranks - COLL_GPU_PLACES : 0;
  const int device = comm->direct->peers->device;
  const int from = it->reads ? colli_gpu_device_of(comm->gpu, it->call->sendbuf) : device;
  const int to = it->writes ? colli_gpu_device_of(comm->gpu, it->call->recvbuf) : device;
  it->afar = from != device && from != COLLI_GPU_HOST;
  it->on_host = to == COLLI_GPU_HOST;
  const size_t packed = has_gaps(it) ? colli_direct_packed(it, (size_t)comm->nranks) : it->reads;
  if (from == COLLI_GPU_HOST && !(it->in = colli_gpu_take_pinned(comm->gpu, packed, error)))
    return error->status;
  if (to != device && !(it->out = colli_gpu_take_pinned(comm->gpu, it->writes, error)))
    return error->status;
  /* In place there are no more kernels than that, and one that looks after the others. */
  const size_t bytes = beyond * (it->rounds * 3 + 1) * sizeof(struct coll_gpu_piece);
  if (bytes && !(it->addresses = colli_gpu_take_pinned(comm->gpu, bytes, error)))
    return error->status;
  return COLL_OK;
}

coll_status colli_direct_check_stream(coll_comm *comm, const char *name,
                                      const colli_gpu_peers *peers, int device, bool primary) {
  if (!primary)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, name,
                             "the stream is not one of GPU %d's primary context, which the "
                             "communicator uses; make it after cudaSetDevice() or "
                             "cuDevicePrimaryCtxRetain(), or set COLL_GPU_MODE=staged",
                             peers->device);
  if (device != peers->device)
    return colli_comm_refuse(comm, COLL_ERR_INVALID_USAGE, name,
                             "the stream is one of GPU %d, but the communicator uses GPU %d, which "
                             "was current when it was created; use a stream of that one, or "
                             "COLL_GPU_MODE=staged",
                             device, peers->device);
  return COLL_OK;
}

coll_status colli_direct_call_make(coll_comm *comm, coll_request *request,
                                   const colli_direct_shape *shape, int device, bool primary,
                                   colli_direct_call *it) {
  const colli_gpu_peers *peers = comm->direct->peers;
  const colli_call *call = request->kept;
  const size_t elem = colli_direct_elem(call);
  coll_error error = COLL_ERROR_INIT;
  *it = (colli_direct_call){.comm = comm, .request = request, .call = call, .shape = *shape};
  coll_status status = colli_direct_check_stream(comm, call->name, peers, device, primary);
  if (status != COLL_OK)
    return status;
  if (call->coll != COLLI_BARRIER)
    colli_call_extent(&comm->calls, call, &it->reads, &it->writes);
  if (call->coll == COLLI_EXSCAN && comm->rank == 0)
    it->writes = 0;
  it->reads *= elem;
  it->writes *= elem;
  it->piece = colli_direct_piece(&it->shape);
  const size_t most = colli_direct_longest(it);
  it->rounds = most > 0 ? (most + it->piece - 1) / it->piece : 1;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  status = take_memory(it, &error);
  colli_call_resume(comm);
  if (status == COLL_OK)
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
  colli_direct_leave_places(it);
}

coll_status colli_direct_call_settle(colli_direct_call *it, colli_gpu_passage *passage, bool waits,
                                     unsigned *stops, coll_error *error) {
  colli_direct *direct = it->comm->direct;
  it->captured = passage->captured;
  it->way = colli_direct_way(direct, it->captured);
  direct->has_graphs |= it->captured;
  it->waits = waits;
  it->first = direct->meets + 1;
  it->number = direct->calls;
  *stops = (unsigned)colli_direct_meets(&it->shape, colli_direct_longest(it), it->captured);
  colli_direct_settle_places(it, stops);
  *stops += it->waits;
  if (it->way != COLLI_GPU_ORDERED)
    it->number = ++direct->calls;
  if (it->way == COLLI_GPU_MEET) {
    *stops = 0;
    return COLL_OK;
  }
  const bool asks_host = it->way == COLLI_GPU_ORDERED || it->waits;
  if (!asks_host)
    return COLL_OK;
  colli_call_pause(it->comm); /* the driver may wait for kernels that wait for other ranks */
  const coll_status status = colli_gpu_passage_take_answer(passage, error);
  colli_call_resume(it->comm);
  return status;
}

/* ---- the parts of a round -------------------------------------------------------------------- */

/* Copies this rank's pieces into its slot, unless it has gone on without the others. */
static coll_status put_input(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const size_t parts = colli_direct_parts(&it->shape);
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
      at = colli_direct_block(it, true, i, &bytes);
    pieces[i] =
        (struct coll_gpu_piece){slot + i * it->piece, colli_direct_input(it) + at + r->first,
                                colli_direct_in_round(r, bytes)};
    if (it->afar) { /* kernels do not reach it */
      const uint64_t near = colli_gpu_peers_result(peers, r->passage->captured) + i * it->piece;
      if (status == COLL_OK)
        status = colli_direct_put_copy(r, near, pieces[i].from, pieces[i].bytes);
      pieces[i].from = near;
    }
  }
  if (status == COLL_OK)
    status =
        colli_direct_put_pieces(r, pieces, parts, colli_direct_guard(it->comm->direct, it->way));
  free(pieces);
  return status;
}

/* Copies from the slots of ranks [first, end): from `part` of each, `blocks` of the result or its
 * beginning. */
static coll_status pull(const colli_direct_round *r, int first, int end, size_t part, bool blocks) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  struct coll_gpu_piece *pieces = malloc((size_t)(end - first) * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  size_t count = 0;
  for (int rank = first; rank < end; rank++) {
    size_t bytes = it->writes, at = 0;
    if (blocks)
      at = colli_direct_block(it, false, (size_t)rank, &bytes);
    bytes = colli_direct_in_round(r, bytes);
    if (bytes > 0)
      pieces[count++] = (struct coll_gpu_piece){
          colli_direct_result(it) + at + r->first,
          colli_gpu_peers_slot(peers, rank, r->slot) + part * it->piece, bytes};
  }
  const coll_status status = count > 0 ? colli_direct_put_pieces(r, pieces, count, 0) : COLL_OK;
  free(pieces);
  return status;
}

/* The second half of an all-reduce in segments: each rank folds its segment into its own slot, all
 * meet, and copy all segments. Nobody else reads this rank's segment of its slot meanwhile. */
static coll_status reduce_segments(const colli_direct_round *r, size_t bytes) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const size_t n = (size_t)peers->nranks, rank = (size_t)peers->rank;
  const size_t segment = colli_direct_segment(&it->shape, bytes);
  const size_t first = rank * segment < bytes ? rank * segment : bytes;
  const size_t own = bytes - first < segment ? bytes - first : segment;
  struct coll_gpu_piece *pieces = malloc(n * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  size_t count = 0;
  for (size_t at = 0; at < bytes; at += segment, count++)
    pieces[count] = (struct coll_gpu_piece){colli_direct_result(it) + r->first + at,
                                            colli_gpu_peers_slot(peers, (int)count, r->slot) + at,
                                            bytes - at < segment ? bytes - at : segment};
  coll_status status = colli_direct_put_fold(
      r, peers->nranks, first, colli_gpu_peers_slot(peers, peers->rank, r->slot) + first, own,
      colli_direct_guard(it->comm->direct, it->way));
  if (status == COLL_OK)
    status = colli_direct_meet(r);
  if (status == COLL_OK)
    status = colli_direct_put_pieces(r, pieces, count, 0);
  free(pieces);
  return status;
}

/* After all have met: makes this rank's part of the result. */
static coll_status put_result(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  const int n = it->comm->nranks, rank = it->comm->rank, root = it->call->root;
  const uint64_t to = colli_direct_result(it) + r->first;
  const size_t bytes = colli_direct_in_round(r, it->writes);
  if (it->writes == 0)
    return COLL_OK;
  switch (it->call->coll) {
  case COLLI_ALLREDUCE:
    if (colli_direct_in_segments(&it->shape, bytes))
      return reduce_segments(r, bytes);
    return colli_direct_put_fold(r, n, 0, to, bytes, 0);
  case COLLI_REDUCE:
    return colli_direct_put_fold(r, n, 0, to, bytes, 0);
  case COLLI_REDUCE_SCATTER:
    return colli_direct_put_fold(r, n, (size_t)rank * it->piece, to, bytes, 0);
  case COLLI_SCAN:
    return colli_direct_put_fold(r, rank + 1, 0, to, bytes, 0);
  case COLLI_EXSCAN:
    return colli_direct_put_fold(r, rank, 0, to, bytes, 0);
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
  const colli_call *call = it->call;
  const size_t elem = colli_direct_elem(call);
  char *to = it->in->memory;
  if (!has_gaps(it))
    memcpy(to, call->sendbuf, it->reads);
  for (size_t i = 0; has_gaps(it) && i < (size_t)it->comm->nranks; i++)
    memcpy(to + colli_direct_packed(it, i), (const char *)call->sendbuf + call->in_displs[i] * elem,
           call->in_counts[i] * elem);
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
    const size_t at = colli_direct_block(it, false, i, &bytes);
    memcpy(to + at, from + at, bytes);
  }
}

/* Has the host do something when the stream comes there. */
static coll_status put_host(const colli_direct_round *r, colli_cu_host_fn function) {
  const colli_cuda *cuda = &r->passage->gpu->cuda;
  const colli_cu_result result = cuda->launch_host_func(r->passage->stream, function, r->it);
  return colli_cuda_status(cuda, r->error, "cuLaunchHostFunc", r->passage->device, result);
}

/* Copies the result to memory of another device. */
static coll_status put_blocks(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  const uint64_t to = (uint64_t)it->call->recvbuf;
  if (!it->call->varying || it->call->coll != COLLI_ALLGATHER)
    return colli_direct_put_copy(r, to, colli_direct_result(it), it->writes);
  coll_status status = COLL_OK;
  for (size_t i = 0; i < (size_t)it->comm->nranks && status == COLL_OK; i++) {
    size_t bytes;
    const size_t at = colli_direct_block(it, false, i, &bytes);
    status = colli_direct_put_copy(r, to + at, colli_direct_result(it) + at, bytes);
  }
  return status;
}

/* Lets the stream wait until calls in other streams have ended. */
static coll_status put_order(const colli_direct_round *r) {
  if (r->it->way == COLLI_GPU_MEET)
    return colli_direct_put_order(r->it->comm->direct, r->passage, r->error);
  return colli_gpu_passage_wait(r->passage, r->error);
}

/* Puts one round into the stream. */
static coll_status put_round(const colli_direct_round *r) {
  coll_status status = COLL_OK;
  if (r->passage->captured) /* whatever uses the slot before has ended on all ranks */
    status = colli_direct_meet(r);
  if (status == COLL_OK)
    status = put_input(r);
  if (status == COLL_OK)
    status = colli_direct_meet(r);
  return status == COLL_OK ? put_result(r) : status;
}

coll_status colli_direct_call_fill(colli_direct_call *it, colli_gpu_passage *passage,
                                   coll_error *error) {
  colli_direct_round r = {.it = it, .passage = passage, .error = error};
  colli_direct *direct = it->comm->direct;
  bool served = false;
  coll_status status = it->waits ? put_order(&r) : COLL_OK;
  direct->end = NULL;
  if (status == COLL_OK && it->in)
    status = put_host(&r, fetch_input);
  if (status == COLL_OK && it->way == COLLI_GPU_MEET && direct->party)
    status = colli_direct_party_put(&r, &served);
  const bool in_slots = !served && !it->places.check;
  if (status == COLL_OK && !served && it->places.check)
    status = colli_direct_put_in_place(&r);
  for (size_t i = 0; i < it->rounds && in_slots && status == COLL_OK; i++) {
    r.first = i * it->piece;
    r.slot = colli_direct_next_slot(&r);
    status = put_round(&r);
  }
  if (status == COLL_OK && it->out)
    status = it->on_host ? put_host(&r, deliver_result) : put_blocks(&r);
  if (status != COLL_OK)
    return status;
  return it->way != COLLI_GPU_ORDERED ? colli_direct_put_end(direct, passage, it->number, error)
                                      : colli_gpu_passage_end(passage, error);
}
