/* look.h: what another process shows of itself in one communicator. */
#ifndef COLLI_STATUS_LOOK_H
#define COLLI_STATUS_LOOK_H

#include "libcoll/status/page.h"

typedef struct colli_status_sight {
  uint64_t entered;  /* number of the last collective that it has entered there */
  bool ended;        /* it has ended an operation there: */
  coll_tag tag;      /* the last one, */
  uint64_t since_ns; /* so long ago */
  uint32_t pending;  /* operations in flight, in all communicators of its page */
  uint8_t state;     /* what its main thread does, as in proc(5): R, S, D, T, t */
} colli_status_sight;

/*
 * Looks at process `pid`, which must be rank `rank` of job `comm_id`, in communicator `uid`. It
 * need not do anything for that. Takes microseconds for each descriptor that it opened before the
 * page. False: it has no such page, or this process may not see it.
 */
bool colli_status_look(int pid, uint64_t comm_id, int rank, uint64_t uid,
                       colli_status_sight *sight);

/* The same from a copy of a page that was checked. False: it is another page. */
bool colli_status_sight_in(colli_status_head *page, uint64_t comm_id, int rank, uint64_t uid,
                           colli_status_sight *sight);

#endif
