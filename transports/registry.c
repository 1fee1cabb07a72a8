/* registry.c: the transports of this build. */
#include "transports/registry.h"

#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"

const coll_transport_ops *const colli_transports[] = {&shm_transport, &verbs_transport,
                                                      &tcp_transport, NULL};
