/* report.h: keeps a transport's report of a failure until somebody asks why a call failed. */
#ifndef COLLI_COMM_REPORT_H
#define COLLI_COMM_REPORT_H

#include "coll/coll_transport.h"
#include "libcoll/comm/family.h"

/* coll_transport_env.fail, with the family as `ctx`: overwrites family->reported. */
void colli_family_report(void *ctx, const coll_transport_failure *failure);

#endif
