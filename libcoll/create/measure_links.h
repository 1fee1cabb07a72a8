/* measure_links.h: measures how fast the hosts' links to the network are, if a rank asks for it. */
#ifndef COLLI_CREATE_MEASURE_LINKS_H
#define COLLI_CREATE_MEASURE_LINKS_H

#include "coll/coll.h"

/*
 * If the record of some rank asks for it and there are several hosts, measures and tells all ranks'
 * cost models. All ranks call it, right after they have joined and outside of other calls.
 * COLL_TIMEOUT_MS bounds each message. On an error, which the record explains, the communicator has
 * failed on all ranks. Errors: NO_MEMORY, and those of messages.
 */
coll_status colli_measure_links(coll_comm *comm, coll_error *error);

#endif
