/*
 * heartbeat.h: whether the host at the other end of a TCP connection answers. The kernels ask and
 * answer, so a process that computes for an hour is as alive as any other. What counts is the time
 * for which something was sent and not acknowledged, while this process looked: if this process or
 * its host was suspended meanwhile, that time does not count.
 */
#ifndef COLLI_NET_HEARTBEAT_H
#define COLLI_NET_HEARTBEAT_H

#include <stdbool.h>
#include <stdint.h>

#define COLLI_HEARTBEAT_KERNEL_MS 2000 /* with shorter limits the kernel asks too seldom: send */

/* What was seen of one connection; starts as zeros. */
typedef struct colli_heartbeat {
  uint64_t looked_ns;     /* the last look */
  uint64_t unanswered_ns; /* how long something has waited for an answer, as far as was seen */
  bool idle;              /* at the last look, all that was sent had been acknowledged */
} colli_heartbeat;

/* How often to look at connections whose silence counts after limit_ms. */
uint64_t colli_heartbeat_look_ns(int limit_ms);

/* Makes the kernel ask for a sign of life while nothing else is sent. Sockets other than TCP stay
 * as they are. */
void colli_heartbeat_enable(int fd, int limit_ms);

/* Looks at a connection. True: the other end has not answered for limit_ms. */
bool colli_heartbeat_silent(colli_heartbeat *beat, int fd, int limit_ms, uint64_t now_ns);

#endif
