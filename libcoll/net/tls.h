/*
 * tls.h: TLS 1.3 on a connection whose handshake (auth.h) has succeeded, if COLL_TLS is 1. Both
 * sides prove once more that they know the secret: the pre-shared key is derived from it and from
 * what was said, so it belongs to this connection alone. A key exchange (X25519) is added, so that
 * anyone who records the connection and learns the secret later still cannot read it.
 *
 * Bytes that were altered, replayed, reflected, dropped or injected on the way end the connection
 * with EBADMSG, before anybody has seen one of them. As without TLS, the end of the stream counts
 * as the end of the peer: a process that is killed cannot say goodbye, and may leave half a record.
 *
 * Nothing blocks. Sending and receiving advance the TLS handshake, too.
 */
#ifndef COLLI_NET_TLS_H
#define COLLI_NET_TLS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#define COLLI_TLS_KEY_BYTES 32

typedef struct colli_tls colli_tls;

/*
 * Begins TLS on a connected socket, which stays the caller's. `bulk`: reads ahead, which costs
 * memory; then poll() may find nothing although bytes are here, so receive until EAGAIN. NULL: out
 * of memory.
 */
colli_tls *colli_tls_open(int fd, bool connector, bool bulk,
                          const uint8_t key[COLLI_TLS_KEY_BYTES]);

/* Frees it, and erases its keys. The socket stays open. May be NULL. */
void colli_tls_close(colli_tls *tls);

/* Advances the TLS handshake: COLL_T_DONE, COLL_T_AGAIN, or an errno (> 0): EBADMSG if the other
 * side does not have the key or its bytes were altered, ESHUTDOWN at the end of the stream. */
int colli_tls_shake(colli_tls *tls);

/* What to poll the socket for in order to do `events`: something else during the handshake. */
short colli_tls_events(const colli_tls *tls, short events);

/* Whether nothing more can be sent, or nothing more received. */
bool colli_tls_failed(const colli_tls *tls);

/*
 * Like sendmsg() and recvmsg() without blocking: the number of bytes, 0 at the end of the stream,
 * or -1 with errno. After -1 with EAGAIN, or less than all, the next call must offer at least the
 * rest of the same bytes: some of them may be under way.
 */
ssize_t colli_tls_send(colli_tls *tls, const struct iovec *iov, size_t count);
ssize_t colli_tls_recv(colli_tls *tls, const struct iovec *iov, size_t count);

/* Makes a new key for what is sent from now on. colli_tls_send() does so in time. False: something
 * is still under way, or out of memory. */
bool colli_tls_renew(colli_tls *tls);

#endif
