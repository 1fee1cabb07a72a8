/*
 * sealed.h: messages on a connection after its handshake. Each is followed by a code (HMAC-SHA-256)
 * over its bytes, its length and its number, with a key that this connection alone has, one for
 * each direction. So a message that was altered, replayed, reflected, dropped or injected on the
 * way is noticed. With COLL_TLS=1 all of it is encrypted, too.
 */
#ifndef COLLI_NET_SEALED_H
#define COLLI_NET_SEALED_H

#include "libcoll/net/auth.h"

/* An authenticated connection. */
typedef struct colli_sealed {
  int fd;         /* -1: none */
  bool wants_tls; /* `tls` is made when it is first needed, with tls_key */
  colli_tls *tls; /* NULL: none (yet) */
  uint8_t tls_key[COLLI_TLS_KEY_BYTES];
  uint8_t send_key[COLLI_MAC_BYTES], recv_key[COLLI_MAC_BYTES];
  uint64_t sent, received; /* whole messages */
  bool unchecked;          /* a message is here whose code could not be computed: no memory */
  uint8_t send_mac[COLLI_MAC_BYTES], recv_mac[COLLI_MAC_BYTES]; /* of the current message */
} colli_sealed;

#define COLLI_SEALED_NONE ((colli_sealed){.fd = -1})

/* How many bytes a message takes on the wire; *done is this much when it has been transferred. */
#define COLLI_SEALED_BYTES(bytes) ((bytes) + COLLI_MAC_BYTES)

/* Takes over the connection of a handshake that is done; the acceptor may answer it later. */
void colli_sealed_open(colli_sealed *sealed, colli_auth *auth);

/* Closes the connection, if there is one, and erases its keys. */
void colli_sealed_close(colli_sealed *sealed);

/*
 * Send or receive the rest of a message, of which *done bytes have been transferred: COLL_T_DONE,
 * COLL_T_AGAIN, or an errno (> 0): ESHUTDOWN at the end of the stream, EBADMSG if the received
 * message is not what the other side sent. Both sides must divide their bytes into messages of the
 * same lengths. Never block.
 */
int colli_sealed_push(colli_sealed *sealed, const void *msg, size_t bytes, size_t *done);
int colli_sealed_pull(colli_sealed *sealed, void *msg, size_t bytes, size_t *done);

/* Advances the TLS handshake, if there is one, as pushing and pulling do: COLL_T_DONE, COLL_T_AGAIN
 * or an errno. */
int colli_sealed_shake(colli_sealed *sealed);

/* Whether a shortage (an errno of the above) may pass: not if it has ended the TLS session. */
bool colli_sealed_may_go_on(const colli_sealed *sealed, int sys_errno);

/* What to poll the socket for in order to push (POLLOUT) or pull (POLLIN) further. */
short colli_sealed_events(const colli_sealed *sealed, short events);

#endif
