/* ctrl.c: code that both kinds of control links share. */
#include "libcoll/wireup/ctrl.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/wireup/ctrl_links.h"

#define QUEUE_LONG     64 /* messages; a queue as long as this drops superseded ones */
#define QUEUE_FAILURES 4096

int colli_ctrl_neighbours(const colli_ctrl *ctrl, int *neighbours) {
  memcpy(neighbours, ctrl->peers, (size_t)ctrl->count * sizeof(*neighbours));
  return ctrl->count;
}

void colli_ctrl_send(colli_ctrl *ctrl, int neighbour, const colli_ctrl_msg *msg) {
  for (int link = 0; link < ctrl->count; link++)
    if (ctrl->peers[link] == neighbour)
      ctrl->ops->send(ctrl, link, msg);
}

colli_ctrl_event colli_ctrl_poll(colli_ctrl *ctrl, int *peer, colli_ctrl_msg *msg, int *sys_errno) {
  int link = 0;
  *sys_errno = 0;
  colli_ctrl_event event = ctrl->ops->poll(ctrl, &link, msg, sys_errno);
  COLLI_ASSERT_RANK(event == COLLI_CTRL_NOTHING || (link >= 0 && link < ctrl->count), ctrl->rank);
  if (event != COLLI_CTRL_NOTHING)
    *peer = ctrl->peers[link];
  return event;
}

bool colli_ctrl_unsent(const colli_ctrl *ctrl) {
  return ctrl->ops->unsent(ctrl);
}

int colli_ctrl_fd(const colli_ctrl *ctrl) {
  return ctrl->ops->fd(ctrl);
}

void colli_ctrl_close(colli_ctrl *ctrl, int timeout_ms) {
  if (ctrl)
    ctrl->ops->close(ctrl, timeout_ms);
}

/* ---- neighbours ------------------------------------------------------------------------------ */

bool colli_ctrl_tree_joined(int a, int b) {
  return (a > 0 && (a - 1) / 2 == b) || (b > 0 && (b - 1) / 2 == a);
}

int colli_ctrl_toward(const colli_ctrl *ctrl, int rank) {
  for (int i = 0; i < ctrl->count; i++)
    if (ctrl->peers[i] == rank)
      return rank;
  int child = rank;
  while (child > 0 && (child - 1) / 2 != ctrl->rank)
    child = (child - 1) / 2;
  return child > 0 ? child : (ctrl->rank - 1) / 2;
}

/* Adds a peer to a list unless it is already in it, is `rank` itself, or does not exist. */
static void add_peer(int peer, int rank, int nranks, int peers[COLLI_CTRL_LINKS_MAX], int *count) {
  if (peer < 0 || peer >= nranks || peer == rank)
    return;
  for (int i = 0; i < *count; i++)
    if (peers[i] == peer)
      return;
  COLLI_ASSERT_RANK(*count < COLLI_CTRL_LINKS_MAX, rank);
  peers[(*count)++] = peer;
}

int colli_ctrl_peers(int rank, int nranks, int peers[COLLI_CTRL_LINKS_MAX]) {
  int count = 0;
  if (rank > 0)
    add_peer((rank - 1) / 2, rank, nranks, peers, &count);
  if (rank < nranks / 2) { /* else there are no children, and 2 * rank might overflow */
    add_peer(2 * rank + 1, rank, nranks, peers, &count);
    add_peer(2 * rank + 2, rank, nranks, peers, &count);
  }
  add_peer((rank + 1) % nranks, rank, nranks, peers, &count);
  add_peer((rank + nranks - 1) % nranks, rank, nranks, peers, &count);
  return count;
}

/* ---- queue ----------------------------------------------------------------------------------- */

/* The i-th oldest entry. */
static colli_ctrl_entry *entry_at(const colli_ctrl_queue *queue, size_t i) {
  COLLI_ASSERT(i < queue->count && queue->count <= queue->capacity);
  return &queue->at[(queue->first + i) % queue->capacity];
}

/* Removes the i-th oldest entry; the others keep their order. */
static void remove_entry(colli_ctrl_queue *queue, size_t i) {
  COLLI_ASSERT(i < queue->count);
  for (; i + 1 < queue->count; i++)
    *entry_at(queue, i) = *entry_at(queue, i + 1);
  queue->count--;
}

/* Drops an entry that `msg` supersedes: an earlier report of the same rank on the same communicator
 * from the same link. */
static void drop_superseded(colli_ctrl_queue *queue, int link, const colli_ctrl_msg *msg) {
  for (size_t i = 0; i < queue->count; i++) {
    const colli_ctrl_entry *entry = entry_at(queue, i);
    if (entry->link == link && entry->msg.kind == msg->kind && entry->msg.origin == msg->origin &&
        entry->msg.uid == msg->uid) {
      remove_entry(queue, i);
      return;
    }
  }
}

/* Makes room for one more entry; false if out of memory. */
static bool grow_queue(colli_ctrl_queue *queue) {
  if (queue->count < queue->capacity)
    return true;
  size_t capacity = queue->capacity ? 2 * queue->capacity : 4;
  colli_ctrl_entry *at = malloc(capacity * sizeof(*at));
  if (!at)
    return false;
  for (size_t i = 0; i < queue->count; i++)
    at[i] = *entry_at(queue, i);
  free(queue->at);
  queue->at = at;
  queue->first = 0;
  queue->capacity = capacity;
  return true;
}

bool colli_ctrl_queue_push(colli_ctrl_queue *queue, int link, const colli_ctrl_msg *msg,
                           int nranks) {
  /* The queue stays short: every rank sends one failure, one goodbye, its latest report of waiting,
   * its latest answer, and failures of communicators that were split. */
  const size_t most = QUEUE_FAILURES + 4 * (size_t)nranks * COLLI_CTRL_LINKS_MAX;
  if (queue->count >= QUEUE_LONG &&
      (msg->kind == COLLI_CTRL_WAITING || msg->kind == COLLI_CTRL_ANSWER))
    drop_superseded(queue, link, msg);
  if (queue->count >= most)
    return true; /* no correct peer sends so many */
  if (!grow_queue(queue))
    return false;
  queue->count++;
  *entry_at(queue, queue->count - 1) = (colli_ctrl_entry){link, *msg};
  return true;
}

bool colli_ctrl_queue_pop(colli_ctrl_queue *queue, colli_ctrl_entry *entry) {
  if (queue->count == 0)
    return false;
  *entry = *entry_at(queue, 0);
  queue->first = (queue->first + 1) % queue->capacity;
  queue->count--;
  return true;
}

void colli_ctrl_queue_free(colli_ctrl_queue *queue) {
  free(queue->at);
  memset(queue, 0, sizeof(*queue));
}
