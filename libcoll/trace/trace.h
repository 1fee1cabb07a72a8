/*
 * trace.h: writes the operations of one rank to a file that Perfetto opens (COLL_TRACE). The file
 * is allocated when the communicator is created and mapped: later events are stores to memory, so a
 * full disk cannot fail a job, and a killed process leaves all that it wrote. A full file takes no
 * more events, and says how many are missing.
 */
#ifndef COLLI_TRACE_TRACE_H
#define COLLI_TRACE_TRACE_H

#include "libcoll/base/clock.h"
#include "libcoll/exec/event.h"

typedef struct colli_trace colli_trace;

/* What a trace is about. */
typedef struct colli_trace_source {
  int rank, nranks;
  const char *host;
  uint64_t comm_id;
  const colli_shared_time *time; /* of the communicator that it was made from; zero_ns 0: none */
} colli_trace_source;

/*
 * Creates the file of this rank and adds it to the observers. *trace is NULL if the path is "".
 * "%r" in the path is the rank; without it, ".RANK" is appended. A file that exists is not touched:
 * ".2", ".3", ... is appended. Errors: SYSTEM (which file, and why), NO_MEMORY.
 */
coll_status colli_trace_open(const char *path, size_t bytes, const colli_trace_source *source,
                             struct colli_observers *observers, colli_trace **trace,
                             coll_error *error);

/* The shared time of a trace; of none (NULL) the time of day. */
colli_shared_time colli_trace_time(const colli_trace *trace);

/* Sets it, before the first event, as the ranks have agreed; zero_ns 0: they have not, so it is the
 * time of day of this host. Says so in the trace. NULL is fine. */
void colli_trace_set_time(colli_trace *trace, const colli_shared_time *time);

/* Completes the file; NULL is fine. */
void colli_trace_close(colli_trace *trace);

#endif
