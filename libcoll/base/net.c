/* net.c: sockets as bootstrap and the transports need them. */
#include "libcoll/base/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"

/* An address with what it is ranked by. */
typedef struct candidate {
  colli_addr addr;
  long score;
} candidate;

/* Whether a filter ("", "eth,ib", "^docker", "=eth0") takes an interface. */
static bool takes(const char *filter, const char *name) {
  bool exclude = filter[0] == '^', exact = false, found = false;
  const char *at = exclude ? filter + 1 : filter;
  if (*at == '=') {
    exact = true;
    at++;
  }
  if (!*at)
    return true;
  while (*at) {
    size_t length = strcspn(at, ",");
    if (length > 0 && strncmp(name, at, length) == 0 && (!exact || !name[length]))
      found = true;
    at += length;
    at += *at == ',';
  }
  return found != exclude;
}

/* Leading one bits of a network mask. */
static uint8_t prefix_of(const void *mask, size_t bytes) {
  const uint8_t *at = mask;
  uint8_t bits = 0;
  for (size_t i = 0; i < bytes; i++)
    bits = (uint8_t)(bits + __builtin_popcount(at[i]));
  return bits;
}

/* The speed of an interface in Mbit/s, or 0. */
static long speed_of(const char *name) {
  char path[128];
  long speed = 0;
  snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
  FILE *file = fopen(path, "re");
  if (!file)
    return 0;
  if (fscanf(file, "%ld", &speed) != 1 || speed < 0)
    speed = 0;
  fclose(file);
  return speed;
}

/* Turns an interface's address into a candidate; false if it is of no use. */
static bool convert(const struct ifaddrs *entry, candidate *out) {
  bool loopback = entry->ifa_flags & IFF_LOOPBACK, link_local = false;
  memset(out, 0, sizeof(*out));
  if (entry->ifa_addr->sa_family == AF_INET) {
    const struct sockaddr_in *in = (const void *)entry->ifa_addr;
    const struct sockaddr_in *mask = (const void *)entry->ifa_netmask;
    out->addr.family = 4;
    memcpy(out->addr.ip, &in->sin_addr, 4);
    out->addr.prefix = mask ? prefix_of(&mask->sin_addr, 4) : 32;
    link_local = out->addr.ip[0] == 169 && out->addr.ip[1] == 254;
  } else if (entry->ifa_addr->sa_family == AF_INET6) {
    const struct sockaddr_in6 *in = (const void *)entry->ifa_addr;
    const struct sockaddr_in6 *mask = (const void *)entry->ifa_netmask;
    out->addr.family = 6;
    memcpy(out->addr.ip, &in->sin6_addr, 16);
    out->addr.prefix = mask ? prefix_of(&mask->sin6_addr, 16) : 128;
    link_local = IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr);
    out->addr.scope = link_local ? in->sin6_scope_id : 0;
  } else {
    return false;
  }
  long speed = speed_of(entry->ifa_name);
  out->score = (loopback ? 0 : 4000000) + (link_local ? 0 : 2000000) +
               (speed > 999999 ? 999999 : speed) * 2 + (out->addr.family == 4);
  return true;
}

static int by_score(const void *a, const void *b) {
  long left = ((const candidate *)a)->score, right = ((const candidate *)b)->score;
  return left < right ? 1 : left > right ? -1 : 0;
}

/* Lists the addresses of this host's running interfaces, best first. */
int colli_net_interfaces(const char *ifname, colli_addr *addrs, int max, coll_error *error) {
  enum { MOST = 128 };
  candidate found[MOST];
  int count = 0;
  struct ifaddrs *list;
  if (getifaddrs(&list) != 0) {
    colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getifaddrs", errno,
                    "cannot list this host's network interfaces");
    return 0;
  }
  for (const struct ifaddrs *entry = list; entry && count < MOST; entry = entry->ifa_next)
    if (entry->ifa_addr && (entry->ifa_flags & IFF_UP) && (entry->ifa_flags & IFF_RUNNING) &&
        takes(ifname, entry->ifa_name) && convert(entry, &found[count]))
      count++;
  freeifaddrs(list);
  if (count == 0) {
    colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                    "no running network interface matches COLL_TCP_IFNAME='%s'; `ip address` lists "
                    "them",
                    ifname);
    return 0;
  }
  qsort(found, (size_t)count, sizeof(*found), by_score);
  int given = count < max ? count : max;
  for (int i = 0; i < given; i++)
    addrs[i] = found[i].addr;
  if (count > max && max > 0)
    addrs[max - 1] = found[count - 1].addr; /* loopback stays, as the last */
  return given;
}

/* Reads "", "0", "6000" or "6000-6099". */
static bool read_range(const char *text, unsigned *first, unsigned *last) {
  char *end;
  *first = *last = 0;
  if (!*text)
    return true;
  unsigned long low = strtoul(text, &end, 10), high = low;
  if (end == text || *text == '-')
    return false;
  if (*end == '-') {
    const char *second = end + 1;
    high = strtoul(second, &end, 10);
    if (end == second)
      return false;
  }
  if (*end || high > 65535 || low > high || (low == 0 && high != 0))
    return false;
  *first = (unsigned)low;
  *last = (unsigned)high;
  return true;
}

/* A listening socket on all interfaces at one port (0: any), or -1 with errno. */
static int listen_at(int family, unsigned port) {
  int fd = socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  int yes = 1, no = 0;
  struct sockaddr_in6 six = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port)};
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (family == AF_INET6)
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  const struct sockaddr *addr = family == AF_INET6 ? (const void *)&six : (const void *)&four;
  socklen_t length = family == AF_INET6 ? sizeof(six) : sizeof(four);
  if (bind(fd, addr, length) == 0 && listen(fd, SOMAXCONN) == 0)
    return fd;
  int saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

/* The port of a bound socket. */
static uint16_t port_of(int fd) {
  union {
    struct sockaddr any;
    struct sockaddr_in four;
    struct sockaddr_in6 six;
  } addr = {0};
  socklen_t length = sizeof(addr);
  if (getsockname(fd, &addr.any, &length) != 0)
    return 0;
  return ntohs(addr.any.sa_family == AF_INET6 ? addr.six.sin6_port : addr.four.sin_port);
}

/* Listens on all interfaces on a port of the range. */
coll_status colli_net_listen(const char *port_range, int *fd, uint16_t *port, coll_error *error) {
  unsigned first, last;
  *fd = -1;
  if (!read_range(port_range, &first, &last))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "'%s' is no port range; COLL_PORT_RANGE takes 6000 or 6000-6099 (1 .. "
                           "65535), or nothing for any port",
                           port_range);
  for (unsigned at = first; at <= last; at++) {
    *fd = listen_at(AF_INET6, at);
    if (*fd < 0 && errno != EADDRINUSE && errno != EACCES)
      *fd = listen_at(AF_INET, at);
    if (*fd >= 0) {
      *port = port_of(*fd);
      return COLL_OK;
    }
    if (errno != EADDRINUSE)
      break;
  }
  return colli_error_sys(
      error, COLL_ERR_SYSTEM, "create", "bind", errno,
      "cannot listen on %s%s; free a port or set COLL_PORT_RANGE to another range",
      first ? "a TCP port of " : "any TCP port", first ? port_range : "");
}

/* Splits "host:port" or "[host]:port"; false if it is neither. */
static bool split(const char *text, char *host, size_t host_bytes, char *port, size_t port_bytes) {
  const char *colon = strrchr(text, ':');
  const char *begin = text, *end = colon;
  if (!colon || !colon[1])
    return false;
  if (*text == '[') {
    begin = text + 1;
    end = colon - 1;
    if (end < begin || *end != ']')
      return false;
  }
  size_t length = (size_t)(end - begin);
  if (length == 0 || length >= host_bytes || strlen(colon + 1) >= port_bytes ||
      (*text != '[' && memchr(begin, ':', length)))
    return false;
  memcpy(host, begin, length);
  host[length] = 0;
  strcpy(port, colon + 1);
  return true;
}

/* Turns text into addresses. */
coll_status colli_net_parse(const char *text, colli_addr *addrs, int max, int *count,
                            coll_error *error) {
  char host[256], port[16], *end;
  *count = 0;
  bool well = split(text, host, sizeof(host), port, sizeof(port));
  unsigned long number = well ? strtoul(port, &end, 10) : 0;
  if (!well || *end || number == 0 || number > 65535)
    return colli_error_set(
        error, COLL_ERR_INVALID_USAGE, "create",
        "'%s' is not address:port; use 10.0.0.1:5000, [fe80::1]:5000 or name:5000", text);
  struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM}, *list = NULL;
  int failed = getaddrinfo(host, NULL, &hints, &list);
  if (failed)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "cannot find the address of '%s': %s", host, gai_strerror(failed));
  for (const struct addrinfo *entry = list; entry && *count < max; entry = entry->ai_next) {
    colli_addr *addr = &addrs[*count];
    memset(addr, 0, sizeof(*addr));
    addr->port = (uint16_t)number;
    if (entry->ai_family == AF_INET) {
      addr->family = 4;
      addr->prefix = 32;
      memcpy(addr->ip, &((const struct sockaddr_in *)(const void *)entry->ai_addr)->sin_addr, 4);
    } else if (entry->ai_family == AF_INET6) {
      const struct sockaddr_in6 *six = (const void *)entry->ai_addr;
      addr->family = 6;
      addr->prefix = 128;
      addr->scope = six->sin6_scope_id;
      memcpy(addr->ip, &six->sin6_addr, 16);
    } else {
      continue;
    }
    ++*count;
  }
  freeaddrinfo(list);
  return COLL_OK;
}

/* Small messages must not wait for larger ones. */
static void no_delay(int fd) {
  int yes = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof(yes));
}

/* Starts a nonblocking connect. */
int colli_net_connect(const colli_addr *addr) {
  struct sockaddr_in four = {.sin_family = AF_INET, .sin_port = htons(addr->port)};
  struct sockaddr_in6 six = {
      .sin6_family = AF_INET6, .sin6_port = htons(addr->port), .sin6_scope_id = addr->scope};
  bool is_six = addr->family == 6;
  memcpy(is_six ? (void *)&six.sin6_addr : (void *)&four.sin_addr, addr->ip, is_six ? 16 : 4);
  int fd = socket(is_six ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0)
    return -1;
  no_delay(fd);
  const struct sockaddr *to = is_six ? (const void *)&six : (const void *)&four;
  if (connect(fd, to, is_six ? sizeof(six) : sizeof(four)) == 0 || errno == EINPROGRESS)
    return fd;
  int saved = errno;
  close(fd);
  errno = saved;
  return -1;
}

/* After the descriptor became writable: 0, or the errno of the failed connect. */
int colli_net_connect_result(int fd) {
  int result = 0;
  socklen_t length = sizeof(result);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &result, &length) == 0 ? result : errno;
}

/* Takes one waiting connection. */
int colli_net_accept(int listen_fd) {
  int fd = accept4(listen_fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (fd >= 0)
    no_delay(fd);
  return fd;
}

/* Writes an address as text. */
const char *colli_addr_text(const colli_addr *addr, char text[COLLI_ADDR_TEXT]) {
  char ip[INET6_ADDRSTRLEN] = "?";
  if (addr->family == 4 || addr->family == 6)
    inet_ntop(addr->family == 6 ? AF_INET6 : AF_INET, addr->ip, ip, sizeof(ip));
  if (addr->family != 6)
    snprintf(text, COLLI_ADDR_TEXT, "%s:%u", ip, addr->port);
  else if (addr->scope)
    snprintf(text, COLLI_ADDR_TEXT, "[%s%%%u]:%u", ip, addr->scope, addr->port);
  else
    snprintf(text, COLLI_ADDR_TEXT, "[%s]:%u", ip, addr->port);
  return text;
}

/* An upper bound on how well a can reach b. */
int colli_addr_affinity(const colli_addr *a, const colli_addr *b) {
  if (a->family != b->family || a->family == 0)
    return 0;
  unsigned bits = a->prefix < b->prefix ? a->prefix : b->prefix;
  for (unsigned i = 0; i < bits; i++)
    if ((a->ip[i / 8] ^ b->ip[i / 8]) >> (7 - i % 8) & 1)
      return 1;
  return 2;
}
