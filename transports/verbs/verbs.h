/* verbs.h: the transport over InfiniBand and RoCE. */
#ifndef COLLI_TRANSPORTS_VERBS_H
#define COLLI_TRANSPORTS_VERBS_H

#include "coll/coll_transport.h"

extern const coll_transport_ops verbs_transport;

#endif
