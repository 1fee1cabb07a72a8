/*
 * visit.h: threads that wait elsewhere move a family in which no thread is inside. Its peers may
 * need a handshake or an answer while this rank makes another communicator, or waits in one.
 */
#ifndef COLLI_PROGRESS_VISIT_H
#define COLLI_PROGRESS_VISIT_H

#include "libcoll/comm/family.h"

/* From now on others move the family, whose base is complete. */
void colli_family_receive_visits(colli_family *family, coll_comm *base);

/* Before the base is destroyed, by the thread that is inside: nobody visits it any more. */
void colli_family_hide_base(colli_family *family, const coll_comm *comm);

#endif
