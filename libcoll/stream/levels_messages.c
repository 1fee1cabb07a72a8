/* levels_messages.c: parts across groups, as messages from and to GPU memory, and kernels. */
#include "libcoll/stream/levels_messages.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/names.h"
#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/gpu_lend.h"
#include "libcoll/run/p2p_call.h"
#include "libcoll/run/request.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/enqueue.h"

/* A part on its way into a stream. */
typedef struct messages {
  coll_comm *comm;
  const colli_call *call; /* roots and blocks are numbers of groups */
  const colli_gpu_passage *passage;
  char *room;
  size_t elem;
  int n, own;              /* groups, and this rank's */
  bool near_in, near_out;  /* kernels reach the buffer */
  coll_request **requests; /* to begin together: room for 2 n */
  int count;
} messages;

/* A block of a call: where it begins, and how long it is; in elements. */
typedef struct block {
  size_t first, count;
} block;

/* ---- which ----------------------------------------------------------------------------------- */

/* Whether a reduction's result is in equal pieces at first, one for each group. */
static bool has_pieces(const colli_call *call) {
  return call->coll == COLLI_ALLREDUCE || call->coll == COLLI_REDUCE;
}

/* The i-th block of a call among n groups. */
static block block_of(const colli_call *call, int i, int n) {
  const bool gathers = call->coll == COLLI_ALLGATHER;
  const size_t *counts = gathers ? call->out_counts : call->in_counts;
  const size_t *displs = gathers ? call->out_displs : call->in_displs;
  if (has_pieces(call)) {
    const size_t at = colli_levels_piece_at(call->count, i, n);
    return (block){at, colli_levels_piece_at(call->count, i + 1, n) - at};
  }
  if (!call->varying)
    return (block){call->count * (size_t)i, call->count};
  size_t packed = 0;
  for (int before = 0; !displs && before < i; before++)
    packed += counts[before];
  return (block){displs ? displs[i] : packed, counts[i]};
}

/* Elements of the longest block. */
static size_t longest(const colli_call *call, int n) {
  size_t most = 0;
  for (int i = 0; i < n; i++) {
    const size_t count = block_of(call, i, n).count;
    most = count > most ? count : most;
  }
  return most;
}

/* Elements of each block that the room holds, one of each group. */
static size_t room_of(const coll_comm *comm, size_t elem) {
  return colli_levels_message_room(comm->levels->room_bytes, comm->levels->ngroups, elem);
}

bool colli_levels_can_message(const coll_comm *comm, const colli_call *part) {
  const size_t elem = colli_type_bytes(part->type);
  const size_t count =
      part->coll == COLLI_BROADCAST ? part->count : longest(part, comm->levels->ngroups);
  return comm->levels->by_messages &&
         colli_levels_are_messages(part->coll, count, room_of(comm, elem), elem,
                                   colli_gpu_lend_least(comm));
}

/* ---- messages -------------------------------------------------------------------------------- */

/* Adds a message to or from a group to those that will begin together. */
static coll_status add(messages *it, int group, bool sends, const char *buf, size_t count) {
  const coll_comm *comm = it->comm;
  const int peer = colli_levels_member(comm->levels, group, comm->levels->place);
  const colli_call call = colli_p2p_part(it->call->name, sends, peer, buf, count, it->call->type);
  if (count == 0)
    return COLL_OK;
  const coll_status status = colli_call_keep(it->comm, &call, &it->requests[it->count]);
  it->count += status == COLL_OK;
  return status;
}

/* Puts them into the stream. */
static coll_status begin(messages *it) {
  const int count = it->count;
  it->count = 0;
  return count > 0 ? colli_enqueue(it->comm, it->requests, count, NULL, it->passage->stream)
                   : COLL_OK;
}

/* ---- kernels --------------------------------------------------------------------------------- */

/* A kernel to be put into the stream; one of the two. */
typedef struct kernel {
  const colli_gpu_fold_call *fold;
  const colli_gpu_copy_call *copy;
} kernel;

/* Puts one into the stream. */
static coll_status launch(const messages *it, const kernel *k) {
  coll_comm *comm = it->comm;
  const colli_cuda *cuda = &comm->gpu->cuda;
  const colli_gpu_programs *programs = comm->levels->within->direct->programs;
  coll_error error = COLL_ERROR_INIT;
  colli_gpu_thread before;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  coll_status status = colli_gpu_passage_enter(it->passage, &before, &error);
  if (status == COLL_OK) {
    status = k->fold ? colli_gpu_launch_fold(cuda, programs, it->passage->stream, k->fold, &error)
                     : colli_gpu_launch_copy(cuda, programs, it->passage->stream, k->copy, &error);
    colli_gpu_leave(comm->gpu, &before);
  }
  colli_call_resume(comm);
  if (status == COLL_OK)
    return COLL_OK;
  snprintf(error.operation, sizeof(error.operation), "%s", it->call->name);
  return colli_comm_refuse_as(comm, &error);
}

/* Copies this rank's own block; where kernels do not reach, as a message to itself. */
static coll_status copy_own(messages *it, char *to, const char *from, size_t count, bool near) {
  const struct coll_gpu_piece piece = {(uint64_t)to, (uint64_t)from, count * it->elem};
  const colli_gpu_copy_call copy = {.pieces = &piece, .count = 1};
  if (to == from || count == 0)
    return COLL_OK;
  if (near)
    return launch(it, &(kernel){.copy = &copy});
  const coll_status status = add(it, it->own, true, from, count);
  return status == COLL_OK ? add(it, it->own, false, to, count) : status;
}

/* Where a group's elements are in the room. */
static char *place_in_room(const messages *it, int group) {
  return it->room + (size_t)group * room_of(it->comm, it->elem) * it->elem;
}

/* Combines what is in the room, in the order of the groups, into this rank's place there. Of more
 * than a kernel's inputs the first place has what is combined so far. */
static coll_status fold(const messages *it, size_t count) {
  uint64_t inputs[COLL_GPU_PLACES];
  const uint64_t out = (uint64_t)place_in_room(it, it->own);
  coll_status status = COLL_OK;
  inputs[0] = (uint64_t)place_in_room(it, 0);
  for (int next = 1; next < it->n && count > 0 && status == COLL_OK;) {
    uint32_t ninputs = 1;
    while (next < it->n && ninputs < COLL_GPU_PLACES)
      inputs[ninputs++] = (uint64_t)place_in_room(it, next++);
    const bool last = next == it->n;
    const colli_gpu_fold_call call = {.type = (coll_type)it->call->type,
                                      .op = it->call->op == COLL_AVG && !last ? COLL_SUM
                                                                              : it->call->op,
                                      .nranks = it->n,
                                      .ninputs = ninputs,
                                      .noutputs = 1,
                                      .inputs = inputs,
                                      .outputs = last ? &out : inputs,
                                      .count = count};
    status = launch(it, &(kernel){.fold = &call});
  }
  return status;
}

/* ---- collectives ----------------------------------------------------------------------------- */

/* Where an element of the input, or of the result, is. */
static const char *input_at(const messages *it, size_t element) {
  return (const char *)it->call->sendbuf + element * it->elem;
}

static char *result_at(const messages *it, size_t element) {
  return (char *)it->call->recvbuf + element * it->elem;
}

/* What is in a round of a group's block. */
static block in_round(const messages *it, int group, size_t round, size_t each) {
  const block whole = block_of(it->call, group, it->n);
  const size_t skipped = round * each < whole.count ? round * each : whole.count;
  const size_t left = whole.count - skipped;
  return (block){whole.first + skipped, left < each ? left : each};
}

/* Brings the elements of a round to the ranks that fold them, and folds this rank's. */
static coll_status scatter_and_fold(messages *it, size_t round, size_t each) {
  const size_t own = in_round(it, it->own, round, each).count;
  coll_status status = COLL_OK;
  for (int i = 1; i < it->n && status == COLL_OK; i++) {
    const int to = (it->own + i) % it->n, from = (it->own + it->n - i) % it->n;
    const block sent = in_round(it, to, round, each);
    status = add(it, to, true, input_at(it, sent.first), sent.count);
    if (status == COLL_OK)
      status = add(it, from, false, place_in_room(it, from), own);
  }
  if (status == COLL_OK)
    status = copy_own(it, place_in_room(it, it->own),
                      input_at(it, in_round(it, it->own, round, each).first), own, it->near_in);
  if (status == COLL_OK)
    status = begin(it);
  return status == COLL_OK ? fold(it, own) : status;
}

/* Brings this rank's block, which is at `from`, to all others or to the root, and theirs to their
 * places in the result. near: kernels reach both. */
static coll_status gather(messages *it, size_t round, size_t each, const char *from, bool near) {
  const bool to_root = it->call->coll == COLLI_REDUCE, is_root = it->own == it->call->root;
  const block own = in_round(it, it->own, round, each);
  coll_status status = COLL_OK;
  for (int i = 1; i < it->n && status == COLL_OK; i++) {
    const int to = (it->own + i) % it->n, source = (it->own + it->n - i) % it->n;
    const block got = in_round(it, source, round, each);
    if (!to_root || to == it->call->root)
      status = add(it, to, true, from, own.count);
    if (status == COLL_OK && (!to_root || is_root))
      status = add(it, source, false, result_at(it, got.first), got.count);
  }
  if (status == COLL_OK && (!to_root || is_root))
    status = copy_own(it, result_at(it, own.first), from, own.count, near);
  return status == COLL_OK ? begin(it) : status;
}

/* One round of a reduction. */
static coll_status reduce(messages *it, size_t round, size_t each) {
  coll_status status = scatter_and_fold(it, round, each);
  const char *folded = place_in_room(it, it->own);
  if (status != COLL_OK)
    return status;
  if (has_pieces(it->call))
    return gather(it, round, each, folded, it->near_out);
  const block own = in_round(it, it->own, round, each), whole = block_of(it->call, it->own, it->n);
  status = copy_own(it, result_at(it, own.first - whole.first), folded, own.count, it->near_out);
  return status == COLL_OK ? begin(it) : status;
}

/* One round of an all-gather. */
static coll_status allgather(messages *it, size_t round, size_t each) {
  const block own = in_round(it, it->own, round, each), whole = block_of(it->call, it->own, it->n);
  return gather(it, round, each, input_at(it, own.first - whole.first),
                it->near_in && it->near_out);
}

/* Passes pieces along the chain that begins at the root. */
static coll_status broadcast(messages *it) {
  const size_t count = it->call->count;
  const size_t each = colli_levels_in_chain(count, it->n, it->elem, colli_gpu_lend_least(it->comm));
  const size_t pieces = (count + each - 1) / each;
  const int place = (it->own - it->call->root + it->n) % it->n;
  const bool receives = place > 0, sends = place + 1 < it->n;
  const char *from = receives ? result_at(it, 0) : input_at(it, 0);
  coll_status status = COLL_OK;
  if (!receives)
    status = copy_own(it, result_at(it, 0), from, count, it->near_in && it->near_out);
  for (size_t step = receives ? 0 : 1; step < pieces + sends && status == COLL_OK; step++) {
    if (receives && step < pieces) {
      const size_t left = count - step * each;
      status = add(it, (it->own + it->n - 1) % it->n, false, result_at(it, step * each),
                   left < each ? left : each);
    }
    if (status == COLL_OK && sends && step > 0) {
      const size_t left = count - (step - 1) * each;
      status = add(it, (it->own + 1) % it->n, true, from + (step - 1) * each * it->elem,
                   left < each ? left : each);
    }
    if (status == COLL_OK)
      status = begin(it);
  }
  return status;
}

/* Puts all of a part into the stream. */
static coll_status put_all(messages *it) {
  const bool reduces = colli_reduces(it->call->coll);
  if (it->call->coll == COLLI_BROADCAST)
    return broadcast(it);
  const size_t most = longest(it->call, it->n);
  const size_t each = colli_levels_in_round(it->call->coll, most, room_of(it->comm, it->elem),
                                            it->elem, colli_gpu_lend_least(it->comm));
  coll_status status = COLL_OK;
  for (size_t round = 0; round * each < most && status == COLL_OK; round++)
    status = reduces ? reduce(it, round, each) : allgather(it, round, each);
  return status;
}

coll_status colli_levels_put_messages(coll_comm *comm, const colli_call *part,
                                      const colli_gpu_passage *passage, char *room) {
  const colli_levels *levels = comm->levels;
  messages it = {.comm = comm,
                 .call = part,
                 .passage = passage,
                 .room = room,
                 .elem = colli_type_bytes(part->type),
                 .n = levels->ngroups,
                 .own = levels->group};
  it.near_in = colli_gpu_device_of(comm->gpu, part->sendbuf) == passage->device;
  it.near_out = colli_gpu_device_of(comm->gpu, part->recvbuf) == passage->device;
  it.requests = malloc(2 * (size_t)it.n * sizeof(*it.requests));
  if (!it.requests)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, part->name, "out of memory for messages");
  const coll_status status = put_all(&it);
  for (int i = 0; i < it.count; i++)
    colli_request_put(it.requests[i]);
  free(it.requests);
  return status;
}
