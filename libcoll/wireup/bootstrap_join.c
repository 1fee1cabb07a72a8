/* bootstrap_join.c: every rank but 0: checks in, makes its links, waits for the outcome. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap_internal.h"

#define REPORT_NS (100 * COLLI_NS_PER_MS) /* for telling rank 0 of a failure here */

typedef struct join_state {
  boot *b;
  boot_links *links;
  boot_dial dial;
  int fd; /* to rank 0; -1: not there yet */
  boot_checkin checkin;
  size_t checkin_done;
  bool ready; /* the links are up */
  boot_word ready_word;
  size_t ready_done;
  boot_word outcome;
  size_t outcome_done;
} join_state;

/* The addresses at which rank 0 was looked for, and what came of it. */
static coll_status root_failed(join_state *j, coll_status status, const char *format) {
  char story[400];
  boot_dial_story(&j->dial, story, sizeof(story));
  return boot_fail(j->b, status, 0, NULL, format, j->b->rank, j->b->mine->host, story);
}

/* Rank 0 was reached, or something there said no for good. */
static coll_status step_dial(join_state *j) {
  int result = boot_dial_step(j->b, &j->dial);
  if (result == COLL_ERR_AUTH)
    return root_failed(j, COLL_ERR_AUTH,
                       "rank %d (host %s) and rank 0 do not have the same secret: %s; give all "
                       "ranks the same id or COLL_SECRET");
  if (result > 0)
    return root_failed(j, COLL_ERR_MISMATCH,
                       "rank %d (host %s) knows rank 0's secret, but is of another communicator: "
                       "%s; give all ranks the same id, or the same text in COLL_ROOT");
  if (result == COLL_T_DONE) {
    j->fd = j->dial.fd;
    j->checkin.remaining_ms = boot_remaining_ms(j->b->deadline_ns);
  }
  return COLL_OK;
}

/* Rank 0's connection ended without an outcome. */
static coll_status root_lost(const join_state *j) {
  const boot *b = j->b;
  const colli_rank_info *info = j->links->have_table ? &j->links->table[0] : NULL;
  char addr[COLLI_ADDR_TEXT];
  return boot_fail(b, COLL_ERR_PEER_LOST, 0, info,
                   "rank 0 (%s%s) is lost: it closed its connection to rank %d (host %s) before "
                   "all ranks were joined; look for what ended that process",
                   info ? "host " : "at ",
                   info ? info->host : colli_addr_text(&b->id->addrs[0], addr), b->rank,
                   b->mine->host);
}

/* Talks with rank 0; *over: the outcome is here and good. */
static coll_status step_root(join_state *j, bool *over) {
  const boot *b = j->b;
  *over = false;
  if (j->fd < 0) {
    coll_status status = step_dial(j);
    if (status != COLL_OK || j->fd < 0)
      return status;
  }
  int sent = boot_push(j->fd, &j->checkin, sizeof(j->checkin), &j->checkin_done);
  if (sent == COLL_T_DONE && j->ready)
    sent = boot_push(j->fd, &j->ready_word, sizeof(j->ready_word), &j->ready_done);
  int result = boot_pull(j->fd, &j->outcome, sizeof(j->outcome), &j->outcome_done);
  if (result == COLL_T_DONE && j->outcome.status != COLL_OK)
    return boot_fail_word(b, &j->outcome);
  if (result == COLL_T_DONE && j->ready) {
    *over = true;
    return COLL_OK;
  }
  if (result == COLL_T_DONE)
    return boot_fail(b, COLL_ERR_PROTOCOL, 0, NULL,
                     "rank 0 said that all is well before rank %d had its links", b->rank);
  return result > 0 || sent > 0 ? root_lost(j) : COLL_OK;
}

/* This rank's deadline passed: why. */
static coll_status late(join_state *j) {
  const boot *b = j->b;
  if (j->fd < 0)
    return root_failed(j, j->dial.answered ? COLL_ERR_TIMEOUT : COLL_ERR_UNREACHABLE,
                       "rank %d (host %s) could not reach rank 0 in time: %s; look whether rank 0 "
                       "was started and listens there (COLL_ROOT), and for a firewall "
                       "(COLL_PORT_RANGE) or the wrong interface (COLL_TCP_IFNAME)");
  return boot_fail(b, COLL_ERR_TIMEOUT, 0, NULL,
                   "rank %d (host %s) checked in, but rank 0 told no outcome within %.3g s; look "
                   "whether rank 0's process is stopped",
                   b->rank, b->mine->host,
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S);
}

/* Tells rank 0 why this rank fails, so that the others learn it. */
static void report(join_state *j, coll_status status) {
  boot *b = j->b;
  boot_word word;
  size_t done = 0;
  uint64_t until_ns = colli_now_ns() + REPORT_NS;
  boot_word_fill(b, &word, status);
  if (j->ready && j->ready_done < sizeof(j->ready_word))
    return; /* in the middle of another message: the closed connection must do */
  while (j->checkin_done == sizeof(j->checkin) &&
         boot_push(j->fd, &word, sizeof(word), &done) == COLL_T_AGAIN &&
         colli_now_ns() < until_ns) {
    b->polls.count = 0;
    b->polls.wake_ns = until_ns;
    boot_polls_add(&b->polls, j->fd, POLLOUT);
    boot_polls_wait(&b->polls);
  }
}

/* Says what to wait for, and waits. */
static void wait_for_news(join_state *j) {
  boot *b = j->b;
  b->polls.count = 0;
  b->polls.wake_ns = b->deadline_ns;
  if (j->fd < 0) {
    boot_dial_watch(b, &j->dial);
  } else {
    bool sending =
        j->checkin_done < sizeof(j->checkin) || (j->ready && j->ready_done < sizeof(j->ready_word));
    boot_polls_add(&b->polls, j->fd, sending ? POLLIN | POLLOUT : POLLIN);
  }
  boot_links_watch(b, j->links);
  boot_lifelines_watch(b);
  boot_polls_wait(&b->polls);
}

/* Moves on until the outcome is known or something fails here. */
static coll_status join(join_state *j) {
  boot *b = j->b;
  for (;;) {
    bool over;
    coll_status status = step_root(j, &over);
    if (status != COLL_OK || over)
      return status;
    int cut = boot_lifelines_cut(b);
    int result = cut < 0 ? boot_links_step(b, j->links) : (int)boot_fail_cut(b, cut, NULL);
    if (result > 0) {
      report(j, (coll_status)result);
      return (coll_status)result;
    }
    if (result == COLL_T_DONE && !j->ready) {
      j->ready = true;
      continue; /* tell rank 0 */
    }
    if (colli_now_ns() >= b->deadline_ns) {
      status = late(j);
      report(j, status);
      return status;
    }
    wait_for_news(j);
  }
}

coll_status boot_join(boot *b, boot_links *links) {
  join_state *j = calloc(1, sizeof(*j));
  if (!j)
    return boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "no memory to check in");
  j->b = b;
  j->links = links;
  j->fd = -1;
  j->checkin = (boot_checkin){.version = COLL_VERSION, .nranks = b->nranks, .info = *b->mine};
  boot_word_fill(b, &j->ready_word, COLL_OK);
  boot_dial_begin(b, &j->dial, COLLI_HELLO_CHECKIN, 0, b->id->addrs);
  coll_status status = join(j);
  boot_close(&j->fd);
  boot_dial_close(&j->dial);
  explicit_bzero(j, sizeof(*j));
  free(j);
  return status;
}
