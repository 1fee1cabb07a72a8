/* pool.c: the pool of requests. */
#include "libcoll/comm/pool.h"

#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/comm/comm.h"

#define BLOCK_REQUESTS 16

/* Requests are allocated in blocks, so that a running program does not allocate. Those of messages
 * have no lanes: many may be in flight at a time, and each should touch little memory. */
typedef struct colli_request_block {
  struct colli_request_block *next;
  int count;
  struct {
    coll_request request;
    colli_lane lanes[COLLI_MAX_LANES];
  } at[];
} colli_request_block;

typedef struct colli_message_block {
  struct colli_message_block *next;
  colli_p2p_op requests[BLOCK_REQUESTS];
} colli_message_block;

/* Adds requests for collectives; false if out of memory. The first block is one: a communicator
 * that is used little should be cheap to make. */
__attribute__((noinline, cold)) static bool add_requests(coll_comm *comm) {
  int count = comm->calls.request_blocks ? BLOCK_REQUESTS : 1;
  colli_request_block *block = malloc(sizeof(*block) + (size_t)count * sizeof(*block->at));
  if (!block)
    return false;
  block->next = comm->calls.request_blocks;
  block->count = count;
  comm->calls.request_blocks = block;
  for (int i = count - 1; i >= 0; i--) {
    block->at[i].request = (coll_request){.comm = comm}; /* who starts lanes fills them in */
    block->at[i].request.lane = block->at[i].lanes;
    colli_request_put(&block->at[i].request);
  }
  return true;
}

bool colli_request_add_messages(coll_comm *comm) {
  colli_message_block *block = calloc(1, sizeof(*block));
  if (!block)
    return false;
  block->next = comm->calls.message_blocks;
  comm->calls.message_blocks = block;
  for (int i = BLOCK_REQUESTS - 1; i >= 0; i--) {
    block->requests[i].request.comm = comm;
    block->requests[i].request.coll = COLLI_SENDRECV; /* as ever after; the rest is 0 */
    colli_request_put(&block->requests[i].request);
  }
  return true;
}

void colli_request_init(coll_comm *comm) {
  comm->calls.complete = (coll_request){.comm = comm, .done = true, .coll = COLLI_SENDRECV};
}

coll_request *colli_request_get(coll_comm *comm) {
  if (__builtin_expect(!comm->calls.free_requests, 0) && !add_requests(comm))
    return NULL;
  return colli_request_take(comm, &comm->calls.free_requests);
}

void colli_request_drop_kept(coll_request *request) {
  colli_user_op_release(colli_user_op_of(request->kept->op));
  free(request->kept);
  request->kept = NULL;
}

/* The same, if there are any. */
static void drop_any_kept(coll_request *request) {
  if (request->kept)
    colli_request_drop_kept(request);
}

void colli_request_abandon(coll_request *request) {
  const bool owned = request->stage_out >= COLLI_STAGE_OWNER;
  request->stage_out = COLLI_STAGE_NONE;
  if (owned)
    request->conclude(request, false);
  request->stage_out = COLLI_STAGE_NONE; /* of a call on GPU memory: also what was inside */
}

void colli_request_abandon_all(coll_comm *comm) {
  for (colli_request_block *block = comm->calls.request_blocks; block; block = block->next)
    for (int i = 0; i < block->count; i++)
      colli_request_abandon(&block->at[i].request);
  for (colli_message_block *block = comm->calls.message_blocks; block; block = block->next)
    for (int i = 0; i < BLOCK_REQUESTS; i++)
      colli_request_abandon(&block->requests[i].request);
}

void colli_request_free_all(coll_comm *comm) {
  while (comm->calls.request_blocks) {
    colli_request_block *block = comm->calls.request_blocks;
    comm->calls.request_blocks = block->next;
    for (int i = 0; i < block->count; i++) { /* also of those that nobody completed */
      free(block->at[i].request.scratch);
      free(block->at[i].request.blocks);
      free(block->at[i].request.stage);
      drop_any_kept(&block->at[i].request);
    }
    free(block);
  }
  while (comm->calls.message_blocks) {
    colli_message_block *block = comm->calls.message_blocks;
    comm->calls.message_blocks = block->next;
    for (int i = 0; i < BLOCK_REQUESTS; i++)
      drop_any_kept(&block->requests[i].request);
    free(block);
  }
}
