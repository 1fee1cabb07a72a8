/* sockets.h: sockets for tests. */
#ifndef TESTS_COMMON_SOCKETS_H
#define TESTS_COMMON_SOCKETS_H

#include <netinet/in.h>
#include <stdbool.h>

/* Two connected sockets over loopback. */
void tcp_pair(int fds[2]);

/* Whether a descriptor is a TCP connection; then `text` receives its peer's address. An IPv6 socket
 * says ::ffff:10.0.0.1. */
bool tcp_peer(int fd, char text[INET6_ADDRSTRLEN]);

#endif
