/* support_machine.h: what the parts of the simulated kernel share: events, ranks, files. */
#ifndef TESTS_SIMKERNEL_SUPPORT_MACHINE_H
#define TESTS_SIMKERNEL_SUPPORT_MACHINE_H

#include <stdint.h>

#include "libcoll/base/prng.h"
#include "libcoll/base/queue.h"
#include "support_kernel.h"

#define SK_FD_BASE  (1 << 21) /* above all real descriptors, and above those that fork.c lists */
#define SK_FD_RANK  (1 << 14) /* of one rank */
#define SK_START_NS (1000 * SK_S)

/* ---- files ------------------------------------------------------------------------------------
 */

typedef enum sk_kind { SK_SOCKET, SK_EPOLL, SK_EVENTFD } sk_kind;

typedef struct sk_watch sk_watch;

typedef struct sk_file {
  sk_kind kind;
  int fd; /* -1: closed */
  int rank;
  int flags;
  LIST_HEAD(, sk_watch) watches; /* of epoll descriptors */
  LIST_ENTRY(sk_file) all;
} sk_file;

/* One descriptor in an epoll descriptor. */
struct sk_watch {
  struct sk_epoll *epoll;
  sk_file *file;
  uint32_t events;
  uint64_t data;
  bool queued;
  LIST_ENTRY(sk_watch) of_file;
  LIST_ENTRY(sk_watch) of_epoll;
  TAILQ_ENTRY(sk_watch) ready;
};

typedef struct sk_epoll {
  sk_file file;
  LIST_HEAD(, sk_watch) watches;
  TAILQ_HEAD(sk_watch_list, sk_watch) ready;
} sk_epoll;

typedef struct sk_eventfd {
  sk_file file;
  uint64_t count;
} sk_eventfd;

/* The running rank's file; NULL with EBADF. */
sk_file *sk_file_get(int fd);

/* Gives a new file the lowest free descriptor of the running rank. */
int sk_file_install(sk_file *file, sk_kind kind);

/* Events that are ready now (POLLIN ..). */
unsigned sk_file_ready(sk_file *file);

/* Something about a file has changed; 0: everything may have. */
void sk_file_notify(sk_file *file, unsigned events);

/* Closes a file as the kernel does. */
void sk_file_close(sk_file *file);

/* A file that is freed with the machine. */
void sk_file_keep(sk_file *file);

/* Frees all files. */
void sk_files_free(void);

int sk_epoll_create(void);
int sk_epoll_ctl(int epoll_fd, int op, int fd, uint32_t events, uint64_t data);
int sk_epoll_collect(sk_epoll *epoll, void *events, int most);
int sk_eventfd_create(unsigned count, int flags);

/* ---- ranks ------------------------------------------------------------------------------------
 */

typedef struct sk_rank {
  struct sk_fiber *fiber;
  int rank, host;
  uint64_t now_ns; /* its own time, ahead of the world's while it runs */
  bool done, dead, stopped;
  bool was_stopped; /* at some time */
  bool sleeping;    /* in poll(): a file may wake it */
  bool woken;       /* while it was stopped */
  uint64_t wake;    /* the number of the event that may resume it */
  uint64_t wake_ns;
  uint64_t calls, kill_at; /* 0: never */
  sk_file **files;
  int nfiles;
  int left_open; /* descriptors when its function returned */
  sk_counts counts;
  colli_prng prng; /* its getrandom() */
} sk_rank;

typedef struct sk_host_state {
  uint64_t free_ns; /* when its link is free */
  uint16_t next_port;
} sk_host_state;

typedef struct sk_machine {
  sk_config config;
  uint64_t now_ns;
  colli_prng prng;
  sk_rank *ranks;
  sk_rank *current; /* NULL: no rank runs */
  bool interrupted; /* it runs a function of sk_interrupt() */
  sk_host_state *hosts;
  int nhosts;
  bool *cut; /* from * nhosts + to */
  uint64_t digest;
  sk_fn fn;
  void *arg;
} sk_machine;

extern sk_machine sk;

/* The time of the running rank, or the world's. */
uint64_t sk_time(void);

/* Whether packets get through. */
bool sk_path(int from, int to);

/* Calls fn(object, number) at a time. */
typedef void (*sk_handler)(void *object, uint64_t number);
void sk_schedule(uint64_t at_ns, sk_handler fn, void *object, uint64_t number);

/* The running rank waits until a time, or (if `files`) until a file of its changes. */
void sk_wait(uint64_t until_ns, bool files);

/* A file of a rank has changed. */
void sk_wake(int rank);

/* The running rank makes a system call; does not return if that kills it. `atomic`: it holds a
 * lock of the process, so no other rank may run now. */
void sk_enter(bool atomic);

/* Adds to the digest. */
void sk_note(uint64_t number);

/* ---- fibers -----------------------------------------------------------------------------------
 */

struct sk_fiber *sk_fiber_create(void (*fn)(void *), void *arg);
void sk_fiber_free(struct sk_fiber *fiber);
void sk_fiber_resume(struct sk_fiber *fiber);
void sk_fiber_leave(bool last); /* back to who resumed it */

/* ---- TCP --------------------------------------------------------------------------------------
 */

struct sockaddr;
struct tcp_info;

sk_file *sk_tcp_new(int family); /* without a descriptor yet */
void sk_tcp_free(sk_file *file);
int sk_tcp_create(int family, int flags);
unsigned sk_tcp_ready(sk_file *file);
void sk_tcp_close(sk_file *file);
int sk_tcp_bind(sk_file *file, const struct sockaddr *name);
int sk_tcp_listen(sk_file *file, int backlog);
int sk_tcp_connect(sk_file *file, const struct sockaddr *name);
int sk_tcp_accept(sk_file *file, int flags);
long sk_tcp_send(sk_file *file, const void *bytes, size_t count);
long sk_tcp_recv(sk_file *file, void *bytes, size_t count, bool peek);
int sk_tcp_shutdown(sk_file *file, int how);
int sk_tcp_name(sk_file *file, bool peer, struct sockaddr *name, unsigned *length);
int sk_tcp_set(sk_file *file, int level, int option, int value);
int sk_tcp_get(sk_file *file, int level, int option, void *value, unsigned *length);
void sk_tcp_count(const sk_file *file, size_t bytes); /* of a call that sent something */
int sk_tcp_queued(sk_file *file, bool input);

#endif
