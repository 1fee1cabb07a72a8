/*
 * event.h: the one place that learns when operations begin and end, steps are done, and a
 * communicator fails. Four watch: the flight record, which is always on; USDT probes, which cost a
 * `nop` each; and two observers, COLL_TRACE and COLL_PROFILER, which cost a comparison if neither
 * is set.
 */
#ifndef COLLI_EXEC_EVENT_H
#define COLLI_EXEC_EVENT_H

#include "coll/coll_profiler.h"
#include "libcoll/exec/exec.h"
#include "libcoll/sched/tag.h"

#if COLLI_USDT
#include <sys/sdt.h>
#define COLLI_PROBE3(name, a, b, c)       DTRACE_PROBE3(coll, name, a, b, c)
#define COLLI_PROBE4(name, a, b, c, d)    DTRACE_PROBE4(coll, name, a, b, c, d)
#define COLLI_PROBE5(name, a, b, c, d, e) DTRACE_PROBE5(coll, name, a, b, c, d, e)
#else
#define COLLI_PROBE3(name, a, b, c)       ((void)0)
#define COLLI_PROBE4(name, a, b, c, d)    ((void)0)
#define COLLI_PROBE5(name, a, b, c, d, e) ((void)0)
#endif

/* What observers are told. It holds only what the caller has at hand, because a trace needs the
 * rest once for many equal operations; colli_event_describe() finds it out. */
typedef struct colli_observation {
  const colli_exec *exec;
  coll_profiler_kind kind;
  const coll_tag *tag; /* BEGIN and END */
  uint64_t number;
  int peer;         /* of a message */
  const char *name; /* of a message: a constant */
  coll_status status;
  const char *message; /* FAILED */
  uint64_t ticks;      /* when; 0: now. From the flight record, which has read them anyway */
} colli_observation;

/* Who else is told. */
typedef struct colli_observer {
  void (*event)(void *ctx, const colli_observation *seen);
  void *ctx;
} colli_observer;

#define COLLI_OBSERVERS 2

struct colli_observers {
  int count;
  colli_observer at[COLLI_OBSERVERS];
};

/* Whether it is about a collective, and not about a message. */
static inline bool colli_event_is_collective(const colli_observation *seen) {
  return colli_tag_get(seen->tag, COLLI_TAG_COLL) != COLLI_SENDRECV;
}

/* Describes an observation in full, as a profiler gets it, except for the time. */
void colli_event_describe(const colli_observation *seen, coll_profiler_event *event);

/* Tells the observers that an operation begins or ends. */
__attribute__((cold)) void colli_observe(const colli_exec *exec, coll_profiler_kind kind,
                                         const coll_request *op, coll_status status);

/* The same on the fast path. */
__attribute__((cold)) void colli_observe_fast(const colli_exec *exec, coll_profiler_kind kind,
                                              const coll_tag *tag, uint64_t number);

/* Tells them that a communicator has failed. */
__attribute__((cold)) void colli_observe_failure(const colli_exec *exec, const coll_error *error);

/* An operation begins. */
__attribute__((always_inline)) static inline void colli_event_begins(colli_exec *exec,
                                                                     coll_request *op) {
  bool known = op->sequence && exec->flights.rings->last == op->sequence; /* from the fast path */
  colli_flight_begins(&exec->flights, op);
  if (known)
    return;
  if (__builtin_expect(exec->observers != NULL, 0))
    colli_observe(exec, COLL_PROFILER_BEGIN, op, COLL_OK);
  COLLI_PROBE5(begin, exec->id, exec->rank, op->sequence, op->tag.word[2], op->tag.word[0]);
}

/* It ends. */
__attribute__((always_inline)) static inline void
colli_event_ends(colli_exec *exec, const coll_request *op, coll_status status) {
  colli_flight_ends(&exec->flights, op, status);
  if (__builtin_expect(exec->observers != NULL, 0))
    colli_observe(exec, COLL_PROFILER_END, op, status);
  COLLI_PROBE4(end, exec->id, exec->rank, op->sequence, (int)status);
}

/* A collective begins on the fast path. If it does not end there, colli_event_begins() follows. */
__attribute__((always_inline)) static inline void
colli_event_fast_begins(colli_exec *exec, const coll_tag *tag, uint64_t number) {
  exec->flights.rings->last = number;
  if (__builtin_expect(exec->observers != NULL, 0))
    colli_observe_fast(exec, COLL_PROFILER_BEGIN, tag, number);
  COLLI_PROBE5(begin, exec->id, exec->rank, number, tag->word[2], tag->word[0]);
}

/* It has ended there. */
__attribute__((always_inline)) static inline void
colli_event_fast_ends(colli_exec *exec, const coll_tag *tag, uint64_t number) {
  colli_flight_ran(&exec->flights, tag, number);
  if (__builtin_expect(exec->observers != NULL, 0))
    colli_observe_fast(exec, COLL_PROFILER_END, tag, number);
  COLLI_PROBE4(end, exec->id, exec->rank, number, COLL_OK);
}

/* A point-to-point operation begins and ends at once; only if there are no observers. */
__attribute__((always_inline)) static inline void
colli_event_message_ran(colli_exec *exec, const coll_tag *tag, int peer, const char *name) {
  colli_flight_message_ran(&exec->flights, tag, peer, name);
  COLLI_PROBE5(begin, exec->id, exec->rank, (uint64_t)0, tag->word[2], tag->word[0]);
  COLLI_PROBE4(end, exec->id, exec->rank, (uint64_t)0, COLL_OK);
}

/* A step of a lane is done. */
__attribute__((always_inline)) static inline void colli_event_step(const colli_exec *exec,
                                                                   const colli_lane *lane) {
  COLLI_PROBE5(step, exec->id, exec->rank, lane->op->sequence, lane->index, lane->step);
  (void)exec;
  (void)lane;
}

/* A communicator fails. */
__attribute__((always_inline)) static inline void colli_event_fails(const colli_exec *exec,
                                                                    const coll_error *error) {
  if (exec->observers)
    colli_observe_failure(exec, error);
  COLLI_PROBE4(failed, exec->id, exec->rank, (int)error->status, &error->message[0]);
}

#endif
