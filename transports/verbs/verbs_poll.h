/* verbs_poll.h: completion queues. */
#ifndef COLLI_TRANSPORTS_VERBS_POLL_H
#define COLLI_TRANSPORTS_VERBS_POLL_H

#include "transports/verbs/verbs_internal.h"

/* Takes what has completed on a port: how much. */
int verbs_poll(verbs_endpoint *ep, verbs_port *port);

/* Before sleeping: asks for a notice of completions; whether some were there. */
bool verbs_poll_arm(verbs_endpoint *ep, verbs_port *port);

#endif
