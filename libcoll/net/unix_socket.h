/* unix_socket.h: Unix sockets between processes of one user, and the descriptors that they pass. */
#ifndef COLLI_NET_UNIX_SOCKET_H
#define COLLI_NET_UNIX_SOCKET_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#define COLLI_UNIX_NAME 32 /* the longest name that the kernel chooses, with its leading 0 */
#define COLLI_UNIX_FDS  2  /* the most descriptors of a message */

/* Listens on an abstract socket whose name the kernel chooses. The descriptor; or -1 with errno,
 * and the system call that failed. */
int colli_unix_listen(int backlog, struct sockaddr_un *address, socklen_t *bytes,
                      const char **syscall);

/* Whether the process at the other end of a socket is of this user, or of `uid`; and which it is.
 * If not, errno is EACCES, or why that cannot be found out. */
bool colli_unix_is_same_user(int sock, uid_t uid, pid_t *pid);

/* Sends a message with descriptors (which stay the caller's) in one piece: 0, or -1 with errno. */
int colli_unix_send(int sock, const void *message, size_t bytes, const int *fds, int count);

/*
 * Receives a message of exactly `bytes` bytes with exactly `count` descriptors: 1; 0: the peer
 * closed; -1 with errno: EAGAIN, EPROTO (something else came), EMFILE (no room for the
 * descriptors), or what recvmsg() says.
 */
int colli_unix_recv(int sock, void *message, size_t bytes, int *fds, int count);

#endif
