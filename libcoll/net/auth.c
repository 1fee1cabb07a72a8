/* auth.c: the handshake that opens every connection. */
#include "libcoll/net/auth.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/prng.h"
#include "libcoll/base/secret.h"
#include "libcoll/net/sockets.h"

#define HELLO_VERSION 2u
#define HELLO_HEAD    8 /* magic, version, kind: enough to recognise libcoll */

/* What the acceptor says at the end. */
typedef enum auth_answer { ANSWER_REFUSED, ANSWER_ACCEPTED, ANSWER_TLS_DIFFERS } auth_answer;

typedef enum auth_state {
  STATE_SEND_HELLO, /* connector */
  STATE_READ_PROOF,
  STATE_SEND_PROOF,
  STATE_READ_ANSWER,
  STATE_SHAKE_TLS,
  STATE_READ_HELLO, /* acceptor */
  STATE_SEND_CHALLENGE,
  STATE_READ_RESPONSE,
  STATE_DONE,
  STATE_FAILED
} auth_state;

bool colli_hmac(const uint8_t secret[COLL_SECRET_BYTES], const void *msg, size_t bytes,
                uint8_t mac[COLLI_MAC_BYTES]) {
  unsigned length = 0;
  if (colli_secret_present(secret) &&
      HMAC(EVP_sha256(), secret, COLL_SECRET_BYTES, msg, bytes, mac, &length) &&
      length == COLLI_MAC_BYTES)
    return true;
  memset(mac, 0, COLLI_MAC_BYTES);
  return false;
}

bool colli_hmac_equal(const uint8_t a[COLLI_MAC_BYTES], const uint8_t b[COLLI_MAC_BYTES]) {
  return CRYPTO_memcmp(a, b, COLLI_MAC_BYTES) == 0;
}

colli_gmac *colli_gmac_open(const uint8_t key[COLLI_MAC_BYTES]) {
  colli_gmac *gmac = EVP_CIPHER_CTX_new();
  if (gmac && EVP_EncryptInit_ex(gmac, EVP_aes_256_gcm(), NULL, key, NULL) == 1)
    return gmac;
  EVP_CIPHER_CTX_free(gmac);
  return NULL;
}

void colli_gmac_close(colli_gmac *gmac) {
  EVP_CIPHER_CTX_free(gmac);
}

bool colli_gmac_compute(colli_gmac *gmac, uint64_t number, const void *head, size_t head_bytes,
                        const void *msg, size_t bytes, uint8_t code[COLLI_GMAC_BYTES]) {
  uint8_t iv[12] = {0};
  int ignored;
  memcpy(iv, &number, sizeof(number));
  return EVP_EncryptInit_ex(gmac, NULL, NULL, NULL, iv) == 1 &&
         EVP_EncryptUpdate(gmac, NULL, &ignored, head, (int)head_bytes) == 1 &&
         (bytes == 0 || EVP_EncryptUpdate(gmac, NULL, &ignored, msg, (int)bytes) == 1) &&
         EVP_EncryptFinal_ex(gmac, code, &ignored) == 1 &&
         EVP_CIPHER_CTX_ctrl(gmac, EVP_CTRL_AEAD_GET_TAG, COLLI_GMAC_BYTES, code) == 1;
}

bool colli_auth_tags(const uint8_t secret[COLL_SECRET_BYTES], colli_tags *tags) {
  uint8_t mac[COLLI_MAC_BYTES];
  bool good = colli_hmac(secret, "tag", sizeof("tag"), mac);
  _Static_assert(sizeof(*tags) <= sizeof(mac), "one code is enough for all");
  memcpy(tags, mac, sizeof(*tags));
  tags->key.multiplier |= 1;
  tags->key.last |= 1;
  return good;
}

/* The code of a hello. */
static bool make_code(const colli_auth *auth, uint8_t code[COLLI_CODE_BYTES]) {
  uint8_t msg[16 + offsetof(colli_hello, code)] = "hello", mac[COLLI_MAC_BYTES];
  memcpy(msg + 16, &auth->hello, offsetof(colli_hello, code));
  bool good = colli_hmac(auth->secret, msg, sizeof(msg), mac);
  memcpy(code, mac, COLLI_CODE_BYTES);
  return good;
}

/* The proof that one side knows the secret, bound to its role and to both nonces. */
static bool make_proof(const colli_auth *auth, const char *role, uint8_t mac[COLLI_MAC_BYTES]) {
  uint8_t msg[16 + sizeof(colli_hello) + COLLI_NONCE_BYTES] = {0};
  memcpy(msg, role, strlen(role));
  memcpy(msg + 16, &auth->hello, sizeof(auth->hello));
  memcpy(msg + 16 + sizeof(auth->hello), auth->nonce, sizeof(auth->nonce));
  return colli_hmac(auth->secret, msg, sizeof(msg), mac);
}

/* Ends the handshake with an error. */
static int fail_handshake(colli_auth *auth, int status, int sys_errno) {
  colli_auth_drop(auth);
  auth->state = STATE_FAILED;
  auth->done = (size_t)status;
  auth->secret = NULL;
  errno = sys_errno;
  return status;
}

/* Sets up what both sides need. */
static void init_side(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES],
                      uint8_t nonce[COLLI_NONCE_BYTES]) {
  auth->fd = fd;
  auth->secret = secret;
  auth->deadline_ns = colli_now_ns() + COLLI_AUTH_DEADLINE_MS * COLLI_NS_PER_MS;
  int sys_errno = colli_random_secret(nonce, COLLI_NONCE_BYTES);
  if (sys_errno != 0)
    fail_handshake(auth, COLL_ERR_SYSTEM, sys_errno);
}

void colli_auth_connect(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES],
                        colli_hello_kind kind, int src_rank, int dst_rank, uint64_t comm_id,
                        uint64_t word) {
  memset(auth, 0, sizeof(*auth));
  auth->connector = true;
  auth->state = STATE_SEND_HELLO;
  auth->hello = (colli_hello){.magic = COLLI_HELLO_MAGIC,
                              .version = HELLO_VERSION,
                              .kind = (uint8_t)kind,
                              .src_rank = src_rank,
                              .dst_rank = dst_rank,
                              .comm_id = comm_id,
                              .word = word};
  init_side(auth, fd, secret, auth->hello.nonce);
  colli_tags tags;
  if (auth->state == STATE_FAILED)
    return;
  const bool good = colli_auth_tags(secret, &tags);
  memcpy(auth->hello.tag, tags.anywhere, sizeof(auth->hello.tag));
  if (!good || !make_code(auth, auth->hello.code))
    fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
}

/* Whether two hosts' addresses are of one network, so that nothing changes them on the way. */
static bool is_direct(const colli_addr *from, const colli_addr *to, const colli_addr *own,
                      int nown) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  if (from->family != to->family)
    return false;
  if (from->family == 6 && memcmp(from->ip, mapped, sizeof(mapped)) == 0)
    return false; /* the packets are IPv4's, and the peer's kernel sees another address */
  if (colli_addr_same_ip(from, to) || (colli_addr_loopback(from) && colli_addr_loopback(to)) ||
      (colli_addr_link_local(from) && colli_addr_link_local(to)))
    return true;
  for (int i = 0; i < nown && own[i].family; i++)
    if (colli_addr_same_ip(&own[i], from) && colli_addr_affinity(&own[i], to) == 2)
      return true;
  return false;
}

bool colli_auth_bind(colli_auth *auth, const colli_addr *to, const colli_addr *own, int nown) {
  struct sockaddr_storage name;
  socklen_t length = sizeof(name);
  colli_addr from;
  colli_tags tags;
  if (auth->state != STATE_SEND_HELLO ||
      getsockname(auth->fd, (struct sockaddr *)&name, &length) != 0 ||
      !colli_net_from_sockaddr((struct sockaddr *)&name, &from) || !is_direct(&from, to, own, nown))
    return false;
  if (!colli_auth_tags(auth->secret, &tags)) {
    fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
    return false;
  }
  const uint32_t tag[] = {tags.one_origin, htonl(colli_origin_hash(&tags.key, &from, to->port))};
  memcpy(auth->hello.tag, tag, sizeof(auth->hello.tag));
  if (!make_code(auth, auth->hello.code))
    fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
  return true;
}

void colli_auth_accept(colli_auth *auth, int fd, const uint8_t secret[COLL_SECRET_BYTES]) {
  memset(auth, 0, sizeof(*auth));
  auth->state = STATE_READ_HELLO;
  init_side(auth, fd, secret, auth->nonce);
}

void colli_auth_want_tls(colli_auth *auth) {
  auth->tls = true;
  if (!auth->connector || auth->state == STATE_FAILED)
    return;
  auth->hello.tls = 1;
  if (!make_code(auth, auth->hello.code))
    fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
}

/* The result of sending or receiving a message: DONE, AGAIN or the status of the failure. */
static int check_io(colli_auth *auth, int result) {
  if (result <= 0)
    return result;
  bool lost = result == ECONNRESET || result == EPIPE || result == ESHUTDOWN;
  return fail_handshake(auth, lost ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM, result);
}

/* Sends the rest of a message: DONE, AGAIN or an error. */
static int push_message(colli_auth *auth, const void *msg, size_t bytes) {
  return check_io(auth, colli_net_push(auth->fd, msg, bytes, &auth->done));
}

/* Reads the rest of a message and not one byte more: DONE, AGAIN or an error. */
static int pull_message(colli_auth *auth, void *msg, size_t bytes) {
  return check_io(auth, colli_net_pull(auth->fd, msg, bytes, &auth->done));
}

/* Goes on to the next message. */
static void next_state(colli_auth *auth, auth_state state) {
  auth->state = state;
  auth->done = 0;
}

/* The proofs are right: derives the connection's keys from the secret and what was said. */
static int finish_handshake(colli_auth *auth) {
  uint8_t *of_connector = auth->connector ? auth->send_key : auth->recv_key;
  uint8_t *of_acceptor = auth->connector ? auth->recv_key : auth->send_key;
  if (!make_proof(auth, "connector key", of_connector) ||
      !make_proof(auth, "acceptor key", of_acceptor) ||
      (auth->tls && !make_proof(auth, "tls key", auth->tls_key)))
    return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
  auth->secret = NULL;
  next_state(auth, auth->tls && auth->connector ? STATE_SHAKE_TLS : STATE_DONE);
  return COLL_T_DONE;
}

/* Connector: checks the acceptor's proof (nonce and proof are in buf) and prepares its own. */
static int check_acceptor(colli_auth *auth) {
  uint8_t mac[COLLI_MAC_BYTES];
  memcpy(auth->nonce, auth->buf, sizeof(auth->nonce));
  if (!make_proof(auth, "acceptor", mac))
    return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
  if (CRYPTO_memcmp(mac, auth->buf + COLLI_NONCE_BYTES, sizeof(mac)) != 0)
    return fail_handshake(auth, COLL_ERR_AUTH, EACCES);
  if (!make_proof(auth, "connector", auth->buf))
    return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
  next_state(auth, STATE_SEND_PROOF);
  return COLL_T_DONE;
}

/* Makes this side of TLS; NULL: out of memory. */
static colli_tls *open_tls(colli_auth *auth) {
  colli_tls *tls = colli_tls_open(auth->fd, auth->connector, auth->hello.kind == COLLI_HELLO_DATA,
                                  auth->tls_key);
  explicit_bzero(auth->tls_key, sizeof(auth->tls_key));
  return tls;
}

/* Connector: advances the TLS handshake. */
static int shake_tls(colli_auth *auth) {
  if (!auth->secured && !(auth->secured = open_tls(auth)))
    return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
  const int result = colli_tls_shake(auth->secured);
  if (result == EBADMSG)
    return fail_handshake(auth, COLL_ERR_AUTH, result);
  if (result == COLL_T_DONE)
    next_state(auth, STATE_DONE);
  return check_io(auth, result);
}

/* Connector: reads the acceptor's answer. */
static int check_answer(colli_auth *auth) {
  switch (auth->buf[0]) {
  case ANSWER_ACCEPTED:
    return finish_handshake(auth);
  case ANSWER_REFUSED:
    return fail_handshake(auth, COLL_ERR_PEER_LOST, EPERM);
  case ANSWER_TLS_DIFFERS:
    return fail_handshake(auth, COLL_ERR_MISMATCH, EPROTONOSUPPORT);
  default:
    return fail_handshake(auth, COLL_ERR_PROTOCOL, EPROTO);
  }
}

/* Advances the connector's side by one message. */
static int step_connector(colli_auth *auth) {
  int result;
  switch (auth->state) {
  case STATE_SEND_HELLO:
    if ((result = push_message(auth, &auth->hello, sizeof(auth->hello))) == COLL_T_DONE)
      next_state(auth, STATE_READ_PROOF);
    return result;
  case STATE_READ_PROOF:
    result = pull_message(auth, auth->buf, sizeof(auth->buf));
    return result == COLL_T_DONE ? check_acceptor(auth) : result;
  case STATE_SEND_PROOF:
    if (auth->held)
      return COLL_T_AGAIN;
    auth->proved = true;
    if ((result = push_message(auth, auth->buf, COLLI_MAC_BYTES)) == COLL_T_DONE)
      next_state(auth, STATE_READ_ANSWER);
    return result;
  case STATE_READ_ANSWER:
    result = pull_message(auth, auth->buf, 1);
    return result == COLL_T_DONE ? check_answer(auth) : result;
  default:
    return shake_tls(auth);
  }
}

/* Whether the head of a hello is one of this version. */
static bool head_valid(const colli_hello *hello) {
  return hello->magic == COLLI_HELLO_MAGIC && hello->version == HELLO_VERSION &&
         hello->kind >= COLLI_HELLO_CHECKIN && hello->kind <= COLLI_HELLO_MEMORY && hello->tls <= 1;
}

/* Acceptor: refuses a hello that was made with another secret, or none. */
static int refuse_hello(colli_auth *auth) {
  if (auth->curt)
    return fail_handshake(auth, COLL_ERR_AUTH, EACCES);
  /* In place of a proof, so that the connector learns that its secret is another one. */
  memset(auth->buf, 0, sizeof(auth->buf));
  ssize_t ignored = send(auth->fd, auth->buf, sizeof(auth->buf), MSG_NOSIGNAL | MSG_DONTWAIT);
  (void)ignored;
  return fail_handshake(auth, COLL_ERR_AUTH, EACCES);
}

/* Acceptor: reads the hello, head first, so that a foreign program is recognised even if it sends
 * only a few bytes. */
static int read_hello(colli_auth *auth) {
  uint8_t code[COLLI_CODE_BYTES];
  int result = pull_message(auth, &auth->hello, HELLO_HEAD);
  if (result == COLL_T_DONE && !head_valid(&auth->hello))
    return fail_handshake(auth, COLL_ERR_PROTOCOL, EPROTO);
  if (result == COLL_T_DONE)
    result = pull_message(auth, &auth->hello, sizeof(auth->hello));
  if (result != COLL_T_DONE)
    return result;
  if (!make_code(auth, code))
    return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
  bool good = CRYPTO_memcmp(code, auth->hello.code, sizeof(code)) == 0;
  return good ? COLL_T_DONE : refuse_hello(auth);
}

/* Moves the acceptor's side on by one message. */
static int step_acceptor(colli_auth *auth) {
  int result;
  uint8_t mac[COLLI_MAC_BYTES];
  switch (auth->state) {
  case STATE_READ_HELLO:
    if ((result = read_hello(auth)) != COLL_T_DONE)
      return result;
    memcpy(auth->buf, auth->nonce, sizeof(auth->nonce));
    if (!make_proof(auth, "acceptor", auth->buf + COLLI_NONCE_BYTES))
      return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
    next_state(auth, STATE_SEND_CHALLENGE);
    return COLL_T_DONE;
  case STATE_SEND_CHALLENGE:
    if ((result = push_message(auth, auth->buf, sizeof(auth->buf))) == COLL_T_DONE)
      next_state(auth, STATE_READ_RESPONSE);
    return result;
  default:
    if ((result = pull_message(auth, auth->buf, COLLI_MAC_BYTES)) != COLL_T_DONE)
      return result;
    if (!make_proof(auth, "connector", mac))
      return fail_handshake(auth, COLL_ERR_SYSTEM, ENOMEM);
    if (CRYPTO_memcmp(mac, auth->buf, sizeof(mac)) != 0)
      return fail_handshake(auth, COLL_ERR_AUTH, EACCES);
    return finish_handshake(auth);
  }
}

int colli_auth_poll(colli_auth *auth) {
  if (auth->state == STATE_FAILED)
    return (int)auth->done;
  while (auth->state != STATE_DONE) {
    int result = auth->connector ? step_connector(auth) : step_acceptor(auth);
    if (result == COLL_T_AGAIN && colli_now_ns() >= auth->deadline_ns)
      return fail_handshake(auth, COLL_ERR_TIMEOUT, ETIMEDOUT);
    if (result != COLL_T_DONE)
      return result;
  }
  return COLL_T_DONE;
}

int colli_auth_answer(colli_auth *auth, bool accepted) {
  const bool differs = accepted && (auth->hello.tls != 0) != auth->tls;
  const uint8_t answer = differs ? ANSWER_TLS_DIFFERS : accepted ? ANSWER_ACCEPTED : ANSWER_REFUSED;
  ssize_t sent;
  do
    sent = send(auth->fd, &answer, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent == 1 && !differs)
    return 0;
  errno = sent == 1 ? EPROTONOSUPPORT : errno;
  return -1;
}

colli_tls *colli_auth_take_tls(colli_auth *auth) {
  colli_tls *tls = auth->secured;
  auth->secured = NULL;
  return auth->tls && !auth->connector ? open_tls(auth) : tls;
}

void colli_auth_drop(colli_auth *auth) {
  colli_tls_close(auth->secured);
  auth->secured = NULL;
  explicit_bzero(auth->send_key, sizeof(auth->send_key));
  explicit_bzero(auth->recv_key, sizeof(auth->recv_key));
  explicit_bzero(auth->tls_key, sizeof(auth->tls_key));
}

bool colli_auth_spoken(const colli_auth *auth) {
  return auth->state != STATE_READ_HELLO;
}

bool colli_auth_answered(const colli_auth *auth) {
  return auth->state > STATE_READ_PROOF || (auth->state == STATE_READ_PROOF && auth->done > 0);
}

bool colli_auth_proves(const colli_auth *auth) {
  return (auth->state == STATE_SEND_PROOF && !auth->held) || auth->state == STATE_READ_ANSWER ||
         auth->state == STATE_SHAKE_TLS;
}

short colli_auth_events(const colli_auth *auth) {
  bool sending = auth->state == STATE_SEND_HELLO || auth->state == STATE_SEND_PROOF ||
                 auth->state == STATE_SEND_CHALLENGE;
  const short events = sending ? POLLOUT : POLLIN;
  return auth->secured ? colli_tls_events(auth->secured, events) : events;
}
