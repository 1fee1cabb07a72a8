/* verbs_poll.h: completion queues. */
#ifndef COLLI_TRANSPORTS_VERBS_POLL_H
#define COLLI_TRANSPORTS_VERBS_POLL_H

#include "transports/verbs/verbs_internal.h"

/* Takes completions of a port; returns how many. */
int verbs_poll(verbs_endpoint *ep, verbs_port *port);

/* Before sleeping: asks to be notified of completions; true if there were some already. */
bool verbs_poll_arm(verbs_endpoint *ep, verbs_port *port);

#endif
