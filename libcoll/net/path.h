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

#define COLLI_PATH_CONTROL 16 /* bytes of the name of a control of congestion */

/* How the network shall treat what a socket sends. */
typedef struct colli_path_marks {
  int traffic_class;      /* four times the DSCP; 0: as usual */
  const char *congestion; /* the kernel's name for the control of congestion; "": the system's */
} colli_path_marks;

/* Sets that for a socket, and for those that it accepts: NULL, or the name of what failed (in an
 * option of setsockopt()), with errno. */
const char *colli_path_mark(int fd, const colli_path_marks *marks);

/* How many bytes were sent on a connection and not acknowledged: false if it does not tell. */
bool colli_path_queued(int fd, uint64_t *bytes);

/*
 * Lets a connection have at most half a megabyte under way, for peers on the same machine (in other
 * containers, too). The kernel allows several, which leave the processor's caches before they are
 * read.
 */
void colli_path_keep_short(int fd);

/*
 * Chooses the control of congestion of connections that do not leave this machine, where there is
 * no congestion: Reno, which every process may choose, unless the user has chosen one. The system's
 * may be BBR, which sends by timers at a rate that it has measured, and measures too little where
 * packets overtake each other on their way between processors. It has to be chosen before a
 * connection begins, or the timers stay. So the sockets that `listen_fd` accepts have it, and
 * `usual` receives what those that leave the machine need afterwards ("": nothing), and *inside the
 * marks of those that do not.
 */
void colli_path_choose_inside(int listen_fd, const colli_path_marks *marks,
                              colli_path_marks *inside, char usual[COLLI_PATH_CONTROL]);

/*
 * Gives an accepted connection that leaves the machine the system's control of congestion, `usual`,
 * if it has Reno from the socket that listens. A route may have a control of its own (ip route ...
 * congctl), which stays; if that is Reno, it cannot be told apart. Every process may choose the
 * system's, so that does not fail.
 */
void colli_path_choose_outside(int fd, const char *usual);

/* ---- round_trip.c ---------------------------------------------------------------------------- */

/* The shortest round trip of a connection in the last minutes, which kernels answer whether or not
 * their processes run; 0: unknown. */
double colli_path_round_trip_ns(int fd);

#define COLLI_PATH_FAR_NS 1e6 /* round trips between sites take so long (site_rule, distance.c) */

/*
 * Has the kernel spread over each round trip what a connection may send in one, if that is as long
 * as those between sites (from Linux 4.13 on; before, only the queueing discipline fq does so).
 * What is sent in bursts meets full queues on its way, and where several connections share a line,
 * those that have lost most are still sending when the others are done. Some controls of congestion
 * (BBR) do it anyway. Source: Aggarwal, Savage and Anderson, "Understanding the performance of TCP
 * pacing", INFOCOM 2000.
 */
void colli_path_pace(int fd);

#endif
