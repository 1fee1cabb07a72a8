/* auth.c: the handshake that opens every connection. */
#include "libcoll/base/auth.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/prng.h"

#define HELLO_MAGIC   0x4c4c4f43u /* "COLL" */
#define HELLO_VERSION 1

enum {
  SEND_HELLO,
  READ_CHALLENGE,
  SEND_PROOF,
  READ_VERDICT,
  READ_HELLO,
  SEND_CHALLENGE,
  READ_PROOF,
  FINISHED
};

/* HMAC-SHA-256 of a message. */
void colli_hmac(const uint8_t secret[COLL_SECRET_BYTES], const void *msg, size_t bytes,
                uint8_t mac[COLLI_MAC_BYTES]) {
  unsigned length = COLLI_MAC_BYTES;
  HMAC(EVP_sha256(), secret, COLL_SECRET_BYTES, msg, bytes, mac, &length);
}

/* The proof that one side knows the secret: over its role, the hello and the acceptor's nonce. */
static void prove(const colli_auth *auth, bool connector, uint8_t mac[COLLI_MAC_BYTES]) {
  uint8_t msg[16 + sizeof(colli_hello) + COLLI_NONCE_BYTES] = {0};
  memcpy(msg, connector ? "connector" : "acceptor", connector ? 9 : 8);
  memcpy(msg + 16, &auth->hello, sizeof(auth->hello));
  memcpy(msg + 16 + sizeof(auth->hello), auth->nonce, COLLI_NONCE_BYTES);
  colli_hmac(auth->secret, msg, sizeof(msg), mac);
}

/* What both sides begin with. */
static void begin(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES], bool connector,
                  int state) {
  memset(auth, 0, sizeof(*auth));
  auth->fd = fd;
  auth->connector = connector;
  auth->state = state;
  memcpy(auth->secret, secret, COLL_SECRET_BYTES);
  auth->deadline_ns = colli_now_ns() + COLLI_AUTH_DEADLINE_MS * COLLI_NS_PER_MS;
}

void colli_auth_connect(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES],
                        colli_hello_kind kind, int src_rank, int dst_rank, uint64_t comm_id,
                        uint64_t word) {
  begin(auth, fd, secret, true, SEND_HELLO);
  auth->hello = (colli_hello){.magic = HELLO_MAGIC,
                              .version = HELLO_VERSION,
                              .kind = (uint16_t)kind,
                              .src_rank = src_rank,
                              .dst_rank = dst_rank,
                              .comm_id = comm_id,
                              .word = word};
}

void colli_auth_accept(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES]) {
  begin(auth, fd, secret, false, READ_HELLO);
}

/* Sends the rest of a message: DONE, AGAIN or an error. */
static int push(colli_auth *auth, const void *msg, size_t bytes) {
  while (auth->done < bytes) {
    ssize_t n = send(auth->fd, (const char *)msg + auth->done, bytes - auth->done, MSG_NOSIGNAL);
    if (n > 0)
      auth->done += (size_t)n;
    else if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOTCONN)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno == EPIPE || errno == ECONNRESET ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM;
  }
  auth->done = 0;
  return COLL_T_DONE;
}

/* Reads the rest of a message, and not a byte more: DONE, AGAIN or an error. */
static int pull(colli_auth *auth, void *msg, size_t bytes) {
  while (auth->done < bytes) {
    ssize_t n = recv(auth->fd, (char *)msg + auth->done, bytes - auth->done, 0);
    if (n > 0)
      auth->done += (size_t)n;
    else if (n == 0)
      return COLL_ERR_PEER_LOST;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno == ECONNRESET ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM;
  }
  auth->done = 0;
  return COLL_T_DONE;
}

/* Fills a nonce; false without randomness. */
static bool make_nonce(uint8_t nonce[COLLI_NONCE_BYTES]) {
  return colli_random_secret(nonce, COLLI_NONCE_BYTES) == 0;
}

/* One move of the connector; DONE when the state is finished. */
static int connector_step(colli_auth *auth) {
  static const uint8_t unset[COLLI_NONCE_BYTES];
  uint8_t mac[COLLI_MAC_BYTES];
  int status;
  switch (auth->state) {
  case SEND_HELLO:
    if (memcmp(auth->hello.nonce, unset, sizeof(unset)) == 0 && !make_nonce(auth->hello.nonce))
      return COLL_ERR_SYSTEM;
    status = push(auth, &auth->hello, sizeof(auth->hello));
    break;
  case READ_CHALLENGE:
    status = pull(auth, auth->buf, COLLI_NONCE_BYTES + COLLI_MAC_BYTES);
    if (status != COLL_T_DONE)
      return status;
    memcpy(auth->nonce, auth->buf, COLLI_NONCE_BYTES);
    prove(auth, false, mac);
    if (CRYPTO_memcmp(mac, auth->buf + COLLI_NONCE_BYTES, COLLI_MAC_BYTES) != 0)
      return COLL_ERR_AUTH;
    prove(auth, true, auth->buf);
    break;
  case SEND_PROOF:
    status = push(auth, auth->buf, COLLI_MAC_BYTES);
    break;
  default: /* READ_VERDICT */
    status = pull(auth, auth->buf, 1);
    if (status == COLL_T_DONE && auth->buf[0] != 1)
      return COLL_ERR_PEER_LOST;
    if (status == COLL_T_DONE)
      auth->state = FINISHED;
    return status;
  }
  if (status == COLL_T_DONE)
    auth->state++;
  return status;
}

/* One move of the acceptor. */
static int acceptor_step(colli_auth *auth) {
  uint8_t mac[COLLI_MAC_BYTES];
  int status;
  switch (auth->state) {
  case READ_HELLO:
    status = pull(auth, &auth->hello, sizeof(auth->hello));
    if (status != COLL_T_DONE)
      return status;
    if (auth->hello.magic != HELLO_MAGIC || auth->hello.version != HELLO_VERSION)
      return COLL_ERR_PROTOCOL;
    if (!make_nonce(auth->nonce))
      return COLL_ERR_SYSTEM;
    memcpy(auth->buf, auth->nonce, COLLI_NONCE_BYTES);
    prove(auth, false, auth->buf + COLLI_NONCE_BYTES);
    break;
  case SEND_CHALLENGE:
    status = push(auth, auth->buf, COLLI_NONCE_BYTES + COLLI_MAC_BYTES);
    break;
  default: /* READ_PROOF */
    status = pull(auth, auth->buf, COLLI_MAC_BYTES);
    if (status != COLL_T_DONE)
      return status;
    prove(auth, true, mac);
    if (CRYPTO_memcmp(mac, auth->buf, COLLI_MAC_BYTES) != 0)
      return COLL_ERR_AUTH;
    auth->state = FINISHED;
    return COLL_T_DONE;
  }
  if (status == COLL_T_DONE)
    auth->state++;
  return status;
}

/* Moves on as far as it goes. */
int colli_auth_poll(colli_auth *auth) {
  while (auth->state != FINISHED) {
    int status = auth->connector ? connector_step(auth) : acceptor_step(auth);
    if (status == COLL_T_AGAIN && colli_now_ns() > auth->deadline_ns)
      status = COLL_ERR_TIMEOUT;
    if (status != COLL_T_DONE)
      return status;
  }
  OPENSSL_cleanse(auth->secret, sizeof(auth->secret));
  return COLL_T_DONE;
}

/* Tells the connector whether it is taken. */
int colli_auth_answer(colli_auth *auth, bool taken) {
  uint8_t verdict = taken;
  return send(auth->fd, &verdict, 1, MSG_NOSIGNAL) == 1 ? 0 : -1;
}

/* What to poll the socket for. */
short colli_auth_events(const colli_auth *auth) {
  return auth->state == SEND_HELLO || auth->state == SEND_PROOF || auth->state == SEND_CHALLENGE
             ? POLLOUT
             : POLLIN;
}
