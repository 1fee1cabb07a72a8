/* comm.h: the communicator's insides. */
#ifndef COLLI_COMM_COMM_H
#define COLLI_COMM_COMM_H

#include <stdatomic.h>

#include "libcoll/algo/algo.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/fork.h"
#include "libcoll/call/calls.h"
#include "libcoll/comm/direct.h"
#include "libcoll/comm/family.h"
#include "libcoll/comm/levels.h"
#include "libcoll/comm/mux/mux.h"
#include "libcoll/comm/shrink_state.h"
#include "libcoll/comm/streams.h"
#include "libcoll/p2p/engine.h"

#define COLLI_SPIN_MOST 1024u /* polls (20 to 100 us) before a waiting rank hands over its core */

/* What a rank for which others wait last said of itself. */
typedef struct colli_answer {
  uint64_t heard_ns; /* 0: nothing */
  uint64_t entered;  /* number of the last collective that it has entered */
  coll_tag tag;      /* of the operation that it has ended last, */
  uint32_t since_ms; /* and how long ago that was then */
  bool ended;        /* it has ended any */
} colli_answer;

/* Another rank's last report of where it waits. */
typedef struct colli_wait_report {
  uint64_t serial;
  uint64_t sequence;
  uint64_t heard_ns;
  uint64_t again_ns; /* after which it reports again, if it still waits */
  uint32_t since_ms; /* how long it had waited then */
  colli_answer answer;
} colli_wait_report;

/* The numbers of a communicator's ranks elsewhere; all NULL: the base, or the same ranks. */
typedef struct colli_rank_map {
  int32_t *in_base;   /* nranks: each rank's number in the base */
  int32_t *from_base; /* indexed by rank in the base: the rank here, or -1 */
  int32_t *origins;   /* nranks: each rank's number in the first communicator; NULL: the base's */
  uint16_t *numbers;  /* nranks: the number by which each rank addresses this communicator */
} colli_rank_map;

/* entry.guard.inside besides 0: nobody. */
#define COLLI_INSIDE_CALL  1 /* a thread in a public call */
#define COLLI_INSIDE_VISIT 2 /* one that waits elsewhere and moves this meanwhile: visit.c */

/* Which thread is inside: progress/enter.c. */
typedef struct colli_entry {
  colli_fork_guard guard; /* inside: see above */
  atomic_bool visited;    /* the visit during which a thread came in is over */
  atomic_int misused;     /* another one wanted in since */
  atomic_bool woken;      /* coll_wake(), which no wait has returned for yet */
  bool locked;            /* the thread inside has the family's lock, */
  bool paused;            /* but has let others in, who move this meanwhile */
  unsigned calls;         /* that took the lock, so far */
  unsigned counted;       /* of them by the progress thread */
} colli_entry;

/* A descriptor that becomes readable when an operation is complete: completion.h. */
typedef struct colli_bell {
  atomic_bool is_there;
  int fd;
  bool rung; /* since a thread last entered */
} colli_bell;

/* How a rank waits, and how long it has polled without success: progress/. */
typedef struct colli_watch {
  bool crowded;            /* more ranks than cores on this machine: hand over, do not spin */
  bool contested;          /* others want the core, as was observed: hand over as well */
  uint64_t contested_ns;   /* when that was last seen */
  uint64_t interruptions;  /* how often they had been given it when that was last looked at, */
  uint64_t looked_ns;      /* and when that was, */
  pid_t looked_by;         /* and by which thread, whose count that is */
  int mate;                /* the only other rank bound to this core, if crowded; or -1 */
  uint64_t timeout_ns;     /* longest time that an operation may not move */
  unsigned waits;          /* calls that have waited */
  unsigned idle;           /* polls since something moved */
  unsigned spin;           /* polls before the core is handed over; adaptive */
  unsigned elsewhere;      /* polls for a rank on another core since the core was handed over */
  unsigned elsewhere_most; /* the number of such polls at which it is handed over */
  uint64_t sent_to_mate;   /* messages sent to the mate when the core was last handed over */
  unsigned turns;          /* not 0 if some were sent between the last few handovers */
  uint64_t idle_since_ns;  /* when the clock was first read after that; 0: not yet */
  uint64_t yielded_ns;     /* how long others have had the core since */
  bool far;                /* what it waits for comes over a socket */
  uint64_t now_ns;         /* last reading */
  uint64_t control_ns;     /* when control links were last polled */
  uint64_t waited_ns;      /* time spent inside the library, waiting: the watchdog's clock */
  uint64_t told_ns;        /* when this rank last told the others where it waits */
  uint64_t asked_ns;       /* when it last asked them */
  uint64_t fresh_ns;       /* what they said before that does not count as an answer */
  unsigned wakes;          /* the family's, when this rank last went to sleep */
} colli_watch;

/* What has failed, and what is known of the other ranks: failure/. */
typedef struct colli_failure {
  coll_status status; /* not COLL_OK: the communicator is revoked */
  coll_error error;   /* why; or else the last bad argument */
  bool suspended;     /* a connection broke, and the rank waits a moment for a better explanation */
  coll_error suspect;
  uint64_t suspect_ns;
  colli_wait_report *wait_reports; /* nranks records */
  bool *left;                      /* nranks: its process said goodbye */
  bool *lost;                      /* nranks: its process is known to be gone */
  bool *silent;                    /* nranks: nothing was heard from it; it may live */
  uint64_t answered_ns;            /* when this rank last said what it did last */
  int root;                        /* the rank of the base that is to blame, or -1 */
  bool admitted;                   /* the family knows that this rank's caller knows of it */
  atomic_int aborts;               /* calls of coll_comm_abort() */
} colli_failure;

/* One rank's membership in a communicator. Only the owner of each part writes it. */
struct coll_comm {
  int rank;
  int nranks;
  uint64_t comm_id; /* identifies the communicator, the same on all ranks */
  uint64_t uid;     /* its name in the family, the same on all ranks; 0: the base */
  char host[64];
  char name[COLLI_NAME]; /* for messages */
  uint32_t made;         /* splits of it so far, for the names of children */
  colli_family *family;
  coll_comm *sibling;      /* the next member of the family */
  colli_rank_table *table; /* of its ranks */
  bool own_table;          /* not the family's */
  colli_mux_child *child;  /* its part of the shared connections; NULL: the base */
  colli_rank_map map;
  colli_log log;
  colli_world world;
  colli_gpu *gpu;           /* the family's, or NULL: the program does not use CUDA */
  colli_streams *streams;   /* stream-ordered calls; NULL: there was none */
  colli_direct *direct;     /* NULL: those are staged, */
  colli_levels *levels;     /* but, unless NULL, for long ones, within groups of ranks */
  bool is_part;             /* of one with levels */
  struct colli_attr *attrs; /* api/attr.c */
  colli_exec exec;
  colli_p2p p2p;
  colli_entry entry;
  colli_bell bell;
  colli_watch watch;
  colli_failure failure;
  colli_calls calls;
  colli_memories memory; /* memory.c */
  colli_shrink shrink;
  colli_status_comm *shown; /* its flight record and counters, which other programs see */
  colli_params params;      /* last: colli_comm_new() */
};

/* Translates a rank of this communicator to the base, and back (-1: none). */
static inline int colli_comm_base_rank(const coll_comm *comm, int rank) {
  return comm->map.in_base ? comm->map.in_base[rank] : rank;
}

static inline int colli_comm_rank_of(const coll_comm *comm, int base_rank) {
  return comm->map.from_base ? comm->map.from_base[base_rank] : base_rank;
}

/* The transport to another rank of this communicator, and its endpoint here. */
static inline const coll_transport_ops *colli_comm_transport(const coll_comm *comm, int peer,
                                                             coll_endpoint **endpoint) {
  const colli_port *port = colli_family_port(comm->family, colli_comm_base_rank(comm, peer));
  *endpoint = comm->child ? (coll_endpoint *)comm->child : port->endpoint;
  return comm->child ? colli_mux_ops_over(port->ops) : port->ops;
}

/* Whether stream-ordered calls have not been started, which later calls must not overtake. */
static inline bool colli_streams_unstarted(const coll_comm *comm) {
  return comm->streams && comm->streams->unstarted > 0;
}

/* Records why a call is refused (the communicator stays usable) and returns `status`. */
coll_status colli_comm_refuse(coll_comm *comm, coll_status status, const char *operation,
                              const char *format, ...) __attribute__((format(printf, 4, 5)));

/* The same with an error record from libcoll/call. */
coll_status colli_comm_refuse_as(coll_comm *comm, const coll_error *reason);

/* Records why an operation failed, if nothing else is affected. */
void colli_comm_refuse_op(coll_comm *comm, const coll_error *record);

/* ---- memory.c -------------------------------------------------------------------------------- */

/* Allocates `bytes` bytes and keeps them with the communicator; the contract of coll_mem_alloc().
 */
coll_status colli_memory_allocate(coll_comm *comm, size_t bytes, void **ptr);

/* Frees them; the contract of coll_mem_free(). */
coll_status colli_memory_release(coll_comm *comm, void *ptr);

/* Releases all memory. Call it while the endpoints exist and no connection does. */
void colli_memory_free_all(coll_comm *comm);

/* Detaches memory from peers that have not finished their work on it, so that what they still write
 * does not appear in it. Call it after all connections are closed and before callers get their
 * buffers back. */
void colli_memory_detach(const coll_comm *comm);

#endif
