/*
 * family.h: a communicator that creation made (the *base*) and all that were split from it, on one
 * rank. They share the endpoints of the transports, the control links, the table of ranks and, once
 * there is a second one, a lock. A family lives until its last communicator is destroyed.
 *
 * Ranks of a family are the base's. A communicator translates with colli_comm_base_rank() and
 * colli_comm_rank_of().
 */
#ifndef COLLI_COMM_FAMILY_H
#define COLLI_COMM_FAMILY_H

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/movers.h"
#include "libcoll/base/shared.h"
#include "libcoll/comm/reports.h"
#include "libcoll/comm/world.h"
#include "libcoll/gpu/devices.h"
#include "libcoll/status/page.h"
#include "libcoll/status/service.h"
#include "libcoll/trace/profiler.h"
#include "libcoll/trace/trace.h"
#include "libcoll/tuning/tuner.h"
#include "libcoll/wireup/bootstrap/bootstrap.h"
#include "transports/check/check.h"
#include "transports/hook/fault.h"

typedef struct colli_mux colli_mux;
typedef struct colli_progress colli_progress;

/* What a family is made from. */
typedef struct colli_assembly {
  int rank;
  int nranks;
  uint64_t comm_id;
  colli_secret *secret;       /* may be NULL for a single rank */
  const colli_params *params; /* copied */
  bool inherited; /* they come from another communicator: a job that has begun needs no trace */
  colli_shared_time time; /* of that communicator, or of none */
  colli_world world;
  bool apart; /* the ranks are processes, which may be on several hosts */
  /* The transports that may be used, best first, NULL-terminated; their order is the blob index. */
  const coll_transport_ops *const *transports;
} colli_assembly;

/* One transport of this rank. */
typedef struct colli_port {
  const coll_transport_ops *ops;
  coll_endpoint *endpoint;
  coll_transport_env env;
  fault_table fault; /* decorates it, if COLL_FAULT is set */
  check_table check; /* decorates that, if COLL_DATA_CHECK is set */
  char *left_out;    /* why it could not be opened, or NULL */
  bool absent;       /* because this machine has no such device and nobody asked for it */
} colli_port;

/* A fair lock: first come, first served. Its holder has the turn that is numbered `served`. */
typedef struct colli_turns {
  _Atomic uint64_t asked, served;
  pthread_mutex_t mutex; /* this and the next for threads that sleep until their turn */
  pthread_cond_t next;
} colli_turns;

/* Whether another program uses this rank's core, and where the rank goes then:
 * progress/outsider.c. */
typedef struct colli_outsider {
  cpu_set_t may;    /* the processors to which its launcher allows it to move; none: it stays */
  cpu_set_t own;    /* where it was, while it is away */
  pid_t away;       /* the thread that is; 0: none */
  bool sleeps;      /* the rank gives way by sleeping while it waits */
  uint64_t next_ns; /* when to look again */
  uint64_t stay_ns; /* for how long it gave way last; 0: the last look found nothing */
  uint64_t looked_ns, ran_ns, interruptions; /* the last look, and what was counted so far then */
  unsigned long_yields;                      /* since then */
} colli_outsider;

#define COLLI_EARLY 16 /* failures kept for communicators that this rank is still making */

typedef struct colli_family {
  int rank;
  int nranks;
  uint64_t comm_id;
  colli_secret *secret; /* one reference, or NULL */
  colli_params params;  /* those that the transports ask for */
  colli_log log;
  colli_world world;
  char host[64];
  char name[COLLI_NAME];   /* the base's, for messages on communicators that lack a rank */
  colli_rank_table *table; /* of all ranks */
  int8_t *routes;          /* nranks: the port to each; -1: this rank itself */
  colli_port ports[COLLI_MAX_TRANSPORTS];
  int nports;
  uint32_t shm_bits;                  /* of the transports that share memory, in records */
  colli_shared_capacity shm_capacity; /* what this process found for it */
  colli_status_page status;           /* what other programs see of it */
  int status_fd;                      /* a listener for a service, until it has it; or -1 */
  colli_status_service *service;      /* or NULL */
  colli_tuner *tuner;                 /* or NULL */
  colli_corrections *corrections;     /* or NULL */
  colli_gpu *gpu;                     /* or NULL */
  char gpu_bus[COLLI_PCI_ADDRESS];    /* of the GPU that this rank uses; "": not known */
  colli_trace *trace;                 /* or NULL */
  colli_profiler *profiler;           /* or NULL */
  struct colli_observers observers;   /* these two */
  colli_ctrl *ctrl;
  uint64_t serial;        /* of control messages made here */
  uint64_t *heard;        /* nranks: serial number of the last message handled from each */
  bool *left;             /* nranks: said goodbye */
  bool *lost;             /* nranks: the process is gone */
  bool *silent;           /* nranks: nothing was heard from it; it may live */
  colli_reports *reports; /* what the others said of themselves */
  uint64_t idle_ns;       /* when this rank last said that it waits nowhere */
  coll_error reported;    /* what a transport said last */
  coll_error own_fault;   /* what a transport last said about this rank itself */
  coll_comm *members;     /* linked by coll_comm.sibling */
  colli_mux *mux;         /* NULL: nothing was split yet */
  uint32_t made;          /* communicators begun here */
  int making;             /* of them not finished */
  colli_ctrl_msg *early;
  int nearly;

  bool unborn; /* its base was never given to the program: this rank leaves without a goodbye */
  atomic_bool shared; /* more than one thread may use the family, so public calls take the lock */
  coll_request *ended, *last_ended; /* whose callbacks are due: comm/completion.h */
  bool several;      /* more than one thread of the caller has been inside at a time */
  int inside;        /* calls under way that hold the lock, or let others in while they wait */
  int sleepers;      /* of them asleep */
  atomic_uint wakes; /* calls of coll_wake() */
  colli_turns turns;
  _Atomic(colli_progress *) progress; /* NULL: not asked for */
  colli_outsider outsider;
  colli_mover mover; /* for threads that wait elsewhere: progress/visit.c */
  coll_comm *base;   /* NULL: it is not complete, or was destroyed; changed while nothing moves */
} colli_family;

/* First half of creation: opens the endpoints and fills in *info (except control_addrs). */
coll_status colli_family_open(const colli_assembly *assembly, colli_family **family,
                              colli_rank_info *info, coll_error *error);

/* Second half: takes ownership of `table` (NULL: out of memory) and `ctrl` (in every case), removes
 * from the table what cannot be used, chooses transports. */
coll_status colli_family_join(colli_family *family, colli_rank_table *table, colli_ctrl *ctrl,
                              coll_error *error);

/* The port by which this rank reaches another one of the base, which is not itself. */
static inline const colli_port *colli_family_port(const colli_family *family, int peer) {
  COLLI_ASSERT_RANK(family->routes[peer] >= 0, family->rank);
  return &family->ports[family->routes[peer]];
}

/* Begins to connect with another rank of the base, on a channel: as the transport's connect(). */
static inline int colli_family_connect(const colli_family *family, int peer, int channel,
                                       coll_conn **conn) {
  const colli_port *port = colli_family_port(family, peer);
  const colli_rank_info info = colli_rank_at(family->table, peer);
  return port->ops->connect(port->endpoint, peer, info.blob[family->routes[peer]], channel, conn);
}

/* Adds a communicator. */
void colli_family_add(colli_family *family, coll_comm *comm);

/* Removes a communicator before its connections are closed. If it was the last one, the family says
 * goodbye (unless it is unborn); then returns true, and the caller frees the family once the
 * connections are closed. */
bool colli_family_leave(colli_family *family, coll_comm *comm);
void colli_family_free(colli_family *family);

#endif
