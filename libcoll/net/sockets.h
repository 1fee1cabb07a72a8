/* sockets.h: nonblocking TCP sockets and addresses. */
#ifndef COLLI_NET_SOCKETS_H
#define COLLI_NET_SOCKETS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "coll/coll_transport.h"
#include "libcoll/net/path.h"

/* An IPv4 or IPv6 address and port, in a form that can be sent. The port is in host order. */
typedef struct colli_addr {
  uint8_t family; /* 4, 6, or 0 for none */
  uint8_t prefix; /* length of the interface's network prefix, for "same subnet" */
  uint16_t port;
  uint32_t scope; /* index of the interface on the owner's host; 0: not known */
  uint8_t ip[16];
} colli_addr;
_Static_assert(sizeof(colli_addr) == 24, "travels in blobs");

#define COLLI_MAX_ADDRS 6 /* of one host that are offered: as many as fit in the blob of verbs */

/*
 * Listens on all interfaces (one dual-stack socket, or IPv4 where IPv6 is absent) on a port of
 * `port_range` ("" or "0": any; "6000" or "6000-6099"). *port receives the port.
 */
coll_status colli_net_listen(const char *port_range, int *fd, uint16_t *port, coll_error *error);

/* Starts a nonblocking connect, with TCP_NODELAY. Returns the descriptor, or -1 with errno. */
int colli_net_connect(const colli_addr *addr);

/* The same, from an address of this host (or NULL), with marks (or NULL) from the first packet on.
 */
int colli_net_connect_from(const colli_addr *from, const colli_addr *to,
                           const colli_path_marks *marks);

/* The result of a connect once its descriptor is writable: 0, or the errno of the failure. */
int colli_net_connect_result(int fd);

/* Accepts one connection: nonblocking, close-on-exec, TCP_NODELAY. Returns the descriptor, or
 * -1. */
int colli_net_accept(int listen_fd);

/* Send or receive the rest of a message, of which *done bytes have been transferred: COLL_T_DONE,
 * COLL_T_AGAIN, or an errno (> 0; ECONNRESET at the end of the stream). Never block. */
int colli_net_push(int fd, const void *msg, size_t bytes, size_t *done);
int colli_net_pull(int fd, void *msg, size_t bytes, size_t *done);

/* Whether an errno says only that this process or host lacks descriptors or memory, and nothing
 * about the other side. */
bool colli_errno_is_shortage(int sys_errno);

/* How long such a shortage may last before it is an error: 5 s, at most half of the setting
 * COLL_TIMEOUT_MS. */
uint64_t colli_shortage_patience_ns(const char *timeout_ms);

/* Writes "10.0.0.1:80" or "[fe80::1%2]:80" and returns text. */
#define COLLI_ADDR_TEXT 80
const char *colli_addr_text(const colli_addr *addr, char text[COLLI_ADDR_TEXT]);

/* The same without the port: "10.0.0.1" or "[fe80::1%2]". */
const char *colli_addr_host_text(const colli_addr *addr, char text[COLLI_ADDR_TEXT]);

/* Converts the kernel's form of an address to ours; false for families other than IPv4 and IPv6. */
bool colli_net_from_sockaddr(const struct sockaddr *sa, colli_addr *addr);

/* The address of one end of a connection; false: it is not known. `there`: the peer's end. */
bool colli_net_end(int fd, bool there, colli_addr *addr);

/* The address of one end of a connection among those of its host (at most `count`; a family of 0
 * ends the list); NULL: it is none of them. */
const colli_addr *colli_net_find_end(int fd, bool there, const colli_addr *addrs, int count);

/* Whether the fields of an address from outside are possible. */
bool colli_addr_sound(const colli_addr *addr);

/* Whether an address is link-local (169.254/16, fe80::/10) or loopback (127/8, ::1). */
bool colli_addr_link_local(const colli_addr *addr);
bool colli_addr_loopback(const colli_addr *addr);

/* How many bytes an address takes without its port: 4 or 16. */
size_t colli_addr_bytes(const colli_addr *addr);

/* Whether two addresses are the same, whatever their ports. */
bool colli_addr_same_ip(const colli_addr *a, const colli_addr *b);

/* An upper bound on how well a can reach b: 0 not at all (families), 1 maybe, 2 same subnet. */
int colli_addr_affinity(const colli_addr *a, const colli_addr *b);

#endif
