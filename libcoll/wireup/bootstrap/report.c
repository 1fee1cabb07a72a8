/* report.c: failures of a bootstrap, and how ranks report them to each other. */
#include "libcoll/wireup/bootstrap/report.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/libc.h"

#define INTERRUPT_NS (50 * COLLI_NS_PER_MS) /* the longest time between two looks */
#define REMEMBERED_NS                                                                              \
  (2 * COLLI_NS_PER_S) /* so long a shortage that may be over explains failures */

uint64_t boot_all_ns(const boot *b) {
  return b->deadline_ns > b->start_ns ? b->deadline_ns - b->start_ns : 0;
}

void boot_note_errno(const boot *b, int sys_errno, bool for_good) {
  if (!colli_errno_is_shortage(sys_errno))
    return;
  uint64_t until_ns = for_good || b->shortage->lasts ? UINT64_MAX : colli_now_ns() + REMEMBERED_NS;
  b->shortage->sys_errno = sys_errno;
  if (until_ns > b->shortage->until_ns)
    b->shortage->until_ns = until_ns;
}

/* Fails because this rank had a shortage. */
static coll_status fail_short(const boot *b) {
  const int sys_errno = b->shortage->sys_errno;
  coll_error *error = b->error;
  colli_error_set(error, COLL_ERR_SYSTEM, "create",
                  "rank %d (host %s) had a shortage of descriptors or memory while it met the "
                  "others (%s); raise its limits (ulimit -n, ulimit -v)",
                  b->rank, b->mine->host, strerrordesc_np(sys_errno));
  error->sys_errno = sys_errno;
  error->rank = b->rank;
  snprintf(error->host, sizeof(error->host), "%s", b->mine->host);
  return COLL_ERR_SYSTEM;
}

coll_status boot_fail_short(const boot *b, coll_status status) {
  const bool seems =
      status == COLL_ERR_TIMEOUT || status == COLL_ERR_UNREACHABLE || status == COLL_ERR_PEER_LOST;
  const bool is_short = b->shortage->sys_errno != 0 && colli_now_ns() < b->shortage->until_ns;
  return seems && is_short ? fail_short(b) : status;
}

coll_status boot_fail(const boot *b, coll_status status, int peer, const colli_rank_info *info,
                      const char *format, ...) {
  COLLI_ASSERT_RANK(status > COLL_IN_PROGRESS, b->rank);
  coll_error *error = b->error;
  if (boot_fail_short(b, status) != status)
    return COLL_ERR_SYSTEM;
  char text[sizeof(error->message)];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof(text), format, args);
  va_end(args);
  colli_error_set(error, status, "create", "%s", text);
  error->rank = b->rank;
  snprintf(error->host, sizeof(error->host), "%s", b->mine->host);
  error->peer = peer;
  if (info) {
    error->peer_pid = info->pid;
    snprintf(error->peer_host, sizeof(error->peer_host), "%s", info->host);
  }
  return status;
}

const char *boot_server_text(const boot *b, int server, char text[BOOT_SERVER_TEXT]) {
  if (server >= 0)
    snprintf(text, BOOT_SERVER_TEXT, "rank %d", server);
  else
    snprintf(text, BOOT_SERVER_TEXT, "the process that made the id (pid %d)", b->id->pid);
  return text;
}

coll_status boot_fail_altered(const boot *b, int peer, const colli_rank_info *info) {
  char from[BOOT_SERVER_TEXT];
  return boot_fail(b, COLL_ERR_AUTH, peer, info,
                   "a message of %s%s%s to rank %d (host %s) was altered or injected on its "
                   "way; look who else has access to the network between them",
                   boot_server_text(b, peer, from), info ? " on host " : "", info ? info->host : "",
                   b->rank, b->mine->host);
}

coll_status boot_fail_version(const boot *b, int rank, uint32_t version) {
  return boot_fail(b, COLL_ERR_MISMATCH, rank, NULL,
                   "rank %d uses libcoll %u.%u.%u, but rank %d (host %s) %d.%d.%d; install the "
                   "same version everywhere",
                   rank, version / 10000, version / 100 % 100, version % 100, b->rank,
                   b->mine->host, COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
}

coll_status boot_fail_tls(const boot *b, int rank) {
  return boot_fail(b, COLL_ERR_MISMATCH, rank, NULL,
                   "rank %d has COLL_TLS=%d, but rank %d (host %s) has COLL_TLS=%d; set it to the "
                   "same on all ranks",
                   rank, !b->tls, b->rank, b->mine->host, b->tls);
}

coll_status boot_fail_table(const boot *b) {
  return boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "out of memory for a table of %d ranks",
                   b->nranks);
}

coll_status boot_fail_reported(const boot *b, boot_report *report) {
  colli_error_terminate(&report->error);
  bool known = report->status > COLL_IN_PROGRESS && report->status <= COLL_ERR_INTERNAL;
  report->error.status = known ? (coll_status)report->status : COLL_ERR_PROTOCOL;
  /* The others know only that this rank was late. */
  if (report->error.peer == b->rank && boot_fail_short(b, report->error.status) == COLL_ERR_SYSTEM)
    return COLL_ERR_SYSTEM;
  *b->error = report->error;
  return b->error->status;
}

void boot_report_fill(const boot *b, boot_report *report, coll_status status) {
  memset(report, 0, sizeof(*report));
  if (status != COLL_OK && b->error->rank < 0) {
    b->error->rank = b->rank;
    snprintf(b->error->host, sizeof(b->error->host), "%s", b->mine->host);
  }
  report->status = (int32_t)status;
  if (status != COLL_OK)
    memcpy(&report->error, b->error, sizeof(report->error));
}

void boot_list_ranks(const bool *flags, int nranks, bool wanted, char *text, size_t bytes) {
  size_t used = 0;
  *text = 0;
  for (int rank = 0; rank < nranks; rank++) {
    int last = rank;
    if (flags[rank] != wanted)
      continue;
    while (last + 1 < nranks && flags[last + 1] == wanted)
      last++;
    if (used + 32 > bytes) {
      snprintf(text + used, bytes - used, " ...");
      return;
    }
    used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? ", " : "", rank);
    if (last > rank)
      used += (size_t)snprintf(text + used, bytes - used, "-%d", last);
    rank = last;
  }
}

bool boot_is_guarded(const boot *b) {
  return b->lifelines && (b->lifelines->nlifelines > 0 || b->lifelines->interrupt);
}

void boot_lifelines_watch(boot *b) {
  const colli_lifelines *lifelines = b->lifelines;
  for (int i = 0; lifelines && i < lifelines->nlifelines; i++)
    boot_polls_add(&b->polls, lifelines->lifelines[i], POLLIN);
  if (lifelines && lifelines->interrupt)
    boot_polls_wake(&b->polls, colli_now_ns() + INTERRUPT_NS);
  if (lifelines && lifelines->watch)
    lifelines->watch(lifelines->ctx, &b->polls);
}

/* The index of a lifeline that ended or has data; -1 if all are silent. */
static int broken_lifeline(const boot *b) {
  char byte;
  for (int i = 0; i < b->lifelines->nlifelines; i++) {
    ssize_t got = recv(b->lifelines->lifelines[i], &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    const bool ended = got >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
    if (got < 0)
      boot_note_errno(b, errno, false);
    if (ended && (got >= 0 || !colli_errno_is_shortage(errno)))
      return i;
  }
  return -1;
}

coll_status boot_lifelines_check(const boot *b) {
  if (!b->lifelines)
    return COLL_OK;
  coll_status status = COLL_OK;
  if (b->lifelines->interrupt)
    status = b->lifelines->interrupt(b->lifelines->ctx, b->error);
  const int broken = status == COLL_OK ? broken_lifeline(b) : -1;
  if (broken < 0)
    return status;
  int peer = b->lifelines->lifeline_ranks[broken];
  return boot_fail(b, COLL_ERR_PEER_LOST, peer, NULL,
                   "rank %d of the new communicator is lost, or gave up, before all its ranks were "
                   "joined",
                   peer);
}
