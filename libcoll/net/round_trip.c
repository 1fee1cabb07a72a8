/* round_trip.c: how long packets of a TCP connection travel. Its headers are the kernel's, as those
 * of the C library leave this out and cannot be included beside them. */
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

#include "libcoll/net/path.h"

double colli_path_round_trip_ns(int fd) {
  struct tcp_info info = {0};
  socklen_t bytes = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0 ||
      bytes < offsetof(struct tcp_info, tcpi_min_rtt) + sizeof(info.tcpi_min_rtt) ||
      info.tcpi_min_rtt == UINT32_MAX)
    return 0;
  return info.tcpi_min_rtt * 1e3;
}
