/* support_shrink.h: what ranks do with a communicator before and after a shrink, and ids of
 * newcomers. */
#ifndef TESTS_SUPPORT_SHRINK_H
#define TESTS_SUPPORT_SHRINK_H

#include <coll/coll.h>
#include <stdbool.h>

enum { MOST = 8, NOBODY = -1 };

/* All-reduces over a communicator. *right: results are right and ranks in the old order; *mask:
 * which old ranks are in it. */
coll_status go_on(coll_comm *comm, int old_rank, int *mask, bool *right);

/* All-reduces until it fails, or `rounds` times. */
coll_status reduce_for(coll_comm *comm, size_t count, int rounds);

/* Makes an id that of somebody who does not know the secret, with the checksum that belongs to it.
 */
void change_secret(coll_id *id);

#endif
