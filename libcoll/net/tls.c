/* tls.c: TLS 1.3 on an authenticated connection, by OpenSSL. */
#include "libcoll/net/tls.h"

#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "coll/coll_transport.h"
#include "libcoll/base/assert.h"
#include "libcoll/base/libc.h"
#include "libcoll/net/sockets.h"

#define CIPHER        "TLS_AES_256_GCM_SHA384"
#define GROUPS        "X25519:P-256" /* the second one where only FIPS algorithms are allowed */
#define IDENTITY      "libcoll"
#define RECORD_BYTES  16384u     /* the most that a record holds */
#define AHEAD_BYTES   65536u     /* one read, if `bulk` */
#define RENEW_RECORDS (1u << 24) /* RFC 8446 allows 2^24.5 with one key */

struct colli_tls {
  int fd;
  SSL *ssl;
  BIO_METHOD *method;
  bool shaken;    /* the handshake is done */
  bool ended;     /* the other side has ended the stream */
  short wants;    /* what OpenSSL waits for */
  int sys_errno;  /* of the last system call, other than "not now" */
  int send_errno; /* why nothing more can be sent; 0: it can */
  int recv_errno;
  size_t under_way; /* bytes of a record of which the kernel has not accepted all; 0: none */
  uint32_t records; /* sent with this key */
  uint8_t key[COLLI_TLS_KEY_BYTES]; /* erased after the handshake */
};

/* ---- the socket ------------------------------------------------------------------------------ */

/* Notes how a system call failed. If it may be tried again, OpenSSL must do so. */
static void note_errno(BIO *bio, int sys_errno, int again) {
  colli_tls *tls = BIO_get_app_data(bio);
  const bool not_now = sys_errno == EAGAIN || sys_errno == EWOULDBLOCK;
  if (!not_now)
    tls->sys_errno = sys_errno;
  if (not_now || colli_errno_is_shortage(sys_errno))
    BIO_set_flags(bio, again | BIO_FLAGS_SHOULD_RETRY);
}

/* Whether an error is a lack of memory, which OpenSSL may call an internal error, or one of a
 * cipher or digest that could not be set up. */
static bool is_memory_error(unsigned long error) {
  const int reason = ERR_GET_REASON(error);
  return reason == ERR_R_MALLOC_FAILURE || reason == ERR_R_INTERNAL_ERROR ||
         (ERR_GET_LIB(error) == ERR_LIB_EVP && reason == EVP_R_INITIALIZATION_ERROR);
}

/* Whether the current call fails for lack of memory, as far as is known yet. */
static bool is_out_of_memory(void) {
  return is_memory_error(ERR_peek_error()) || is_memory_error(ERR_peek_last_error());
}

/* OpenSSL's own function would raise SIGPIPE. */
static int write_socket(BIO *bio, const char *bytes, int count) {
  const colli_tls *tls = BIO_get_app_data(bio);
  ssize_t sent;
  BIO_clear_retry_flags(bio);
  if (!tls->shaken && is_out_of_memory())
    return count; /* an alert about it would look like an attack to the other end */
  do
    sent = send(tls->fd, bytes, (size_t)count, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (sent < 0 && errno == EINTR);
  if (sent < 0)
    note_errno(bio, errno, BIO_FLAGS_WRITE);
  return (int)sent;
}

static int read_socket(BIO *bio, char *bytes, int count) {
  colli_tls *tls = BIO_get_app_data(bio);
  ssize_t got;
  BIO_clear_retry_flags(bio);
  do
    got = recv(tls->fd, bytes, (size_t)count, MSG_DONTWAIT);
  while (got < 0 && errno == EINTR);
  if (got < 0)
    note_errno(bio, errno, BIO_FLAGS_READ);
  tls->ended = tls->ended || got == 0;
  return (int)got;
}

static long control_socket(BIO *bio, int command, long number, void *pointer) {
  const colli_tls *tls = BIO_get_app_data(bio);
  (void)number;
  (void)pointer;
  return command == BIO_CTRL_FLUSH || (command == BIO_CTRL_EOF && tls->ended);
}

/* What OpenSSL reads from and writes to; false: out of memory. */
static bool attach_socket(colli_tls *tls) {
  tls->method = BIO_meth_new(BIO_TYPE_SOURCE_SINK, "libcoll");
  BIO *bio = NULL;
  if (tls->method && BIO_meth_set_write(tls->method, write_socket) == 1 &&
      BIO_meth_set_read(tls->method, read_socket) == 1 &&
      BIO_meth_set_ctrl(tls->method, control_socket) == 1)
    bio = BIO_new(tls->method);
  if (!bio || BIO_set_app_data(bio, tls) != 1) {
    BIO_free(bio);
    return false;
  }
  BIO_set_init(bio, 1);
  SSL_set_bio(tls->ssl, bio, bio);
  return true;
}

/* ---- the key --------------------------------------------------------------------------------- */

/* The key in the form in which OpenSSL takes it; NULL: out of memory, which explain() will say. */
static SSL_SESSION *make_session(SSL *ssl) {
  static const unsigned char cipher[] = {0x13, 0x02};
  colli_tls *tls = SSL_get_app_data(ssl);
  SSL_SESSION *session = SSL_SESSION_new();
  if (session && SSL_SESSION_set1_master_key(session, tls->key, sizeof(tls->key)) == 1 &&
      SSL_SESSION_set_cipher(session, SSL_CIPHER_find(ssl, cipher)) == 1 &&
      SSL_SESSION_set_protocol_version(session, TLS1_3_VERSION) == 1)
    return session;
  SSL_SESSION_free(session);
  ERR_raise(ERR_LIB_SSL, ERR_R_MALLOC_FAILURE);
  tls->sys_errno = ENOMEM;
  return NULL;
}

/* Connector: offers the key. */
static int offer_key(SSL *ssl, const EVP_MD *hash, const unsigned char **identity, size_t *bytes,
                     SSL_SESSION **session) {
  (void)hash; /* there is one cipher */
  *identity = (const unsigned char *)IDENTITY;
  *bytes = sizeof(IDENTITY) - 1;
  *session = make_session(ssl);
  return *session != NULL;
}

/* Acceptor: finds the key that was offered. */
static int find_key(SSL *ssl, const unsigned char *identity, size_t bytes, SSL_SESSION **session) {
  *session = NULL;
  if (bytes != sizeof(IDENTITY) - 1 || memcmp(identity, IDENTITY, bytes) != 0)
    return 1; /* none: the handshake fails, as there are no certificates either */
  *session = make_session(ssl);
  return *session != NULL;
}

/* ---- opening and closing --------------------------------------------------------------------- */

/* Whether a context can use the cipher: OpenSSL leaves out, in silence, one that it cannot load for
 * lack of memory. */
static bool has_cipher(const SSL_CTX *context) {
  const STACK_OF(SSL_CIPHER) *ciphers = SSL_CTX_get_ciphers(context);
  bool found = false;
  for (int i = 0; i < sk_SSL_CIPHER_num(ciphers); i++)
    found = found || strcmp(SSL_CIPHER_get_name(sk_SSL_CIPHER_value(ciphers, i)), CIPHER) == 0;
  return found;
}

/* What all connections have in common; NULL: out of memory. */
static SSL_CTX *make_context(bool bulk) {
  SSL_CTX *context = SSL_CTX_new(TLS_method());
  if (!context || SSL_CTX_set_min_proto_version(context, TLS1_3_VERSION) != 1 ||
      SSL_CTX_set_ciphersuites(context, CIPHER) != 1 || !has_cipher(context) ||
      SSL_CTX_set1_groups_list(context, GROUPS) != 1 || SSL_CTX_set_num_tickets(context, 0) != 1) {
    SSL_CTX_free(context);
    return NULL;
  }
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_psk_use_session_callback(context, offer_key);
  SSL_CTX_set_psk_find_session_callback(context, find_key);
  SSL_CTX_clear_options(context, SSL_OP_ENABLE_MIDDLEBOX_COMPAT);
  SSL_CTX_set_options(context, SSL_OP_IGNORE_UNEXPECTED_EOF | SSL_OP_NO_TICKET);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  if (COLLI_MALLOC_KEEPS_BUFFERS) /* idle connections give theirs back */
    SSL_CTX_set_mode(context, SSL_MODE_RELEASE_BUFFERS);
  if (bulk) {
    SSL_CTX_set_read_ahead(context, 1);
    SSL_CTX_set_default_read_buffer_len(context, AHEAD_BYTES);
  }
  return context;
}

colli_tls *colli_tls_open(int fd, bool connector, bool bulk,
                          const uint8_t key[COLLI_TLS_KEY_BYTES]) {
  colli_tls *tls = calloc(1, sizeof(*tls));
  SSL_CTX *context = make_context(bulk);
  if (tls && context)
    tls->ssl = SSL_new(context);
  SSL_CTX_free(context); /* the connection holds it */
  if (!tls || !tls->ssl || SSL_set_app_data(tls->ssl, tls) != 1 || !attach_socket(tls)) {
    colli_tls_close(tls);
    ERR_clear_error();
    return NULL;
  }
  tls->fd = fd;
  memcpy(tls->key, key, sizeof(tls->key));
  if (connector) {
    /* The key is the only proof: a peer that shows a certificate instead is turned away. */
    SSL_set_verify(tls->ssl, SSL_VERIFY_PEER, NULL);
    SSL_set_connect_state(tls->ssl);
  } else {
    SSL_set_accept_state(tls->ssl);
  }
  return tls;
}

void colli_tls_close(colli_tls *tls) {
  if (!tls)
    return;
  SSL_free(tls->ssl);
  BIO_meth_free(tls->method);
  explicit_bzero(tls, sizeof(*tls));
  free(tls);
}

/* ---- what OpenSSL returns -------------------------------------------------------------------- */

/* Forgets old errors: the program may use OpenSSL, too. */
static void begin_call(colli_tls *tls) {
  ERR_clear_error();
  tls->sys_errno = 0;
}

/* Whether the last call failed for lack of memory here; the reason may be anywhere in the list. */
static bool lacked_memory(void) {
  unsigned long error;
  bool lacked = false;
  while ((error = ERR_get_error()) != 0)
    lacked = lacked || is_memory_error(error);
  return lacked;
}

/* Why a call of OpenSSL returned `result`: COLL_T_AGAIN, an errno that may pass (a shortage), or
 * one that lasts in the given direction, and in both if it is no system call's. */
static int explain(colli_tls *tls, int result, int *direction) {
  const int error = SSL_get_error(tls->ssl, result), sys_errno = tls->sys_errno;
  const bool no_memory = lacked_memory();
  begin_call(tls);
  if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE) {
    tls->wants = error == SSL_ERROR_WANT_READ ? POLLIN : POLLOUT;
    return sys_errno ? sys_errno : COLL_T_AGAIN;
  }
  if (sys_errno)
    return *direction = sys_errno;
  if (error == SSL_ERROR_ZERO_RETURN || (error != SSL_ERROR_SSL && tls->ended))
    return *direction = ESHUTDOWN;
  return tls->send_errno = tls->recv_errno = no_memory ? ENOMEM : EBADMSG;
}

int colli_tls_shake(colli_tls *tls) {
  int failed = 0;
  if (tls->shaken)
    return COLL_T_DONE;
  if (tls->recv_errno)
    return tls->recv_errno;
  begin_call(tls);
  const int result = SSL_do_handshake(tls->ssl);
  int status = result == 1 ? COLL_T_DONE : explain(tls, result, &failed);
  if (status == COLL_T_DONE && !SSL_session_reused(tls->ssl))
    failed = EBADMSG; /* not with our key */
  if (failed)
    return tls->send_errno = tls->recv_errno = failed;
  if (status != COLL_T_DONE)
    return status;
  tls->shaken = true;
  explicit_bzero(tls->key, sizeof(tls->key));
  return COLL_T_DONE;
}

short colli_tls_events(const colli_tls *tls, short events) {
  return tls->shaken || !tls->wants ? events : tls->wants;
}

bool colli_tls_failed(const colli_tls *tls) {
  return tls->send_errno || tls->recv_errno;
}

/* ---- sending --------------------------------------------------------------------------------- */

bool colli_tls_renew(colli_tls *tls) {
  if (!tls->shaken || tls->under_way > 0)
    return false;
  ERR_clear_error();
  const bool renewed = SSL_key_update(tls->ssl, SSL_KEY_UPDATE_NOT_REQUESTED) == 1;
  ERR_clear_error();
  if (renewed)
    tls->records = 0;
  return renewed;
}

/* A place in a list of buffers. */
typedef struct place {
  const struct iovec *iov;
  size_t count, done; /* done: of the first buffer */
} place;

/* Advances a place by `bytes`, and past empty buffers. */
static void advance(place *at, size_t bytes) {
  for (; at->count > 0 && bytes >= at->iov->iov_len - at->done; at->iov++, at->count--) {
    bytes -= at->iov->iov_len - at->done;
    at->done = 0;
  }
  at->done += bytes;
}

/* The next record: *bytes of the data, in place if one buffer holds them all, otherwise copied. */
static const void *next_record(place at, uint8_t copy[RECORD_BYTES], size_t *bytes) {
  const size_t in_place = at.iov->iov_len - at.done;
  if (in_place >= RECORD_BYTES || at.count == 1) {
    *bytes = in_place < RECORD_BYTES ? in_place : RECORD_BYTES;
    return (const uint8_t *)at.iov->iov_base + at.done;
  }
  for (*bytes = 0; at.count > 0 && *bytes < RECORD_BYTES;) {
    const size_t room = RECORD_BYTES - *bytes, left = at.iov->iov_len - at.done;
    const size_t some = left < room ? left : room;
    memcpy(copy + *bytes, (const uint8_t *)at.iov->iov_base + at.done, some);
    *bytes += some;
    advance(&at, some);
  }
  return copy;
}

/* Sends one record of the bytes at a place. Returns how many were sent, or -1 with errno. */
static ssize_t send_record(colli_tls *tls, const place *at) {
  uint8_t copy[RECORD_BYTES];
  size_t bytes;
  const void *record = next_record(*at, copy, &bytes);
  if (tls->under_way > 0) {
    COLLI_ASSERT(bytes >= tls->under_way);
    bytes = tls->under_way; /* otherwise OpenSSL would append another record */
  }
  if (tls->under_way == 0 && tls->records >= RENEW_RECORDS && !colli_tls_renew(tls)) {
    errno = ENOMEM;
    return -1;
  }
  begin_call(tls);
  const int sent = SSL_write(tls->ssl, record, (int)bytes);
  if (sent > 0) {
    tls->under_way = 0;
    tls->records++;
    return sent;
  }
  const int status = explain(tls, sent, &tls->send_errno);
  tls->under_way = bytes;
  errno = status == COLL_T_AGAIN ? EAGAIN : status == ESHUTDOWN ? EPIPE : status;
  return -1;
}

/* Whether bytes may flow; false with errno. */
static bool is_ready(colli_tls *tls) {
  const int status = colli_tls_shake(tls);
  errno = status == COLL_T_AGAIN ? EAGAIN : status;
  return status == COLL_T_DONE;
}

ssize_t colli_tls_send(colli_tls *tls, const struct iovec *iov, size_t count) {
  size_t total = 0;
  place at = {iov, count, 0};
  if (!is_ready(tls) || tls->send_errno) {
    errno = tls->send_errno ? tls->send_errno : errno;
    errno = errno == ESHUTDOWN ? EPIPE : errno;
    return -1;
  }
  for (advance(&at, 0); at.count > 0;) {
    const ssize_t sent = send_record(tls, &at);
    if (sent < 0)
      return total > 0 ? (ssize_t)total : -1;
    total += (size_t)sent;
    advance(&at, (size_t)sent);
  }
  return (ssize_t)total;
}

/* ---- receiving ------------------------------------------------------------------------------- */

ssize_t colli_tls_recv(colli_tls *tls, const struct iovec *iov, size_t count) {
  size_t total = 0;
  place at = {iov, count, 0};
  int status = is_ready(tls) ? tls->recv_errno : errno;
  for (advance(&at, 0); status == 0 && at.count > 0;) {
    const size_t left = at.iov->iov_len - at.done;
    begin_call(tls);
    const int got = SSL_read(tls->ssl, (uint8_t *)at.iov->iov_base + at.done,
                             left < INT32_MAX ? (int)left : INT32_MAX);
    if (got > 0) {
      total += (size_t)got;
      advance(&at, (size_t)got);
    } else {
      status = explain(tls, got, &tls->recv_errno);
      status = status == COLL_T_AGAIN ? EAGAIN : status;
    }
  }
  if (total > 0 || status == 0)
    return (ssize_t)total;
  errno = status;
  return status == ESHUTDOWN ? 0 : -1;
}
