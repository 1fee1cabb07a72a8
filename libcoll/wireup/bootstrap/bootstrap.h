/*
 * bootstrap.h: how ranks find each other. Every rank checks in with its record at the rank whose
 * id has a listener, which serves, or in a tree below rank 0 (colli_id.fan_out); when all are
 * there, the table of all records goes down a binary tree of control links below rank 0, which stay
 * open.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_H
#define COLLI_WIREUP_BOOTSTRAP_H

#include "libcoll/base/clock.h"
#include "libcoll/base/param.h"
#include "libcoll/net/auth.h"
#include "libcoll/wireup/ctrl.h"
#include "libcoll/wireup/id.h"
#include "libcoll/wireup/rank_table.h"

struct boot_polls;
struct boot_shortage;

/*
 * Lifelines: connections to other ranks that stay silent while all is well. If one brings data or
 * ends, its rank has given up or died, and the bootstrap fails with PEER_LOST at once. A NULL
 * colli_lifelines means that there are none and that the listener is not kept.
 *
 * The caller may do work of its own meanwhile, and end the bootstrap for its own reasons:
 * *interrupt* is called whenever something that *watch* has added is ready, at least every 50 ms,
 * and ends it by returning an error.
 *
 * With *collect*, nobody checks in and the id has no listener, but the caller's own connections
 * bring the records to rank 0, and the caller decides whether all have succeeded.
 */
typedef struct colli_lifelines {
  const int *lifelines;      /* descriptors, which stay the caller's */
  const int *lifeline_ranks; /* to which rank each leads */
  int nlifelines;
  void *ctx; /* of these functions, which may be NULL: */
  coll_status (*interrupt)(void *ctx, coll_error *error);
  void (*watch)(void *ctx, struct boot_polls *polls);
  /* Rank 0 fills in the records of all; the others send `mine`. COLL_T_DONE: that is done;
   * COLL_T_AGAIN: call again, unless it is `late`; or a coll_status. */
  int (*collect)(void *ctx, const colli_rank_info *mine, colli_rank_info *all, bool late);
  struct boot_shortage *shortage; /* of this rank so far; the bootstrap adds its own; or NULL */
  long long timeout_ms;           /* for colli_create: replaces create_timeout_ms unless it is 0 */
  colli_secret *keep; /* for colli_create: this rank gets a shrink listener with this secret */
  /* In, on the server, and with `collect` on all: its shared time. Out: each rank's, if its record
   * has a clock_id. */
  colli_shared_time time;
  int listen_fd; /* out: the listener behind control_addrs, which the caller then owns; or -1 */
} colli_lifelines;

/*
 * Checks in, waits for all ranks, and returns the table and the control links. Collective; blocks
 * until deadline_ns (colli_now_ns time) at most. Others check in at a rank's id->listen_fd, if
 * there is one, which it closes in every case. `mine` is completed with control_addrs. If any rank
 * fails, every rank that checked in gets an error that names the cause: missing ranks (TIMEOUT), a
 * rank claimed twice or an nranks that differs (MISMATCH, both hosts and pids named), wrong secret
 * (AUTH). *table has nranks records; the caller frees it. `log` gets a line for each rejected
 * connection.
 */
coll_status colli_bootstrap(const colli_id *id, int rank, int nranks, colli_rank_info *mine,
                            const colli_params *params, uint64_t deadline_ns, const colli_log *log,
                            colli_lifelines *lifelines, colli_rank_table **table, colli_ctrl **ctrl,
                            coll_error *error);

#endif
