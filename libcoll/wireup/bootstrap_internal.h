/*
 * bootstrap_internal.h: the parts of bootstrap.
 *
 * Every rank r > 0 keeps one check-in connection to rank 0 until the outcome is known:
 *
 *   r -> 0   boot_checkin    its record
 *   r -> 0   boot_word       its links are up (COLL_OK), or why they cannot be made
 *   0 -> r   boot_word       the outcome: COLL_OK, or the same failure for everybody
 *
 * so that rank 0 notices a death at once and all ranks end alike. Control links begin with a
 * boot_link_head; on a link from parent to child the table follows.
 *
 * Nothing here blocks but boot_polls_wait(): each part has a step function, which moves it as far
 * as it goes, and a watch function, which says what to wait for.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_INTERNAL_H
#define COLLI_WIREUP_BOOTSTRAP_INTERNAL_H

#include <poll.h>

#include "libcoll/base/auth.h"
#include "libcoll/wireup/bootstrap.h"
#include "libcoll/wireup/ctrl_links.h"

#define BOOT_GUESTS_MAX 64 /* connections that have not proved anything yet */
#define BOOT_TRIES_MAX  12 /* addresses of one peer that are tried */

/* ---- what travels ---------------------------------------------------------------------------- */

typedef struct boot_checkin {
  uint32_t version; /* COLL_VERSION; the rest is read only if it is ours */
  int32_t nranks;
  uint32_t remaining_ms; /* until the sender gives up */
  uint32_t pad;
  colli_rank_info info;
} boot_checkin;
#define BOOT_CHECKIN_HEAD 16

typedef struct boot_word {
  int32_t status;
  uint32_t pad;
  coll_error error;
} boot_word;

typedef struct boot_link_head {
  uint32_t magic;
  uint32_t records;      /* that follow */
  uint32_t remaining_ms; /* until the links must be up */
  uint32_t pad;
} boot_link_head;

/* ---- common (bootstrap.c) -------------------------------------------------------------------- */

/* What to wait for. */
typedef struct boot_polls {
  struct pollfd *fds;
  int count, room;
  uint64_t wake_ns;
} boot_polls;

/* What all parts of one bootstrap share. */
typedef struct boot {
  const colli_id *id;
  int rank;
  int nranks;
  colli_rank_info *mine;
  const colli_log *log;
  uint64_t start_ns;
  uint64_t deadline_ns;
  coll_error *error;
  const colli_lifelines *lifelines; /* may be NULL */
  uint64_t word;                    /* goes into the hello of connections that are dialled */
  boot_polls polls;
} boot;

/* Adds a descriptor; returns its index. */
int boot_polls_add(boot_polls *polls, int fd, short events);

/* Asks to be woken at a time. */
void boot_polls_wake(boot_polls *polls, uint64_t at_ns);

/* Waits for one of the descriptors or the time. */
void boot_polls_wait(boot_polls *polls);

/* Send or receive the rest of a message: COLL_T_DONE, COLL_T_AGAIN, or an errno (> 0; ECONNRESET at
 * the end of the stream). */
int boot_push(int fd, const void *msg, size_t bytes, size_t *done);
int boot_pull(int fd, void *msg, size_t bytes, size_t *done);

/* Fills in boot->error: status, this rank, and `peer` (-1: nobody), described by `info` if not
 * NULL. Returns status. */
coll_status boot_fail(const boot *b, coll_status status, int peer, const colli_rank_info *info,
                      const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Takes over another rank's record as this rank's failure; ends its strings. */
coll_status boot_fail_word(const boot *b, boot_word *word);

/* A word that tells boot->error. */
void boot_word_fill(const boot *b, boot_word *word, coll_status status);

/* "3, 5-7": the ranks whose flag is `wanted`, as far as they fit. */
void boot_list_ranks(const bool *flags, int nranks, bool wanted, char *text, size_t bytes);

/* How early before a deadline news of it must go out, to arrive in time. */
uint64_t boot_margin_ns(uint64_t remaining_ns);

/* Milliseconds left until a time; 0 if it is over. */
uint32_t boot_remaining_ms(uint64_t until_ns);

/* Watches the lifelines; the index of one that brings something or ended, or -1. */
void boot_lifelines_watch(boot *b);
int boot_lifelines_cut(const boot *b);

/* Fails because of the lifeline with that index. */
coll_status boot_fail_cut(const boot *b, int lifeline, const colli_rank_info *info);

/* Closes a descriptor that may be -1 and sets it to -1. */
void boot_close(int *fd);

/* ---- dialling (bootstrap_dial.c) ------------------------------------------------------------- */

/* One address of the peer. */
typedef struct boot_try {
  colli_addr addr;
  int fd; /* -1: not trying now */
  bool connected;
  bool dead; /* something else answers there: never again */
  colli_auth auth;
  uint64_t began_ns;
  uint64_t next_ns; /* when to try (again) */
  unsigned failures;
  int sys_errno; /* of the last failure */
} boot_try;

/* Reaches one peer by all its addresses at once, best first, again and again. */
typedef struct boot_dial {
  colli_hello_kind kind;
  int peer;
  int count;
  boot_try tries[BOOT_TRIES_MAX];
  int fd; /* the connection, once there is one */
  bool wrong_secret, refused, answered;
} boot_dial;

void boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                     const colli_addr addrs[COLLI_MAX_ADDRS]);

/* COLL_T_DONE: dial->fd is an authenticated connection, the caller's. COLL_T_AGAIN. COLL_ERR_AUTH,
 * COLL_ERR_MISMATCH (the peer knows the secret, but not this communicator): no use in going on. */
int boot_dial_step(const boot *b, boot_dial *dial);
void boot_dial_watch(boot *b, const boot_dial *dial);
void boot_dial_close(boot_dial *dial);

/* Whether all addresses that mean the peer's host were tried and refused: nobody listens there any
 * more. */
bool boot_dial_gone(const boot_dial *dial, bool same_host);

/* "10.0.0.1:80 (Connection refused), [::1]:80 (no answer)" */
void boot_dial_story(const boot_dial *dial, char *text, size_t bytes);

/* ---- being dialled (bootstrap_pending.c) ------------------------------------------------------
 */

typedef struct boot_pending {
  int fd;
  uint64_t since_ns;
  colli_auth auth;
} boot_pending;

/* A listener and those who knocked. */
typedef struct boot_pendings {
  int listen_fd;
  int count;
  int sys_errno;                      /* accept() cannot go on: EMFILE and the like */
  bool again;                         /* more may wait at the listener */
  boot_pending list[BOOT_GUESTS_MAX]; /* oldest first */
} boot_pendings;

/* Takes new connections and moves handshakes on. True: *guest has proved that it knows the secret;
 * it is the caller's, who answers it. Call until false. */
bool boot_pendings_next(const boot *b, boot_pendings *pendings, boot_pending *pending);
void boot_pendings_watch(boot *b, const boot_pendings *pendings);
void boot_pendings_close(boot_pendings *pendings);

/* Turns a guest away that knows the secret but is not wanted here. */
void boot_pending_refuse(const boot *b, boot_pending *pending);

/* ---- control links (bootstrap_links.c) ------------------------------------------------------- */

typedef struct boot_link {
  int peer;
  bool dials; /* this rank connects */
  bool table; /* the table goes over it */
  bool began, up;
  int fd;      /* -1: not connected */
  size_t done; /* bytes of head and table that are through */
  boot_link_head head;
  boot_dial dial;
} boot_link;

typedef struct boot_links {
  boot_pendings pendings;
  colli_rank_info *table;
  bool have_table;
  uint64_t deadline_ns; /* for the links; rank 0's, as the head of the parent's link tells it */
  int count;
  boot_link at[COLLI_CTRL_LINKS_MAX];
} boot_links;

/* Opens the control listener, completes boot->mine. */
coll_status boot_links_open(const boot *b, boot_links *links, const colli_params *params);

/* COLL_T_DONE: all links are up; COLL_T_AGAIN; or a coll_status, with boot->error filled in. */
int boot_links_step(const boot *b, boot_links *links);
void boot_links_watch(boot *b, const boot_links *links);
void boot_links_close(boot_links *links);

/* ---- the two roles --------------------------------------------------------------------------- */

/* Serve as rank 0 (bootstrap_root.c); join as another rank (bootstrap_join.c). */
coll_status boot_root(boot *b, boot_links *links);
coll_status boot_join(boot *b, boot_links *links);

#endif
