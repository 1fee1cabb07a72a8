/* interfaces.h: the network interfaces of this host: which addresses it offers, and how fast they
 * are. */
#ifndef COLLI_NET_INTERFACES_H
#define COLLI_NET_INTERFACES_H

#include "libcoll/net/sockets.h"

/*
 * Lists the addresses of this host's running interfaces, best first: global before link-local, real
 * interfaces before loopback, fastest first; loopback is always last. `ifname`: a comma-separated
 * list of name prefixes, "^name" to exclude and "=name" for the exact name, as NCCL's users know.
 * "": all but those that lead to containers and virtual machines of this host only (docker, veth,
 * virbr), if there are others. Returns their number (at most max); 0, with the error filled in, if
 * none match.
 */
int colli_net_interfaces(const char *ifname, colli_addr *addrs, int max, coll_error *error);

#endif
