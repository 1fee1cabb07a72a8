/* resolve.h: "host:port" as addresses, by a deadline. */
#ifndef COLLI_WIREUP_RESOLVE_H
#define COLLI_WIREUP_RESOLVE_H

#include "libcoll/net/sockets.h"

/* Resolves "1.2.3.4:5", "[::1]:5" or "name:5" to addresses. A name is looked up by deadline_ns
 * (colli_now_ns time); in Kubernetes, an unknown one again and again until then. */
coll_status colli_net_parse(const char *text, uint64_t deadline_ns, colli_addr *addrs, int max,
                            int *count, coll_error *error);

#endif
