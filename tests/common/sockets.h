/* sockets.h: sockets for tests. */
#ifndef TESTS_COMMON_SOCKETS_H
#define TESTS_COMMON_SOCKETS_H

/* Two connected sockets over loopback. */
void tcp_pair(int fds[2]);

#endif
