/* registry.c: the transports of this build. */
#include "transports/registry.h"

#include "transports/shm/shm.h"
#include "transports/tcp/tcp.h"
#include "transports/verbs/verbs.h"

const coll_transport_ops *const colli_transports[] = {&shm_transport, &verbs_transport,
                                                      &tcp_transport, NULL};

/* Prints which network devices the transports would use. */
void colli_devices_print(const coll_transport_env *env, FILE *out) {
  fputs("\nInfiniBand and RoCE\n", out);
  colli_verbs_print(env, out);
}
