/*
 * direct_agree.h: how all ranks come to share GPU memory, or none does: each tells the others what
 * it has, and then whether it could map theirs.
 */
#ifndef COLLI_STREAM_DIRECT_AGREE_H
#define COLLI_STREAM_DIRECT_AGREE_H

#include "libcoll/comm/comm.h"

/* What all ranks are about. */
typedef struct colli_direct_matter {
  const char *name;      /* of the public call, "comm_use_gpu" */
  int makes;             /* colli_makes */
  const char *otherwise; /* what is if some rank cannot: "calls in streams are staged through host
                        memory" */
} colli_direct_matter;

/* Gives every rank what each has. Errors: those of collectives. */
coll_status colli_direct_gather(coll_comm *comm, const colli_direct_matter *matter,
                                const void *mine, void *all, size_t bytes);

/* Refuses the matter for the reason that a rank gives; on all ranks alike. */
coll_status colli_direct_refuse(coll_comm *comm, const colli_direct_matter *matter,
                                coll_status status, int rank, const char *reason);

/* Tells all ranks whether this one was successful. Else `error` has the reason, and all get the
 * first rank's, but that of a rank which others have left alone (PEER_LOST) only if there is no
 * other; `as`: with this status instead of that rank's, or COLL_OK. */
coll_status colli_direct_agree(coll_comm *comm, const colli_direct_matter *matter, coll_status mine,
                               const coll_error *error, coll_status as);

/* The same, while this rank does something for the others, again and again, until all have come.
 * If that work fails, it leaves the reason in `error`, which all get too. */
typedef struct colli_direct_service {
  void (*work)(void *context);
  void *context;
  uint64_t every_ns;
} colli_direct_service;
coll_status colli_direct_agree_serving(coll_comm *comm, const colli_direct_matter *matter,
                                       coll_status mine, const coll_error *error, coll_status as,
                                       const colli_direct_service *service);

/* Waits until all ranks have come, for so long; whether they have. */
bool colli_direct_await(coll_comm *comm, const colli_direct_matter *matter, uint64_t limit_ns);

#endif
