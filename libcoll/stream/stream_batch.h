/* stream_batch.h: calls that are in a stream together, from there to the stream's end of them. */
#ifndef COLLI_STREAM_STREAM_BATCH_H
#define COLLI_STREAM_STREAM_BATCH_H

#include "libcoll/comm/comm.h"
#include "libcoll/gpu/passage.h"
#include "libcoll/run/gpu_stage.h"
#include "libcoll/stream/direct_call.h"

typedef struct colli_batch_call {
  coll_request *request; /* persistent; on the copies if the call is staged */
  colli_gpu_stage stage;
} colli_batch_call;

typedef enum colli_batch_state {
  COLLI_BATCH_EXPECTED, /* the stream has not come to its next stop, or others go first */
  COLLI_BATCH_RUNNING,
  COLLI_BATCH_ANSWERED /* the stream goes on to the end */
} colli_batch_state;

/* Calls that begin together, at one place of a stream; in a graph, each time that it comes. */
typedef struct colli_stream_batch {
  TAILQ_ENTRY(colli_stream_batch) link;
  coll_comm *comm;
  colli_gpu_passage passage;
  colli_batch_state state;
  unsigned stop, stops; /* how often the stream waits for the host: it goes on after stop - 1 */
  bool levelled; /* the gate and the end of one call (levels_call.h), whose parts are others */
  bool in_gpu;   /* one call, not staged: */
  colli_direct_call direct;
  int count, started;
  colli_batch_call calls[];
} colli_stream_batch;

/* A batch of calls, whose persistent requests the caller gives to it; NULL if out of memory, which
 * is recorded. */
colli_stream_batch *colli_batch_make(coll_comm *comm, const char *name, int count, bool in_gpu);

/* Whether the stream of a new batch must wait for calls in other streams first. */
bool colli_batch_waits(const colli_stream_batch *batch);

/* Puts a new batch at the end of its communicator's queue. */
void colli_batch_append(colli_stream_batch *batch);

/* The stream has come to a stop: colli_gpu_passage.on_reached. */
void colli_batch_wake(void *batch);

/* Advances all batches of a communicator; not 0 if something moved. */
int colli_batches_move(coll_comm *comm);

/* Whether the stream has ended a batch. */
bool colli_batch_has_left(const colli_stream_batch *batch);

/* The driver did not take all of a batch: what it took goes on at once, or never ends. */
void colli_batch_give_up(colli_stream_batch *batch);

/* The stream may come to a batch later or never, and goes on without it: gives back what is lent,
 * but for calls under way. */
void colli_batch_abandon(colli_stream_batch *batch);

/* Frees a batch that no stream uses. */
void colli_batch_free(colli_stream_batch *batch);

/* Frees what was in graphs that are gone. */
void colli_batches_free_released(colli_streams *streams);

#endif
