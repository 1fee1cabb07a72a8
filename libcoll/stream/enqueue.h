/* enqueue.h: puts calls into a stream of CUDA: copies, the host's turns, and the ends. */
#ifndef COLLI_STREAM_ENQUEUE_H
#define COLLI_STREAM_ENQUEUE_H

#include "libcoll/call/call.h"
#include "libcoll/stream/direct_call.h"

/*
 * Puts the calls of persistent requests, which it takes over, into a stream together. shape: of one
 * that is not staged; else NULL. Errors: NO_MEMORY, and those of the driver.
 */
coll_status colli_enqueue_calls(coll_comm *comm, coll_request **requests, int count,
                                const colli_direct_shape *shape, void *stream);

/* The same for a staged call in `count` parts (staged_parts.h). */
coll_status colli_enqueue_parts(coll_comm *comm, coll_request *request, size_t count, void *stream);

#endif
