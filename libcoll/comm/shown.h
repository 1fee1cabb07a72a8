/* shown.h: what other programs see of a family and its communicators: libcoll/status/page.h. */
#ifndef COLLI_COMM_SHOWN_H
#define COLLI_COMM_SHOWN_H

#include "libcoll/comm/comm.h"

/* Listens for other hosts that ask for status pages, if this is possible; *info tells them where.
 */
void colli_family_offer_status(colli_family *family, colli_rank_info *info);

/* Makes the page of a family whose routes are chosen, and starts its service if that is needed. If
 * either fails, the job continues without it. */
void colli_family_show(colli_family *family);

/* coll_transport_env.rails: shows how many rails there are to a rank of the base. */
void colli_family_show_rails(void *ctx, int peer, int rails, int lost);

/* Makes the flight record and the counters of a communicator that has its name, ranks and links,
 * and shows them. False: out of memory. */
bool colli_comm_show(coll_comm *comm);

/* Frees them, if it has some. */
void colli_comm_hide(coll_comm *comm);

#endif
