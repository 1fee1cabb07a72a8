/* dial.h: connects to a peer that may be at any of several addresses. */
#ifndef COLLI_WIREUP_BOOTSTRAP_DIAL_H
#define COLLI_WIREUP_BOOTSTRAP_DIAL_H

#include "libcoll/net/sealed.h"
#include "libcoll/wireup/bootstrap/report.h"

#define BOOT_ATTEMPTS_MAX 12                  /* addresses of one peer that are tried */
#define BOOT_SPARE_WORD   (UINT64_C(1) << 63) /* of the hello of a spare control connection */

/* Attempts to reach the peer at one of its addresses. */
typedef struct boot_attempt {
  colli_addr addr;
  colli_addr from; /* this rank's address; none: any */
  int fd;          /* -1: not trying now */
  bool connected;
  bool dead; /* something else answers there, so never try it again */
  colli_auth auth;
  bool bound; /* the hello counts from one origin only (auth.h) */
  bool far;   /* such a hello was not taken there, or not answered */
  uint64_t began_ns;
  uint64_t said_ns; /* when it was connected */
  uint64_t next_ns; /* when to try (again) */
  unsigned failures;
  int sys_errno; /* of the last failure */
} boot_attempt;

/*
 * Dials one peer at all its addresses at once, best first, and retries. But it proves itself on one
 * connection at a time: the peer may take each for this rank's only one, or for its latest.
 */
typedef struct boot_dial {
  colli_hello_kind kind;
  uint64_t word; /* in the hello */
  int peer;
  int count;
  boot_attempt attempts[BOOT_ATTEMPTS_MAX];
  colli_sealed conn; /* once there is one */
  bool wrong_secret, refused, answered, tls_differs, altered;
  bool full; /* the peer may have addresses that it could not offer */
} boot_dial;

/* Whether this rank has all of a peer's addresses. If so, both are probably on one host. */
bool boot_dial_own(const boot *b, const colli_addr addrs[COLLI_MAX_ADDRS]);

void boot_dial_begin(const boot *b, boot_dial *dial, colli_hello_kind kind, int peer,
                     const colli_addr addrs[COLLI_MAX_ADDRS]);

/* Begins to dial a second connection to a neighbour, whose hello has BOOT_SPARE_WORD: in networks
 * that are as near as that of the first one, on other interfaces of both hosts, or of one if the
 * other has no other; in any order. False: there is none. */
bool boot_dial_begin_spare(const boot *b, boot_dial *dial, int peer,
                           const colli_addr addrs[COLLI_MAX_ADDRS], const colli_sealed *first);

/* Whether all attempts have failed so far, and none is under way. */
bool boot_dial_failed(const boot_dial *dial);

/* Advances the dialling. COLL_T_DONE: dial->conn is an authenticated connection that the caller
 * owns. COLL_T_AGAIN: call again. COLL_ERR_AUTH, COLL_ERR_MISMATCH (the peer knows the secret, but
 * not this communicator, or tls_differs): retrying is pointless. With `altered`, AUTH means that
 * the peer knows the secret, but what it sent was altered. */
int boot_dial_step(const boot *b, boot_dial *dial);

void boot_dial_watch(boot *b, const boot_dial *dial);
void boot_dial_close(boot_dial *dial);

/* Whether all addresses that identify the peer's host refused the connection: nobody listens there
 * any more. */
bool boot_dial_gone(const boot_dial *dial, bool same_host);

/* Describes the attempts: "10.0.0.1:80 (Connection refused), [::1]:80 (no answer)" */
void boot_dial_describe(const boot_dial *dial, char *text, size_t bytes);

#endif
