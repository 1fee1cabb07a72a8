/* round_trip.c: how long packets of a TCP connection travel, and what follows from that. Its
 * headers are the kernel's, as those of the C library leave this out and cannot be included beside
 * them. */
#include <limits.h>
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

void colli_path_pace(int fd) {
  const unsigned long rate = ULONG_MAX - 1; /* bytes/s, no limit; one more would switch it off */
  if (colli_path_round_trip_ns(fd) >= COLLI_PATH_FAR_NS)
    setsockopt(fd, SOL_SOCKET, SO_MAX_PACING_RATE, &rate, sizeof(rate));
}
