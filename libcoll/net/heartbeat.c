/* heartbeat.c: whether the host at the other end of a TCP connection answers. */
#include "libcoll/net/heartbeat.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/net/path.h"

#define LOOKS       8u  /* within one limit */
#define MOST_PROBES 127 /* as many as the kernel allows: the network may heal */

uint64_t colli_heartbeat_look_ns(int limit_ms) {
  return (uint64_t)limit_ms * COLLI_NS_PER_MS / LOOKS;
}

/* After how many seconds of silence the kernel asks, and asks again. */
static int every_s(int limit_ms) {
  return limit_ms > COLLI_HEARTBEAT_KERNEL_MS ? limit_ms / 2000 : 1;
}

void colli_heartbeat_enable(int fd, int limit_ms) {
  const int on = 1, probes = MOST_PROBES, seconds = every_s(limit_ms);
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &seconds, sizeof(seconds));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
  /* Where packets are lost, a short message is repeated every 200 ms. By default each time takes
   * twice as long, so four losses in a row would look like silence. */
  setsockopt(fd, IPPROTO_TCP, TCP_THIN_LINEAR_TIMEOUTS, &on, sizeof(on));
}

/* Makes the kernel ask at once: a question or an answer may have been lost. Setting the time of
 * silence again restarts its timer, and that time has passed. */
static void ask_again(int fd, int limit_ms) {
  const int seconds = every_s(limit_ms);
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
}

bool colli_heartbeat_silent(colli_heartbeat *beat, int fd, int limit_ms, uint64_t now_ns) {
  struct tcp_info info;
  if (!colli_path_look(fd, &info))
    return false;
  const uint64_t gap_ns = beat->looked_ns ? now_ns - beat->looked_ns : 0;
  const uint64_t most_ns = 2 * colli_heartbeat_look_ns(limit_ms);
  const bool answered = info.tcpi_last_ack_recv * COLLI_NS_PER_MS <= gap_ns;
  beat->looked_ns = now_ns;
  uint64_t queued;
  beat->idle = info.tcpi_probes == 0 && colli_path_queued(fd, &queued) && queued == 0;
  if (answered || (info.tcpi_unacked == 0 && info.tcpi_probes == 0))
    beat->unanswered_ns = 0;
  else
    beat->unanswered_ns += gap_ns < most_ns ? gap_ns : most_ns;
  if (beat->unanswered_ns > 0 && info.tcpi_unacked == 0)
    ask_again(fd, limit_ms);
  return beat->unanswered_ns >= (uint64_t)limit_ms * COLLI_NS_PER_MS;
}
