/* streams.h: a communicator's stream-ordered calls that are under way: stream/on_stream.c. */
#ifndef COLLI_COMM_STREAMS_H
#define COLLI_COMM_STREAMS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"
#include "libcoll/base/queue.h"

TAILQ_HEAD(colli_stream_batches, colli_stream_batch);

typedef struct colli_streams {
  struct colli_stream_batches batches; /* calls that start together, in the order of the program */
  int open;                            /* their number, without those in graphs */
  size_t part_bytes;                   /* of a long staged call: staged_parts.h */
  void *stream;                        /* of the last call that is not in a graph */
  bool several;                        /* not all of the open ones are in it */
  int captured;                        /* the number of those in graphs */
  atomic_int in_graphs;                /* of those in graphs, how many are under way */
  int unstarted;                       /* of them not started: later calls wait for these */
  bool silent;                         /* streams meet without the host, and ring for nobody */
  bool lost;                           /* a stream may use memory of the library without end */
  unsigned polls;                      /* so far */
  uint64_t held_ns;                    /* since when one waits for the stream of an earlier one */
  int (*move)(coll_comm *comm);        /* advances them: not 0 if something moved */
  coll_status status;   /* of the first that failed alone, which coll_comm_async_error() tells */
  coll_request **group; /* calls of the group that is open */
  int ngroup, group_capacity;
  void *group_stream; /* theirs */
} colli_streams;

/* Whether a stream has come to a call, or will. */
static inline bool colli_streams_busy(const colli_streams *streams) {
  return streams && (streams->open > 0 || atomic_load(&streams->in_graphs) > 0);
}

/* How long a sleep may last while streams are open that ring for nobody. */
#define COLLI_STREAMS_NAP_NS 200000ull

/* Whether somebody must look after streams by himself. */
static inline bool colli_streams_silent(const colli_streams *streams) {
  return streams && streams->silent && streams->open > 0;
}

#endif
