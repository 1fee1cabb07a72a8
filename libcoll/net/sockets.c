/* sockets.c: addresses and nonblocking TCP sockets. */
#include "libcoll/net/sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"

#define BACKLOG          4096
#define SHORTAGE_MOST_NS (5 * COLLI_NS_PER_S)

/* ---- listening ------------------------------------------------------------------------------- */

/* Reads a port number at *text and moves *text behind it; false if there is none. */
static bool read_port(const char **text, long *port) {
  char *end;
  if (**text < '0' || **text > '9')
    return false;
  *port = strtol(*text, &end, 10);
  *text = end;
  return *port <= 65535;
}

/* Reads "6000-6099"; false if it is malformed. */
static bool read_range(const char *text, long *first, long *last) {
  *first = *last = 0;
  if (!*text)
    return true;
  if (!read_port(&text, first))
    return false;
  *last = *first;
  if (*text == '-') {
    text++;
    if (*first == 0 || !read_port(&text, last))
      return false;
  }
  return !*text && *first <= *last;
}

/* Binds a socket of one family to a port and listens. Returns the descriptor, or -1 with errno. */
static int listen_on(int family, uint16_t port) {
  const int on = 1, off = 0;
  int fd = COLLI_FD(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd < 0)
    return -1;
  struct sockaddr_in6 in6 = {
      .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
  struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(port)};
  const struct sockaddr *sa = family == AF_INET6 ? (struct sockaddr *)&in6 : (struct sockaddr *)&in;
  bool ok =
      setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
      (family != AF_INET6 || setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off)) == 0) &&
      bind(fd, sa, family == AF_INET6 ? sizeof(in6) : sizeof(in)) == 0 && listen(fd, BACKLOG) == 0;
  if (ok)
    return fd;
  int sys_errno = errno;
  colli_fd_close(fd);
  errno = sys_errno;
  return -1;
}

/* Listens on one port, on IPv4 only if the host has no IPv6. */
static int listen_on_port(uint16_t port) {
  int fd = listen_on(AF_INET6, port);
  if (fd < 0 && (errno == EAFNOSUPPORT || errno == EADDRNOTAVAIL || errno == EPROTONOSUPPORT))
    fd = listen_on(AF_INET, port);
  return fd;
}

coll_status colli_net_listen(const char *port_range, int *fd, uint16_t *port, coll_error *error) {
  long first, last;
  *fd = -1;
  *port = 0;
  if (!read_range(port_range, &first, &last))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "\"%s\" is no range of ports; COLL_PORT_RANGE takes one port (6000), "
                           "first-last (6000-6099), or nothing for any free port",
                           port_range);
  for (long number = first; number <= last && *fd < 0; number++) {
    *fd = listen_on_port((uint16_t)number);
    if (*fd < 0 && errno != EADDRINUSE && errno != EACCES)
      break;
  }
  if (*fd < 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "bind", errno,
                           "no port to listen on%s%s; give a wider COLL_PORT_RANGE (or another "
                           "port in COLL_ROOT) that no other program uses",
                           first ? " in the range " : "", first ? port_range : "");
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  colli_addr addr;
  if (getsockname(*fd, (struct sockaddr *)&name, &length) != 0 ||
      !colli_net_from_sockaddr((struct sockaddr *)&name, &addr)) {
    int sys_errno = errno;
    colli_fd_close(*fd);
    *fd = -1;
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getsockname", sys_errno,
                           "the port of a new socket cannot be found");
  }
  *port = addr.port;
  return COLL_OK;
}

/* ---- connecting ------------------------------------------------------------------------------ */

/* Fills in the kernel's form of an address and returns its length. */
static socklen_t to_sockaddr(const colli_addr *addr, struct sockaddr_storage *sa) {
  memset(sa, 0, sizeof(*sa));
  if (addr->family == 4) {
    struct sockaddr_in *in = (struct sockaddr_in *)sa;
    in->sin_family = AF_INET;
    in->sin_port = htons(addr->port);
    memcpy(&in->sin_addr, addr->ip, 4);
    return sizeof(*in);
  }
  struct sockaddr_in6 *in = (struct sockaddr_in6 *)sa;
  in->sin6_family = AF_INET6;
  in->sin6_port = htons(addr->port);
  in->sin6_scope_id = colli_addr_link_local(addr) ? addr->scope : 0;
  memcpy(&in->sin6_addr, addr->ip, 16);
  return sizeof(*in);
}

/* Binds a socket to an address of this host, and any port. */
static bool bind_to(int fd, const colli_addr *from) {
  struct sockaddr_storage sa;
  colli_addr any_port = *from;
  any_port.port = 0;
  const socklen_t length = to_sockaddr(&any_port, &sa);
  return bind(fd, (struct sockaddr *)&sa, length) == 0;
}

int colli_net_connect(const colli_addr *addr) {
  return colli_net_connect_from(NULL, addr, NULL);
}

int colli_net_connect_from(const colli_addr *from, const colli_addr *addr,
                           const colli_path_marks *marks) {
  const int on = 1;
  struct sockaddr_storage sa;
  if (addr->family != 4 && addr->family != 6) {
    errno = EAFNOSUPPORT;
    return -1;
  }
  socklen_t length = to_sockaddr(addr, &sa);
  int fd = COLLI_FD(socket(sa.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd < 0)
    return -1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  if ((!from || bind_to(fd, from)) && (!marks || !colli_path_mark(fd, marks)) &&
      (connect(fd, (struct sockaddr *)&sa, length) == 0 || errno == EINPROGRESS || errno == EINTR))
    return fd;
  int sys_errno = errno;
  colli_fd_close(fd);
  errno = sys_errno;
  return -1;
}

int colli_net_connect_result(int fd) {
  int sys_errno = 0;
  socklen_t length = sizeof(sys_errno);
  if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &sys_errno, &length) != 0)
    return errno;
  if (sys_errno != 0)
    return sys_errno;
  struct sockaddr_storage here = {0}, there = {0};
  socklen_t here_length = sizeof(here), there_length = sizeof(there);
  if (getsockname(fd, (struct sockaddr *)&here, &here_length) != 0 ||
      getpeername(fd, (struct sockaddr *)&there, &there_length) != 0)
    return errno;
  /* A connect to a free local port may get that same port as its own and so connect to itself. */
  if (here_length == there_length && memcmp(&here, &there, here_length) == 0)
    return ECONNREFUSED;
  return 0;
}

int colli_net_accept(int listen_fd) {
  const int on = 1;
  int fd;
  do
    fd = COLLI_FD(accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC));
  while (fd < 0 && (errno == EINTR || errno == ECONNABORTED));
  if (fd >= 0)
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return fd;
}

/* ---- messages -------------------------------------------------------------------------------- */

int colli_net_push(int fd, const void *msg, size_t bytes, size_t *done) {
  while (*done < bytes) {
    ssize_t sent = send(fd, (const char *)msg + *done, bytes - *done, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0)
      *done += (size_t)sent;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno;
  }
  return COLL_T_DONE;
}

int colli_net_pull(int fd, void *msg, size_t bytes, size_t *done) {
  while (*done < bytes) {
    ssize_t got = recv(fd, (char *)msg + *done, bytes - *done, MSG_DONTWAIT);
    if (got > 0)
      *done += (size_t)got;
    else if (got == 0)
      return ECONNRESET;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno;
  }
  return COLL_T_DONE;
}

bool colli_errno_is_shortage(int sys_errno) {
  return sys_errno == EMFILE || sys_errno == ENFILE || sys_errno == ENOMEM ||
         sys_errno == ENOBUFS || sys_errno == ENOSYS;
}

uint64_t colli_shortage_patience_ns(const char *timeout_ms) {
  const uint64_t half_ns = strtoull(timeout_ms, NULL, 10) * (COLLI_NS_PER_MS / 2);
  return half_ns == 0 || half_ns > SHORTAGE_MOST_NS ? SHORTAGE_MOST_NS : half_ns;
}

/* ---- addresses ------------------------------------------------------------------------------- */

/* Converts the kernel's form of an address to ours; false for other families. */
bool colli_net_from_sockaddr(const struct sockaddr *sa, colli_addr *addr) {
  memset(addr, 0, sizeof(*addr));
  if (sa->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const struct sockaddr_in *)sa;
    addr->family = 4;
    addr->port = ntohs(in->sin_port);
    memcpy(addr->ip, &in->sin_addr, 4);
    return true;
  }
  if (sa->sa_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const struct sockaddr_in6 *)sa;
    addr->family = 6;
    addr->port = ntohs(in->sin6_port);
    addr->scope = in->sin6_scope_id;
    memcpy(addr->ip, &in->sin6_addr, 16);
    return true;
  }
  return false;
}

bool colli_net_end(int fd, bool there, colli_addr *addr) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  struct sockaddr *sa = (struct sockaddr *)&name;
  if ((there ? getpeername(fd, sa, &length) : getsockname(fd, sa, &length)) != 0 ||
      !colli_net_from_sockaddr(sa, addr))
    return false;
  if (addr->family == 6 && memcmp(addr->ip, mapped, sizeof(mapped)) == 0) {
    addr->family = 4; /* accepted by a socket for both families */
    memmove(addr->ip, addr->ip + sizeof(mapped), 4);
  }
  return true;
}

const colli_addr *colli_net_find_end(int fd, bool there, const colli_addr *addrs, int count) {
  colli_addr addr;
  if (!colli_net_end(fd, there, &addr))
    return NULL;
  for (int i = 0; i < count && addrs[i].family; i++)
    if (colli_addr_same_ip(&addrs[i], &addr))
      return &addrs[i];
  return NULL;
}

/* Whether the fields of an address from outside are possible. */
bool colli_addr_sound(const colli_addr *addr) {
  return addr->family == 0 || (addr->family == 4 && addr->prefix <= 32) ||
         (addr->family == 6 && addr->prefix <= 128);
}

/* Whether an address is link-local: 169.254/16, fe80::/10. */
bool colli_addr_link_local(const colli_addr *addr) {
  return addr->family == 4 ? addr->ip[0] == 169 && addr->ip[1] == 254
                           : addr->ip[0] == 0xfe && (addr->ip[1] & 0xc0) == 0x80;
}

size_t colli_addr_bytes(const colli_addr *addr) {
  return addr->family == 6 ? 16 : 4;
}

/* Whether an address is a loopback address: 127/8, ::1. */
bool colli_addr_loopback(const colli_addr *addr) {
  static const uint8_t one[16] = {[15] = 1};
  return addr->family == 4 ? addr->ip[0] == 127 : memcmp(addr->ip, one, 16) == 0;
}

const char *colli_addr_text(const colli_addr *addr, char text[COLLI_ADDR_TEXT]) {
  char ip[INET6_ADDRSTRLEN], scope[16] = "";
  if ((addr->family != 4 && addr->family != 6) ||
      !inet_ntop(addr->family == 4 ? AF_INET : AF_INET6, addr->ip, ip, sizeof(ip)))
    snprintf(text, COLLI_ADDR_TEXT, "(none)");
  else if (addr->family == 4)
    snprintf(text, COLLI_ADDR_TEXT, "%s:%u", ip, addr->port);
  else {
    if (addr->scope && colli_addr_link_local(addr))
      snprintf(scope, sizeof(scope), "%%%u", addr->scope);
    snprintf(text, COLLI_ADDR_TEXT, "[%s%s]:%u", ip, scope, addr->port);
  }
  return text;
}

const char *colli_addr_host_text(const colli_addr *addr, char text[COLLI_ADDR_TEXT]) {
  char *port = strrchr(colli_addr_text(addr, text), ':');
  if (port)
    *port = '\0';
  return text;
}

bool colli_addr_same_ip(const colli_addr *a, const colli_addr *b) {
  return a->family == b->family && memcmp(a->ip, b->ip, a->family == 4 ? 4 : sizeof(a->ip)) == 0;
}

int colli_addr_affinity(const colli_addr *a, const colli_addr *b) {
  if (a->family != b->family || (a->family != 4 && a->family != 6))
    return 0;
  if (colli_addr_loopback(a) != colli_addr_loopback(b))
    return 0;
  if (colli_addr_loopback(a))
    return 1;
  if (a->family == 6 && colli_addr_link_local(a) != colli_addr_link_local(b))
    return 0;
  if (colli_addr_link_local(a) && colli_addr_link_local(b))
    return 1;                                 /* every network has the same prefix */
  const int most = a->family == 4 ? 32 : 128; /* a peer may claim anything */
  int bits = a->prefix > b->prefix ? a->prefix : b->prefix;
  bits = bits < most ? bits : most;
  if (bits == 0)
    return 1;
  const int whole = bits / 8, rest = bits % 8;
  if (memcmp(a->ip, b->ip, (size_t)whole) != 0)
    return 1;
  return rest && (a->ip[whole] ^ b->ip[whole]) >> (8 - rest) ? 1 : 2;
}
