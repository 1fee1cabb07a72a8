/* registry.c: the transports of this build. */
#include "transports/registry.h"

#include <string.h>

#include "transports/shm/shm.h"
#include "transports/sim/sim.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"

const coll_transport_ops *const colli_transports[] = {&shm_transport, &verbs_transport,
                                                      &tcp_transport, NULL};

/* By name, or NULL. Also knows "sim", which is never chosen by itself. */
const coll_transport_ops *colli_transport_find(const char *name) {
  for (int i = 0; colli_transports[i]; i++)
    if (strcmp(colli_transports[i]->name, name) == 0)
      return colli_transports[i];
  return strcmp(sim_transport.name, name) == 0 ? &sim_transport : NULL;
}
