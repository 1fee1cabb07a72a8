/*
 * levels_call.h: puts a call that is divided among groups into a stream:
 *
 *   gate of the communicator -> its parts (levels.h), of communicators of its own -> end
 *
 * At the gate all ranks of the communicator meet and compare their calls, as they do for others;
 * and from there to the end no other call goes through a gate. So the parts of all calls follow
 * each other in one order on all ranks, whatever streams and graphs they are in.
 */
#ifndef COLLI_STREAM_LEVELS_CALL_H
#define COLLI_STREAM_LEVELS_CALL_H

#include "libcoll/call/call.h"

/* Puts a call that colli_levels_takes(), and that it takes over, into a stream. Errors, recorded:
 * those of colli_stream_call(). */
coll_status colli_levels_enqueue(coll_comm *comm, coll_request *request, void *stream);

#endif
