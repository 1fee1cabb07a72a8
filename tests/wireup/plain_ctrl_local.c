/* plain_ctrl_local.c: mailboxes under load from many threads; also run under ThreadSanitizer. */
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/ctrl_links.h"

enum { RANKS = 9, MESSAGES = 400 };

typedef struct worker {
  colli_ctrl *ctrl;
  int rank;
  bool crashes; /* leaves without a goodbye */
  int crashed_neighbours;
  int failures;
} worker;

/* Counts a failed expectation. */
static void expect(worker *w, bool good, const char *what) {
  if (good)
    return;
  fprintf(stderr, "rank %d: %s\n", w->rank, what);
  w->failures++;
}

/* Sends to all neighbours and receives from them, until all have left. */
static void *run_worker(void *arg) {
  worker *w = arg;
  int peers[8], count = colli_ctrl_neighbours(w->ctrl, peers), left = 0, closed = 0;
  uint64_t last[RANKS] = {0}, sent = 0, until_ns = colli_now_ns() + 60 * COLLI_NS_PER_S;
  while ((sent <= MESSAGES || left + closed < count) && w->failures == 0) {
    colli_ctrl_msg msg = {.kind = sent < MESSAGES ? COLLI_CTRL_WAITING : COLLI_CTRL_GOODBYE,
                          .origin = w->rank,
                          .serial = sent + 1,
                          .peer = -1};
    for (int i = 0; i < count && (sent < MESSAGES || (sent == MESSAGES && !w->crashes)); i++)
      colli_ctrl_send(w->ctrl, peers[i], &msg);
    sent++;
    if (w->crashes && sent > MESSAGES)
      break;
    int peer, sys_errno;
    colli_ctrl_event event;
    while ((event = colli_ctrl_poll(w->ctrl, &peer, &msg, &sys_errno)) != COLLI_CTRL_NOTHING) {
      if (event == COLLI_CTRL_CLOSED) {
        closed++;
        continue;
      }
      expect(w, msg.origin == peer && msg.serial > last[peer], "a message is out of order");
      last[peer] = msg.serial;
      left += msg.kind == COLLI_CTRL_GOODBYE;
    }
    if (sent > MESSAGES) {
      struct pollfd pfd = {.fd = colli_ctrl_fd(w->ctrl), .events = POLLIN};
      if (left + closed < count && poll(&pfd, 1, 10000) == 0)
        expect(w, false, "no wake-up although neighbours have not left");
    }
    expect(w, colli_now_ns() < until_ns, "it takes too long");
  }
  if (!w->crashes) {
    expect(w, closed == w->crashed_neighbours, "goodbyes and crashes are mixed up");
    for (int i = 0; i < count; i++)
      expect(w, last[peers[i]] >= MESSAGES, "the last message did not come");
  }
  colli_ctrl_close(w->ctrl, 100);
  return NULL;
}

/* One round; rank `crasher` (-1: none) leaves without a goodbye. */
static int run_round(int crasher) {
  colli_ctrl *ctrls[RANKS];
  worker workers[RANKS];
  pthread_t threads[RANKS];
  coll_error error = COLL_ERROR_INIT;
  int failures = 0;
  if (colli_ctrl_create_local(ctrls, RANKS, true, &error) != COLL_OK) {
    fprintf(stderr, "%s\n", error.message);
    return 1;
  }
  for (int rank = 0; rank < RANKS; rank++) {
    int peers[8], count = colli_ctrl_neighbours(ctrls[rank], peers);
    workers[rank] = (worker){.ctrl = ctrls[rank], .rank = rank, .crashes = rank == crasher};
    for (int i = 0; i < count; i++)
      workers[rank].crashed_neighbours += peers[i] == crasher;
  }
  for (int rank = 0; rank < RANKS; rank++)
    if (pthread_create(&threads[rank], NULL, run_worker, &workers[rank]) != 0)
      abort();
  for (int rank = 0; rank < RANKS; rank++) {
    pthread_join(threads[rank], NULL);
    failures += workers[rank].failures;
  }
  return failures;
}

int main(void) {
  int failures = 0;
  for (int round = 0; round < 6; round++)
    failures += run_round(round - 1);
  return failures ? 1 : 0;
}
