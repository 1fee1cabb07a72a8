/*
 * auth.h: the handshake that opens every connection: mutual HMAC-SHA-256 challenge and response
 * with the communicator's secret, before one byte of the other side is trusted.
 *
 *   connector -> acceptor   hello: magic, version, kind, src and dst rank, comm_id, word, nonce A,
 *                           tag, HMAC(secret, "hello" | all that)
 *   acceptor  -> connector  nonce B, HMAC(secret, "acceptor" | hello | nonce B)
 *   connector -> acceptor   HMAC(secret, "connector" | hello | nonce B)
 *   acceptor  -> connector  one byte: accepted (1), refused (0), or one of us uses TLS (2)
 *   both                    with COLL_TLS=1: a TLS handshake (tls.h)
 *
 * The tag is the same in all hellos of a job: a kernel can compare it (door.h). Within a network,
 * half of it is a hash of the address and port from which the hello comes, so that the kernel drops
 * copies from elsewhere. With tag and code, the acceptor turns away at once a peer that does not
 * know the secret, and keeps no state for it. They prove nothing, since both can be recorded and
 * replayed.
 *
 * Poll-driven: colli_auth_poll() never blocks; works on any stream socket (TCP or Unix).
 */
#ifndef COLLI_NET_AUTH_H
#define COLLI_NET_AUTH_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll_transport.h"
#include "libcoll/net/origin.h"
#include "libcoll/net/tls.h"

#define COLLI_HELLO_MAGIC      0x68694c43u /* "CLih" in the bytes of a little-endian host */
#define COLLI_NONCE_BYTES      32
#define COLLI_MAC_BYTES        32
#define COLLI_TAG_BYTES        8
#define COLLI_CODE_BYTES       16
#define COLLI_AUTH_DEADLINE_MS 5000 /* how long a handshake may take */

typedef enum colli_hello_kind {
  COLLI_HELLO_CHECKIN =
      1, /* at start; dst_rank: the rank that serves, as -1, or in a tree the parent */
  COLLI_HELLO_CONTROL = 2, /* control link between ranks */
  COLLI_HELLO_DATA = 3,    /* a transport's connection; word = channel */
  COLLI_HELLO_SHRINK = 4,  /* survivors of a shrink; word = its number */
  COLLI_HELLO_JOIN = 5,    /* a newcomer, to the entrance of rank 0; word = its pid */
  COLLI_HELLO_STATUS = 6,  /* asks for the status pages of a host */
  COLLI_HELLO_MEMORY = 7   /* takes descriptors of memory; word = number of the registration */
} colli_hello_kind;

/* What the connector claims to be. The acceptor may trust it once the handshake is done. */
typedef struct colli_hello {
  uint32_t magic;
  uint16_t version;
  uint8_t kind;
  uint8_t tls; /* 1: the connector has COLL_TLS=1 */
  int32_t src_rank;
  int32_t dst_rank;
  uint64_t comm_id;
  uint64_t word;
  uint8_t nonce[COLLI_NONCE_BYTES];
  uint8_t tag[COLLI_TAG_BYTES];
  uint8_t code[COLLI_CODE_BYTES];
} colli_hello;
_Static_assert(sizeof(colli_hello) == 88, "travels as it is");

typedef struct colli_auth {
  int fd;
  bool connector;
  bool held;   /* set by a connector: it does not send its proof yet */
  bool proved; /* connector: it has sent its proof, or some of it */
  bool curt;   /* set by an acceptor: who does not know the secret gets no answer */
  int state;
  size_t done;           /* bytes of the current message read or written */
  const uint8_t *secret; /* the caller's; NULL once the handshake has ended */
  colli_hello hello;
  uint8_t nonce[COLLI_NONCE_BYTES];
  uint8_t buf[COLLI_NONCE_BYTES + COLLI_MAC_BYTES];
  /* Once it is done, keys for what follows (sealed.h). Of this connection and direction alone. */
  uint8_t send_key[COLLI_MAC_BYTES], recv_key[COLLI_MAC_BYTES];
  uint64_t deadline_ns;
  bool tls; /* this side has COLL_TLS=1 */
  uint8_t tls_key[COLLI_TLS_KEY_BYTES];
  colli_tls *secured; /* connector: TLS over it, until colli_auth_take_tls() */
} colli_auth;

/* HMAC-SHA-256 of a message. False: out of memory, or the secret is all zeros, which is none
 * (secret.h); mac is then no code. */
__attribute__((warn_unused_result)) bool colli_hmac(const uint8_t secret[COLL_SECRET_BYTES],
                                                    const void *msg, size_t bytes,
                                                    uint8_t mac[COLLI_MAC_BYTES]);

/* Whether two codes are equal, in a time that does not depend on where they differ. */
bool colli_hmac_equal(const uint8_t a[COLLI_MAC_BYTES], const uint8_t b[COLLI_MAC_BYTES]);

/* The tags of hellos that are made with a secret: of those from anywhere, and the first half of
 * those that only count from the address and port that the key and their second half say. False: as
 * colli_hmac(). */
typedef struct colli_tags {
  uint32_t anywhere[COLLI_TAG_BYTES / 4], one_origin;
  colli_origin_key key;
} colli_tags;
__attribute__((warn_unused_result)) bool colli_auth_tags(const uint8_t secret[COLL_SECRET_BYTES],
                                                         colli_tags *tags);

/*
 * AES-256-GMAC: five times as fast as HMAC for long messages, but each of a key's messages needs a
 * number of its own. compute() covers `head_bytes` and then `bytes` bytes, both less than 2 GiB.
 */
#define COLLI_GMAC_BYTES 16
typedef struct evp_cipher_ctx_st colli_gmac;
colli_gmac *colli_gmac_open(const uint8_t key[COLLI_MAC_BYTES]); /* NULL: out of memory */
void colli_gmac_close(colli_gmac *gmac);                         /* may be NULL */
bool colli_gmac_compute(colli_gmac *gmac, uint64_t number, const void *head, size_t head_bytes,
                        const void *msg, size_t bytes, uint8_t code[COLLI_GMAC_BYTES]);

/* Starts a handshake on a connected (or connecting) socket. The caller keeps the socket, and the
 * secret until the handshake has ended. It times out after 5 s. */
void colli_auth_connect(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES],
                        colli_hello_kind kind, int src_rank, int dst_rank, uint64_t comm_id,
                        uint64_t word);
void colli_auth_accept(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES]);

/*
 * Connector: if nothing between both sides changes addresses, as routers and proxies may, copies of
 * its hello count from nowhere else. That is so if it dials an address `to` of this host, or of a
 * network of one of its own addresses. To be called before the first colli_auth_poll(), on a socket
 * that connects. Whether it is so. Something may change addresses all the same: without an answer
 * (colli_auth_answered()), the connector must try again without this.
 */
bool colli_auth_bind(colli_auth *auth, const colli_addr *to, const colli_addr *own, int nown);

/* This side has COLL_TLS=1. To be called before the first colli_auth_poll(). */
void colli_auth_want_tls(colli_auth *auth);

/*
 * Advances the handshake: COLL_T_AGAIN, COLL_T_DONE, or COLL_ERR_AUTH (wrong secret; EBADMSG: the
 * TLS handshake failed after it was found right), _MISMATCH (only one side has COLL_TLS=1),
 * _PROTOCOL (not a libcoll of this version), _PEER_LOST (closed, or refused: wrong rank or
 * communicator), _TIMEOUT, _SYSTEM. errno is set with every error: EPERM means refused. For the
 * acceptor, DONE means that auth->hello can be trusted; it must then call colli_auth_answer().
 */
int colli_auth_poll(colli_auth *auth);

/* Acceptor only, after DONE: tells the connector whether it is accepted. 0, or -1 with errno:
 * EPROTONOSUPPORT if only one side has COLL_TLS=1, which the connector is told then. */
int colli_auth_answer(colli_auth *auth, bool accepted);

/* Moves the TLS session of a finished handshake (acceptor: after colli_auth_answer()) to the
 * caller. This side's TLS handshake may still be in progress. NULL: there is no TLS, or (auth->tls)
 * no memory. */
colli_tls *colli_auth_take_tls(colli_auth *auth);

/* Frees what an abandoned handshake holds. The socket stays open. */
void colli_auth_drop(colli_auth *auth);

/* Connector only: whether the acceptor has said anything. */
bool colli_auth_answered(const colli_auth *auth);

/* Connector only: whether it has proved itself, or is about to, so that the acceptor may count it.
 */
bool colli_auth_proves(const colli_auth *auth);

/* Acceptor only: whether the connector's whole hello has arrived, and its code is right. */
bool colli_auth_spoken(const colli_auth *auth);

/* What to poll the socket for after AGAIN: POLLIN or POLLOUT. */
short colli_auth_events(const colli_auth *auth);

#endif
