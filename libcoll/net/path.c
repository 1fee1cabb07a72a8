/* path.c: what the kernel knows about the way that a TCP connection takes through the network. */
#include "libcoll/net/path.h"

#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#define RTO_MAX_MS  44 /* TCP_RTO_MAX_MS, which older headers do not have */
#define REPEAT_MS   1000
#define INSIDE      "reno"      /* the control of congestion of connections inside a machine */
#define SHORT_BYTES (256 << 10) /* the kernel doubles that, for what it keeps beside the bytes */

bool colli_path_look(int fd, struct tcp_info *info) {
  socklen_t bytes = sizeof(*info);
  memset(info, 0, sizeof(*info));
  return getsockopt(fd, IPPROTO_TCP, TCP_INFO, info, &bytes) == 0 &&
         bytes >= offsetof(struct tcp_info, tcpi_pmtu);
}

unsigned colli_path_unheard(int fd) {
  struct tcp_info info;
  return colli_path_look(fd, &info) ? (unsigned)info.tcpi_probes + info.tcpi_retransmits : 0;
}

void colli_path_hurry(int fd, int gone_ms) {
  const int repeat_ms = REPEAT_MS;
  setsockopt(fd, IPPROTO_TCP, RTO_MAX_MS, &repeat_ms, sizeof(repeat_ms));
  setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &gone_ms, sizeof(gone_ms));
}

const char *colli_path_mark(int fd, const colli_path_marks *marks) {
  const int class = marks->traffic_class;
  int family = AF_INET;
  socklen_t bytes = sizeof(family);
  if (*marks->congestion && setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, marks->congestion,
                                       (socklen_t)strlen(marks->congestion)) != 0)
    return "TCP_CONGESTION";
  if (class == 0)
    return NULL;
  /* What an IPv6 socket sends to an IPv4 address has the class of IPv4. */
  if (setsockopt(fd, IPPROTO_IP, IP_TOS, &class, sizeof(class)) != 0)
    return "IP_TOS";
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes) == 0 && family == AF_INET6 &&
      setsockopt(fd, IPPROTO_IPV6, IPV6_TCLASS, &class, sizeof(class)) != 0)
    return "IPV6_TCLASS";
  return NULL;
}

bool colli_path_queued(int fd, uint64_t *bytes) {
  int queued = 0;
  if (ioctl(fd, SIOCOUTQ, &queued) != 0)
    return false;
  *bytes = (uint64_t)queued;
  return true;
}

void colli_path_keep_short(int fd) {
  const int bytes = SHORT_BYTES;
  setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof(bytes));
}

void colli_path_choose_inside(int listen_fd, const colli_path_marks *marks,
                              colli_path_marks *inside, char usual[COLLI_PATH_CONTROL]) {
  const colli_path_marks reno = {marks->traffic_class, INSIDE};
  socklen_t bytes = COLLI_PATH_CONTROL - 1;
  memset(usual, 0, COLLI_PATH_CONTROL);
  *inside = *marks;
  if (*marks->congestion || getsockopt(listen_fd, IPPROTO_TCP, TCP_CONGESTION, usual, &bytes) != 0)
    return;
  if (colli_path_mark(listen_fd, &reno) == NULL)
    *inside = reno;
  else
    *usual = '\0';
}

void colli_path_choose_outside(int fd, const char *usual) {
  char now[COLLI_PATH_CONTROL] = "";
  socklen_t bytes = sizeof(now) - 1;
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, now, &bytes) == 0 && strcmp(now, INSIDE) == 0)
    colli_path_mark(fd, &(colli_path_marks){.congestion = usual});
}
