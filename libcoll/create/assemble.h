/*
 * assemble.h: makes a communicator from its parts. The three public ways to create one, and the
 * simulator, differ only in where the parts come from.
 */
#ifndef COLLI_CREATE_ASSEMBLE_H
#define COLLI_CREATE_ASSEMBLE_H

#include "libcoll/comm/family.h"
#include "libcoll/comm/levels.h"

/*
 * First half of creation: opens the endpoints and fills in *info (except control_addrs), so that it
 * can be exchanged. On failure *comm is NULL and `error` says why.
 */
coll_status colli_comm_open(const colli_assembly *assembly, coll_comm **comm, colli_rank_info *info,
                            coll_error *error);

/*
 * Second half: takes ownership of `table` (NULL: out of memory) and `ctrl` (in every case), and
 * chooses a transport for each peer. On failure the communicator is destroyed.
 */
coll_status colli_comm_join(coll_comm **comm, colli_rank_table *table, colli_ctrl *ctrl,
                            coll_error *error);

/* Memory for a communicator, known to those who fork: zeros, but for its settings. NULL: out of
 * memory. */
coll_comm *colli_comm_new(void);

/* Sets up executor, plans and the records of `comm`, whose ranks, settings and table are set.
 * twin: a communicator of the same ranks in the same order, or NULL. */
coll_status colli_comm_set_up(coll_comm *comm, const coll_comm *twin, coll_error *error);

/* Chooses algorithms anew after what is said of links in the table has changed, equally on all
 * ranks; later calls choose by it. A thread is inside. Errors: NO_MEMORY, MISMATCH (of sites). */
coll_status colli_comm_refresh_model(coll_comm *comm, coll_error *error);

/* Destroys the parts that a communicator has made, and frees `levels`; a thread is inside it. */
void colli_levels_free(coll_comm *comm, colli_levels *levels);

/* Frees what belongs only to this communicator, when nothing refers to it any more and other
 * programs do not see it (colli_comm_hide). Its family may be gone by now. */
void colli_comm_free(coll_comm *comm);

#endif
