/* pool.h: a communicator's pool of requests. */
#ifndef COLLI_COMM_POOL_H
#define COLLI_COMM_POOL_H

#include "libcoll/base/assert.h"
#include "libcoll/comm/comm.h"

/* Prepares the request that is always complete. */
void colli_request_init(coll_comm *comm);

/* The first request of a list. */
static inline coll_request *colli_request_take(coll_comm *comm, coll_request **list) {
  coll_request *request = *list;
  COLLI_ASSERT_RANK(request->comm == comm && !request->kept, comm->rank);
  (void)comm;
  *list = request->next;
  return request;
}

/* A request for a collective from a pool, which grows; NULL: out of memory. */
coll_request *colli_request_get(coll_comm *comm);

/* Makes requests for messages; false if out of memory. */
__attribute__((cold)) bool colli_request_add_messages(coll_comm *comm);

/* The same for a point-to-point or one-sided operation. */
static inline coll_request *colli_request_get_message(coll_comm *comm) {
  if (__builtin_expect(!comm->calls.free_messages, 0) && !colli_request_add_messages(comm))
    return NULL;
  return colli_request_take(comm, &comm->calls.free_messages);
}

/* Frees the arguments that a persistent operation keeps. */
void colli_request_drop_kept(coll_request *request);

/* Returns a request. */
static inline void colli_request_put(coll_request *request) {
  coll_comm *comm = request->comm;
  if (__builtin_expect(request->kept != NULL, 0))
    colli_request_drop_kept(request);
  coll_request **list = request->lane ? &comm->calls.free_requests : &comm->calls.free_messages;
  request->next = *list;
  *list = request;
}

void colli_request_free_all(coll_comm *comm);

/* Forgets the result of an operation that has ended, and ends what its owner does with it. */
void colli_request_abandon(coll_request *request);

/* Ends what owners of requests still do with them, whose results nobody will get. All operations
 * have ended, and a thread is inside. */
void colli_request_abandon_all(coll_comm *comm);

#endif
