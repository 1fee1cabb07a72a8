/*
 * on_stream.h: stream-ordered calls. A call returns at once; the operation begins when the stream
 * comes to it, and the stream goes on when its result is there. Operations stay in GPU memory
 * (direct_call.h) or are staged through host memory. The progress thread moves them, which the
 * first such call starts.
 */
#ifndef COLLI_STREAM_ON_STREAM_H
#define COLLI_STREAM_ON_STREAM_H

#include "libcoll/call/call.h"

/* Checks a call and keeps it in a persistent request: colli_call_keep(), colli_typed_keep(). */
typedef coll_status colli_keep_fn(coll_comm *comm, const colli_call *call, coll_request **request);

/* Puts a call into a stream of CUDA, or keeps it for the end of its group. A thread is inside.
 * Errors, in addition to those of the call: UNSUPPORTED (the process does not use CUDA),
 * INVALID_ARGUMENT (no stream), INVALID_USAGE (a group with two streams). */
coll_status colli_stream_call(coll_comm *comm, const colli_call *call, void *stream,
                              colli_keep_fn *keep);

/* COLL_OK, or why an operation that its stream has passed has failed. Waits for what the other
 * ranks say of it. */
coll_status colli_stream_status(coll_comm *comm);

/* Whether the open group has stream-ordered calls. */
bool colli_stream_has_group(const coll_comm *comm);

/* Ends it: puts its calls into their stream, or drops them because one was refused. */
coll_status colli_stream_end_group(coll_comm *comm, coll_status refused);

/* Before a communicator is destroyed: waits until all streams have passed and all graphs are gone,
 * up to its timeout or 10 s. False if one has not or is not, and may still use memory of the
 * library. */
bool colli_stream_finish(coll_comm *comm);

#endif
