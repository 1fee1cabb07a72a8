/* enqueue.h: puts calls into a stream: direct ones, staged ones, and those in parts. */
#ifndef COLLI_STREAM_ENQUEUE_H
#define COLLI_STREAM_ENQUEUE_H

#include "libcoll/call/call.h"
#include "libcoll/comm/direct_shape.h"

/* Makes a communicator's queue, and starts the progress thread, on first use. Errors, recorded:
 * UNSUPPORTED (the process does not use CUDA), NO_MEMORY, SYSTEM. */
coll_status colli_enqueue_ready(coll_comm *comm, const char *name);

/* Puts the calls of persistent requests, which it takes over, into a stream together. shape: of one
 * that is not staged; else NULL. Errors, recorded: those of colli_stream_call(). */
coll_status colli_enqueue(coll_comm *comm, coll_request **requests, int count,
                          const colli_direct_shape *shape, void *stream);

/* Puts one call into a stream, direct, staged, or in parts. */
coll_status colli_enqueue_one(coll_comm *comm, coll_request *request, void *stream);

#endif
