/*
 * service.h: status pages of other hosts. In a job on several hosts, the first two ranks of each
 * host have two threads that sleep in poll() until collctl asks, or a rank near its deadline:
 *
 *   collctl --unix socket--> desk of a rank here --TCP, sealed--> door of a rank there --> /proc
 *
 * The desk accepts only the same user and root (the kernel says who connects). The door accepts
 * only peers that know the job's secret, which collctl never sees. Both only read and send status
 * pages. They use nothing of the communicator, so they answer whatever its threads do.
 *
 * A rank that has a desk hands it a request, goes on waiting, and takes the result when it is
 * there.
 */
#ifndef COLLI_STATUS_SERVICE_H
#define COLLI_STATUS_SERVICE_H

#include "libcoll/base/log.h"
#include "libcoll/base/secret.h"
#include "libcoll/net/sockets.h"
#include "libcoll/status/look.h"

#define COLLI_STATUS_COPY_MOST ((size_t)64 << 20) /* largest copy that is sent, in bytes */

/* A rank of another host that has a door. */
typedef struct colli_status_post {
  int rank;
  uint64_t host_id;
  colli_addr addrs[COLLI_MAX_ADDRS]; /* with the door's port */
} colli_status_post;

/* What a service is made from. */
typedef struct colli_status_plan {
  int rank;
  uint64_t comm_id;
  int listen_fd;            /* of the door; the service owns it */
  colli_secret *secret;     /* the service takes a reference */
  colli_status_post *posts; /* malloc'ed, those of a host together; the service owns them */
  int nposts;
  bool tls; /* COLL_TLS=1 */
  colli_log log;
} colli_status_plan;

typedef struct colli_status_service colli_status_service;

/* Starts the threads; desk receives the name of the unix socket, for the page. NULL with errno. */
colli_status_service *colli_status_service_start(const colli_status_plan *plan,
                                                 char desk[COLLI_STATUS_DESK]);

/* Ends them. NULL is allowed. */
void colli_status_service_stop(colli_status_service *service);

/* The ranks of other hosts that have a door, and a desk. */
int colli_status_service_posts(const colli_status_service *service,
                               const colli_status_post **posts);

/* ---- for the rank itself: by one thread at a time -------------------------------------------- */

/* A rank of another host, in a communicator. */
typedef struct colli_status_far {
  uint64_t host_id, uid;
  int rank;
  uint64_t asked_ns; /* when somebody began to want to see it */
  bool found;        /* it was seen: */
  colli_status_sight sight;
} colli_status_far;

/* Has the desk look at a rank: at once unless it is busy, for at most a second, and not later than
 * that after asked_ns; again only once there is a result. Never waits. False: there is no room for
 * more. */
bool colli_status_service_look(colli_status_service *service, const colli_status_far *wanted);

/* Takes a result. False: there is none now. */
bool colli_status_service_seen(colli_status_service *service, colli_status_far *result);

/* ---- a stream of copies: for each its length and its bytes, at the end 0 --------------------- */

/* Asks the desk of a process for the copies of other hosts. Returns how many it found, or -1 with
 * errno; copies were checked. */
int colli_status_ask(const char *desk, uint64_t comm_id,
                     void (*found)(void *ctx, colli_status_head *copy), void *ctx);

#endif
