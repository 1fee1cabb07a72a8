/*
 * support_kernel.h: a simulated kernel for whole libcoll ranks, in one thread and in virtual time.
 *
 * Each rank is a fiber on a virtual host. The linker replaces the system calls of the library
 * (support_calls.h): sockets, epoll, eventfd, poll, clocks, random numbers, names of hosts. So all
 * code of the library runs as it is: start-up, TCP transport, control links, shrink. What a call
 * waits for happens when no rank can run at an earlier virtual time. All random choices come from
 * the seed: a run repeats exactly.
 *
 * The kernel has TCP with latency, bandwidth, buffers, backlogs, FIN and RST, refused and lost
 * requests for connections, retransmissions with backoff, and keepalive; hosts with an Ethernet
 * interface and loopback; and faults: ranks killed at any of their system calls or at a time, ranks
 * stopped, links cut in one or both directions, and healed. HMAC is replaced by a fast hash.
 * It has no IPv6 peers, no Unix sockets, no signals, no threads, and no lack of memory.
 */
#ifndef TESTS_SIMKERNEL_SUPPORT_KERNEL_H
#define TESTS_SIMKERNEL_SUPPORT_KERNEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SK_MS 1000000ull
#define SK_S  1000000000ull

typedef struct sk_config {
  uint64_t seed;
  int nranks;
  int ranks_per_host;      /* ranks r .. of one host follow each other */
  uint64_t latency_ns;     /* from host to host; within a host a tenth */
  int hosts_per_site;      /* hosts h .. of one site follow each other; 0: all are at one */
  uint64_t site_ns;        /* from site to site, instead */
  uint64_t jitter_ns;      /* at most, on top */
  double ns_per_byte;      /* of a host's link, out */
  uint64_t syscall_ns;     /* each system call of the library */
  double copy_ns_per_byte; /* send and recv */
  size_t buffer_bytes;     /* of a socket, each way */
  int backlog;             /* the most that listen() grants */
  unsigned switch_percent; /* of system calls, after which other ranks may run first */
} sk_config;

/* 10 us, 10 Gbit/s, 1 us each system call, 0.1 ns a byte, 256 KiB. */
sk_config sk_defaults(uint64_t seed, int nranks, int ranks_per_host);

/* What a rank has done. */
typedef struct sk_counts {
  uint64_t calls;    /* system calls; reading the clock does not count */
  uint64_t sends;    /* calls that sent something */
  uint64_t receives; /* calls of others that sent something to it */
  uint64_t sent_bytes, received_bytes;
  uint64_t connects, accepts;
} sk_counts;

/* Makes the kernel; there is one at a time. Aborts if out of memory. */
void sk_open(const sk_config *config);
void sk_close(void);

/* Runs fn(rank, arg) on all ranks, until all that live have returned or virtual time has advanced
 * by limit_ns; false in the latter case. */
typedef void (*sk_fn)(int rank, void *arg);
bool sk_run(sk_fn fn, void *arg, uint64_t limit_ns);

/* Virtual time since sk_open(); of the rank that runs, if one does. */
uint64_t sk_now_ns(void);

/* For code of a rank. Waits until *flag is set, looking every ms, until the time; false: too late.
 */
bool sk_await(const bool *flag, uint64_t until_ns);

/* Sleeps. */
void sk_sleep(uint64_t ns);

/* ---- faults; at any time ----------------------------------------------------------------------
 */

/* Kills a rank at once (not the one that runs), or when it makes that many more system calls. */
void sk_kill(int rank);
void sk_kill_after(int rank, uint64_t calls);

/* Calls fn(arg) at a time. */
void sk_at(uint64_t at_ns, void (*fn)(uint64_t arg), uint64_t arg);

/* Packets from one host to another are lost from now on, or arrive again. */
void sk_cut(int from_host, int to_host, bool cut);

/* A rank stops, as with SIGSTOP, or goes on. Its host's kernel still answers. */
void sk_stop(int rank, bool stopped);

/* Runs fn as another thread of a rank would, between two events. It must not block. */
void sk_interrupt(int rank, void (*fn)(int rank));

/* ---- what happened ----------------------------------------------------------------------------
 */

int sk_host(int rank);
bool sk_is_alive(int rank);    /* was not killed */
bool sk_was_stopped(int rank); /* at some time */
bool sk_is_done(int rank);     /* its function has returned */
sk_counts sk_count(int rank);
void sk_reset_counts(void);
int sk_left_open(int rank); /* descriptors that it had when its function returned */

/* A number that differs if anything happened in another order or at another time. */
uint64_t sk_digest(void);

#endif
