/* pmi1_wire.c: lines of PMI-1 over a socket, by a deadline. */
#include "libcoll/create/pmi1_wire.h"

#include <ctype.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"

/* Waits until the socket is ready. COLL_OK: try again. */
static coll_status await(const colli_pmi1 *pmi, short events, uint64_t deadline_ns,
                         coll_error *error) {
  uint64_t now = colli_now_ns();
  struct pollfd ready = {.fd = pmi->fd, .events = events};
  uint64_t left_ms = now < deadline_ns ? (deadline_ns - now) / COLLI_NS_PER_MS + 1 : 0;
  int result = poll(&ready, 1, left_ms < 1000000 ? (int)left_ms : 1000000);
  if (result < 0 && errno != EINTR)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "poll", errno,
                           "waiting for the launcher (PMI-1) failed");
  if (result == 0 && left_ms == 0)
    return colli_error_set(error, COLL_ERR_TIMEOUT, "create",
                           "the launcher (PMI-1) took too long to answer; look whether all ranks "
                           "were started and its daemons answer, or raise COLL_CREATE_TIMEOUT_MS");
  return COLL_OK;
}

/* The connection failed. */
static coll_status lost(const char *call, int sys_errno, coll_error *error) {
  return colli_error_sys(error, COLL_ERR_SYSTEM, "create", call, sys_errno,
                         "the connection to the launcher (PMI-1: PMI_FD or PMI_PORT) failed; a "
                         "program between the launcher and this one must leave it open");
}

/* Sends a line. The socket may be blocking, and shared with others that expect it to be so. */
static coll_status send_line(colli_pmi1 *pmi, const char *line, uint64_t deadline_ns,
                             coll_error *error) {
  size_t bytes = strlen(line), done = 0;
  coll_status status = COLL_OK;
  while (status == COLL_OK && done < bytes) {
    ssize_t sent = send(pmi->fd, line + done, bytes - done, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0)
      done += (size_t)sent;
    else if (errno == EAGAIN || errno == EINTR)
      status = await(pmi, POLLOUT, deadline_ns, error);
    else
      status = lost("send", errno, error);
  }
  return status;
}

/* Receives a line into pmi->answer, without its end. */
static coll_status receive_line(colli_pmi1 *pmi, uint64_t deadline_ns, coll_error *error) {
  char *end;
  while (!(end = memchr(pmi->input, '\n', pmi->have))) {
    if (pmi->have == sizeof(pmi->input))
      return colli_error_set(error, COLL_ERR_SYSTEM, "create",
                             "the launcher's answer is too long for PMI-1 (%d bytes)",
                             COLLI_PMI1_LINE);
    ssize_t got =
        recv(pmi->fd, pmi->input + pmi->have, sizeof(pmi->input) - pmi->have, MSG_DONTWAIT);
    if (got > 0) {
      pmi->have += (size_t)got;
      continue;
    }
    if (got == 0)
      return lost("recv", ECONNRESET, error);
    if (errno != EAGAIN && errno != EINTR)
      return lost("recv", errno, error);
    coll_status status = await(pmi, POLLIN, deadline_ns, error);
    if (status != COLL_OK)
      return status;
  }
  size_t bytes = (size_t)(end - pmi->input);
  memcpy(pmi->answer, pmi->input, bytes);
  pmi->answer[bytes] = '\0';
  pmi->have -= bytes + 1;
  memmove(pmi->input, end + 1, pmi->have);
  return COLL_OK;
}

bool colli_pmi1_value(const colli_pmi1 *pmi, const char *key, char *value, size_t bytes) {
  size_t length = strlen(key);
  for (const char *at = pmi->answer; *at; at += strcspn(at, " ")) {
    at += strspn(at, " ");
    if (strncmp(at, key, length) != 0 || at[length] != '=')
      continue;
    const char *first = at + length + 1;
    size_t size = strcspn(first, " ");
    if (size >= bytes)
      return false;
    memcpy(value, first, size);
    value[size] = '\0';
    return true;
  }
  return false;
}

/* What the launcher said, for a message: printable, short, and without values. */
static void describe(const colli_pmi1 *pmi, char text[64]) {
  snprintf(text, 64, "%.60s", pmi->answer);
  char *secret = strstr(text, "value=");
  if (secret)
    *secret = '\0';
  for (char *c = text; *c; c++)
    if (!isprint((unsigned char)*c))
      *c = '?';
}

coll_status colli_pmi1_hear(colli_pmi1 *pmi, uint64_t deadline_ns, const char *answer,
                            coll_error *error) {
  char said[64], rc[16];
  coll_status status = receive_line(pmi, deadline_ns, error);
  if (status != COLL_OK)
    return status;
  bool fits = colli_pmi1_value(pmi, "cmd", said, sizeof(said)) && strcmp(said, answer) == 0;
  if (fits && (!colli_pmi1_value(pmi, "rc", rc, sizeof(rc)) || strcmp(rc, "0") == 0))
    return COLL_OK;
  describe(pmi, said);
  return colli_error_set(error, COLL_ERR_SYSTEM, "create",
                         fits ? "the launcher refused what PMI-1 asked for: \"%s\""
                              : "the launcher does not speak PMI-1, or something else in this "
                                "process talks to it: it said \"%s\", not \"cmd=%s\"",
                         said, answer);
}

coll_status colli_pmi1_ask(colli_pmi1 *pmi, uint64_t deadline_ns, const char *request,
                           const char *answer, coll_error *error) {
  coll_status status = send_line(pmi, request, deadline_ns, error);
  return status == COLL_OK ? colli_pmi1_hear(pmi, deadline_ns, answer, error) : status;
}

void colli_pmi1_forget(colli_pmi1 *pmi) {
  explicit_bzero(pmi->input, sizeof(pmi->input));
  explicit_bzero(pmi->answer, sizeof(pmi->answer));
  pmi->have = 0;
}
