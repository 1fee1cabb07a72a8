/* bootstrap_listener.h: accepts a listener's connections and authenticates them. */
#ifndef COLLI_WIREUP_BOOTSTRAP_LISTENER_H
#define COLLI_WIREUP_BOOTSTRAP_LISTENER_H

#include "libcoll/base/auth.h"
#include "libcoll/wireup/bootstrap_report.h"

#define BOOT_PENDING_MAX 64

/* A connection that has not authenticated itself yet. */
typedef struct boot_pending {
  int fd;
  uint64_t since_ns;
  colli_auth auth;
} boot_pending;

/* A listening socket and its pending connections. */
typedef struct boot_listener {
  int fd; /* -1: none */
  int count;
  int sys_errno;                          /* of a failing accept() (EMFILE ...); 0: it works */
  bool full;                              /* more connections may wait in the kernel */
  boot_pending pending[BOOT_PENDING_MAX]; /* oldest first */
} boot_listener;

/* Accepts connections and advances their handshakes. True: *pending has proved that it knows the
 * secret; the caller now owns it and must answer it. Call until it returns false. */
bool boot_listener_next(const boot *b, boot_listener *listener, boot_pending *pending);

void boot_listener_watch(boot *b, const boot_listener *listener);

/* Closes the pending connections; the listening socket stays open. */
void boot_listener_drop_pending(boot_listener *listener);

/* Refuses a connection whose peer knows the secret but does not belong here. */
void boot_pending_refuse(const boot *b, boot_pending *pending);

#endif
