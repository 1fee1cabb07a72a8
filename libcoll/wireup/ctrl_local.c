/* ctrl_local.c: control links between ranks of one process: a mailbox for each rank. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/wireup/ctrl_links.h"

typedef struct mailbox {
  pthread_mutex_t mutex;
  colli_ctrl_queue queue;
  bool open;
  bool signalled;                    /* the event descriptor is readable */
  bool closed[COLLI_CTRL_LINKS_MAX]; /* by link: gone without a goodbye, not yet reported */
  int event_fd;                      /* -1: none */
  atomic_bool pending;               /* if false, the mailbox is empty: no need for the mutex */
} mailbox;

typedef struct local_group {
  atomic_int refs;
  mailbox boxes[];
} local_group;

typedef struct local_ctrl {
  colli_ctrl base;
  local_group *group;
  bool said_goodbye[COLLI_CTRL_LINKS_MAX];
} local_ctrl;

/* The index of `rank` among the links of its neighbour `peer`. */
static int link_back(int rank, int peer, int nranks) {
  int peers[COLLI_CTRL_LINKS_MAX];
  int count = colli_ctrl_peers(peer, nranks, peers), link = 0;
  while (link < count - 1 && peers[link] != rank)
    link++;
  COLLI_ASSERT_RANK(count > 0 && peers[link] == rank, rank); /* neighbours are mutual */
  return link;
}

/* Tells the owner of a mailbox that it is not empty. The mutex is held. */
static void notify_owner(mailbox *box) {
  atomic_store_explicit(&box->pending, true, memory_order_release);
  if (box->event_fd >= 0 && !box->signalled)
    box->signalled = eventfd_write(box->event_fd, 1) == 0;
}

static void local_send(colli_ctrl *base, int link, const colli_ctrl_msg *msg) {
  local_ctrl *ctrl = (local_ctrl *)base;
  COLLI_ASSERT_RANK(link >= 0 && link < base->count, base->rank);
  int peer = base->peers[link];
  mailbox *box = &ctrl->group->boxes[peer];
  if (msg->kind == COLLI_CTRL_GOODBYE && msg->origin == base->rank)
    ctrl->said_goodbye[link] = true;
  pthread_mutex_lock(&box->mutex);
  if (box->open && colli_ctrl_queue_push(&box->queue, link_back(base->rank, peer, base->nranks),
                                         msg, base->nranks))
    notify_owner(box);
  pthread_mutex_unlock(&box->mutex);
}

/* Finds a neighbour that is gone and not reported yet. The mutex is held. */
static bool take_closed(mailbox *box, int *link) {
  for (int i = 0; i < COLLI_CTRL_LINKS_MAX; i++)
    if (box->closed[i]) {
      box->closed[i] = false;
      *link = i;
      return true;
    }
  return false;
}

static colli_ctrl_event local_poll(colli_ctrl *base, int *link, colli_ctrl_msg *msg,
                                   int *sys_errno) {
  (void)sys_errno;
  mailbox *box = &((local_ctrl *)base)->group->boxes[base->rank];
  if (!atomic_load_explicit(&box->pending, memory_order_acquire))
    return COLLI_CTRL_NOTHING;
  colli_ctrl_entry entry;
  colli_ctrl_event event = COLLI_CTRL_NOTHING;
  pthread_mutex_lock(&box->mutex);
  if (colli_ctrl_queue_pop(&box->queue, &entry)) {
    event = COLLI_CTRL_MESSAGE;
    *link = entry.link;
    *msg = entry.msg;
  } else if (take_closed(box, link)) {
    event = COLLI_CTRL_CLOSED;
  } else {
    atomic_store_explicit(&box->pending, false, memory_order_release);
    eventfd_t value;
    if (box->signalled && eventfd_read(box->event_fd, &value) == 0)
      box->signalled = false;
  }
  pthread_mutex_unlock(&box->mutex);
  return event;
}

static bool local_unsent(const colli_ctrl *base) {
  (void)base;
  return false;
}

static int local_fd(const colli_ctrl *base) {
  return ((const local_ctrl *)base)->group->boxes[base->rank].event_fd;
}

/* Closes a mailbox's descriptor and frees the messages in it. */
static void close_mailbox(mailbox *box) {
  pthread_mutex_lock(&box->mutex);
  box->open = false;
  colli_ctrl_queue_free(&box->queue);
  if (box->event_fd >= 0)
    colli_fd_close(box->event_fd);
  box->event_fd = -1;
  pthread_mutex_unlock(&box->mutex);
}

static void local_close(colli_ctrl *base, int timeout_ms) {
  (void)timeout_ms; /* what was sent has arrived */
  local_ctrl *ctrl = (local_ctrl *)base;
  local_group *group = ctrl->group;
  int nranks = base->nranks;
  for (int link = 0; link < base->count; link++) {
    int peer = base->peers[link];
    mailbox *box = &group->boxes[peer];
    if (ctrl->said_goodbye[link])
      continue;
    pthread_mutex_lock(&box->mutex);
    box->closed[link_back(base->rank, peer, nranks)] = true;
    if (box->open)
      notify_owner(box);
    pthread_mutex_unlock(&box->mutex);
  }
  close_mailbox(&group->boxes[base->rank]);
  free(ctrl);
  if (atomic_fetch_sub(&group->refs, 1) > 1)
    return;
  for (int rank = 0; rank < nranks; rank++)
    pthread_mutex_destroy(&group->boxes[rank].mutex);
  free(group);
}

static const colli_ctrl_ops local_ops = {local_send, local_poll, local_unsent, local_fd,
                                         local_close};

/* Makes one rank's control; its mailbox gets a descriptor if `events`. NULL with errno. */
static colli_ctrl *make_local(local_group *group, int rank, int nranks, bool events) {
  mailbox *box = &group->boxes[rank];
  local_ctrl *ctrl = calloc(1, sizeof(*ctrl));
  if (!ctrl)
    return NULL;
  if (events && (box->event_fd = COLLI_FD(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC))) < 0) {
    free(ctrl);
    return NULL;
  }
  box->open = true;
  ctrl->base = (colli_ctrl){.ops = &local_ops, .rank = rank, .nranks = nranks};
  ctrl->base.count = colli_ctrl_peers(rank, nranks, ctrl->base.peers);
  ctrl->group = group;
  return &ctrl->base;
}

coll_status colli_ctrl_create_local(colli_ctrl **ctrls, int nranks, bool events,
                                    coll_error *error) {
  memset(ctrls, 0, (size_t)nranks * sizeof(*ctrls));
  local_group *group = calloc(1, sizeof(*group) + (size_t)nranks * sizeof(mailbox));
  if (!group)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                           "out of memory for the control links of %d ranks", nranks);
  for (int rank = 0; rank < nranks; rank++) {
    pthread_mutex_init(&group->boxes[rank].mutex, NULL);
    group->boxes[rank].event_fd = -1;
  }
  atomic_init(&group->refs, nranks);
  for (int rank = 0; rank < nranks; rank++) {
    ctrls[rank] = make_local(group, rank, nranks, events);
    if (ctrls[rank])
      continue;
    int sys_errno = errno;
    /* The remaining references are those of the ranks made so far, and one of this function. */
    atomic_store(&group->refs, rank + 1);
    for (int made = 0; made < rank; made++)
      colli_ctrl_close(ctrls[made], 0);
    for (int box = 0; box < nranks; box++)
      pthread_mutex_destroy(&group->boxes[box].mutex);
    free(group);
    memset(ctrls, 0, (size_t)nranks * sizeof(*ctrls));
    return colli_error_sys(error, sys_errno == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM,
                           "create", "eventfd", sys_errno,
                           "no descriptor for the control links of rank %d of %d; each rank takes "
                           "one: raise the limit (ulimit -n)",
                           rank, nranks);
  }
  return COLL_OK;
}
