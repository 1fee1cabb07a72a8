/* sealed.c: messages on a connection after its handshake. */
#include "libcoll/net/sealed.h"

#include <errno.h>
#include <openssl/crypto.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/fork.h"

void colli_sealed_open(colli_sealed *sealed, colli_auth *auth) {
  COLLI_ASSERT(auth->fd >= 0);
  *sealed = (colli_sealed){.fd = auth->fd, .wants_tls = auth->tls};
  if (auth->connector)
    sealed->tls = colli_auth_take_tls(auth);
  else
    memcpy(sealed->tls_key, auth->tls_key, sizeof(sealed->tls_key));
  memcpy(sealed->send_key, auth->send_key, sizeof(sealed->send_key));
  memcpy(sealed->recv_key, auth->recv_key, sizeof(sealed->recv_key));
  colli_auth_drop(auth);
}

void colli_sealed_close(colli_sealed *sealed) {
  colli_tls_close(sealed->tls);
  if (sealed->fd >= 0)
    colli_fd_close(sealed->fd);
  explicit_bzero(sealed, sizeof(*sealed));
  sealed->fd = -1;
}

/* The code of a message: the key of its number and length, applied to its bytes. */
static bool make_mac(const uint8_t key[COLLI_MAC_BYTES], uint64_t number, const void *msg,
                     size_t bytes, uint8_t mac[COLLI_MAC_BYTES]) {
  const uint64_t head[2] = {number, bytes};
  uint8_t message_key[COLLI_MAC_BYTES];
  _Static_assert(COLLI_MAC_BYTES == COLL_SECRET_BYTES, "a code serves as a key");
  const bool ok =
      colli_hmac(key, head, sizeof(head), message_key) && colli_hmac(message_key, msg, bytes, mac);
  explicit_bzero(message_key, sizeof(message_key));
  return ok;
}

/* What is left of a message and its code after the first `done` bytes. */
static struct msghdr rest_of(const void *msg, size_t bytes, uint8_t mac[COLLI_MAC_BYTES],
                             size_t done, struct iovec iov[2]) {
  const size_t msg_done = done < bytes ? done : bytes, mac_done = done - msg_done;
  iov[0] = (struct iovec){(char *)msg + msg_done, bytes - msg_done};
  iov[1] = (struct iovec){mac + mac_done, COLLI_MAC_BYTES - mac_done};
  return (struct msghdr){.msg_iov = iov, .msg_iovlen = 2};
}

/* The acceptor's side of TLS begins here, as it may have been answered only now. */
static bool begin_tls(colli_sealed *sealed) {
  if (!sealed->tls)
    sealed->tls = colli_tls_open(sealed->fd, false, false, sealed->tls_key);
  explicit_bzero(sealed->tls_key, sealed->tls ? sizeof(sealed->tls_key) : 0);
  errno = sealed->tls ? errno : ENOMEM;
  return sealed->tls != NULL;
}

/* sendmsg() and recvmsg(), over TLS if there is. */
static ssize_t send_some(colli_sealed *sealed, const struct msghdr *rest) {
  if (!sealed->wants_tls)
    return sendmsg(sealed->fd, rest, MSG_NOSIGNAL | MSG_DONTWAIT);
  return begin_tls(sealed) ? colli_tls_send(sealed->tls, rest->msg_iov, rest->msg_iovlen) : -1;
}

static ssize_t recv_some(colli_sealed *sealed, struct msghdr *rest) {
  if (!sealed->wants_tls)
    return recvmsg(sealed->fd, rest, MSG_DONTWAIT);
  return begin_tls(sealed) ? colli_tls_recv(sealed->tls, rest->msg_iov, rest->msg_iovlen) : -1;
}

int colli_sealed_push(colli_sealed *sealed, const void *msg, size_t bytes, size_t *done) {
  COLLI_ASSERT(*done <= COLLI_SEALED_BYTES(bytes));
  if (*done == COLLI_SEALED_BYTES(bytes))
    return COLL_T_DONE;
  if (*done == 0 && !make_mac(sealed->send_key, sealed->sent, msg, bytes, sealed->send_mac))
    return ENOMEM;
  while (*done < COLLI_SEALED_BYTES(bytes)) {
    struct iovec iov[2];
    struct msghdr rest = rest_of(msg, bytes, sealed->send_mac, *done, iov);
    ssize_t sent = send_some(sealed, &rest);
    if (sent >= 0)
      *done += (size_t)sent;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno;
  }
  sealed->sent++;
  return COLL_T_DONE;
}

int colli_sealed_pull(colli_sealed *sealed, void *msg, size_t bytes, size_t *done) {
  COLLI_ASSERT(*done <= COLLI_SEALED_BYTES(bytes));
  if (*done == COLLI_SEALED_BYTES(bytes) && !sealed->unchecked)
    return COLL_T_DONE;
  while (*done < COLLI_SEALED_BYTES(bytes)) {
    struct iovec iov[2];
    struct msghdr rest = rest_of(msg, bytes, sealed->recv_mac, *done, iov);
    ssize_t got = recv_some(sealed, &rest);
    if (got > 0)
      *done += (size_t)got;
    else if (got == 0)
      return ESHUTDOWN;
    else if (errno == EAGAIN || errno == EWOULDBLOCK)
      return COLL_T_AGAIN;
    else if (errno != EINTR)
      return errno;
  }
  uint8_t mac[COLLI_MAC_BYTES];
  sealed->unchecked = true; /* until the code is found right: another call must not accept it */
  if (!make_mac(sealed->recv_key, sealed->received, msg, bytes, mac))
    return ENOMEM;
  if (CRYPTO_memcmp(mac, sealed->recv_mac, sizeof(mac)) != 0)
    return EBADMSG;
  sealed->unchecked = false;
  sealed->received++;
  return COLL_T_DONE;
}

int colli_sealed_shake(colli_sealed *sealed) {
  if (!sealed->wants_tls)
    return COLL_T_DONE;
  return begin_tls(sealed) ? colli_tls_shake(sealed->tls) : ENOMEM;
}

bool colli_sealed_may_go_on(const colli_sealed *sealed, int sys_errno) {
  return colli_errno_is_shortage(sys_errno) && !(sealed->tls && colli_tls_failed(sealed->tls));
}

short colli_sealed_events(const colli_sealed *sealed, short events) {
  return sealed->tls ? colli_tls_events(sealed->tls, events) : events;
}
