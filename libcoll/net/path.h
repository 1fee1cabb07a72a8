/* path.h: what the kernel knows about the way that a TCP connection takes through the network. */
#ifndef COLLI_NET_PATH_H
#define COLLI_NET_PATH_H

#include <stdbool.h>
#include <stdint.h>

struct tcp_info; /* of netinet/tcp.h */

/* Fills in TCP_INFO, what is unknown with 0. False: the kernel tells too little (qemu-user gives
 * four bytes). */
bool colli_path_look(int fd, struct tcp_info *info);

/* How many questions, and repetitions of what was sent, have remained without an answer. */
unsigned colli_path_unheard(int fd);

/* For a connection that is not the only one to its peer: lost bytes are repeated each second at
 * least, so that the way is used soon after it heals (from Linux 6.15 on), and the kernel gives the
 * connection up after so long without an answer. */
void colli_path_hurry(int fd, int gone_ms);

/* How the network shall treat what a socket sends. */
typedef struct colli_path_marks {
  int traffic_class;      /* four times the DSCP; 0: as usual */
  const char *congestion; /* the kernel's name for the control of congestion; "": the usual one */
} colli_path_marks;

/* Sets that for a socket, and for those that it accepts: NULL, or the name of what failed (in an
 * option of setsockopt()), with errno. */
const char *colli_path_mark(int fd, const colli_path_marks *marks);

/* How many bytes were sent on a connection and not acknowledged: false if it does not tell. */
bool colli_path_queued(int fd, uint64_t *bytes);

/*
 * Tells the kernel that a connection does not leave this machine (but perhaps a container). It has
 * at most half a megabyte under way: the kernel allows several, which leave the processor's caches
 * before they are read. And unless the user has chosen a control of congestion, of which there is
 * none, it is Reno, which every process may set: BBR sends by timers at a rate that it has
 * measured, and measures too little where packets overtake each other on their way between
 * processors.
 */
void colli_path_keep_inside(int fd, const colli_path_marks *marks);

/* ---- round_trip.c ---------------------------------------------------------------------------- */

/* The shortest round trip of a connection in the last minutes, which kernels answer whether or not
 * their processes run; 0: unknown. */
double colli_path_round_trip_ns(int fd);

#endif
