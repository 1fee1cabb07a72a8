/* ctrl_local.c: control links between ranks of one process: a mailbox for each rank. */
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/ctrl_internal.h"

#define MAILBOX_MESSAGES 256 /* more than that, unread, are dropped: news of the same kind */

/* A message in a mailbox. */
typedef struct mail {
  struct mail *next;
  int from;
  colli_ctrl_msg msg;
} mail;

typedef struct mailbox {
  mail *first, **last;
  int count;
  bool open;
  int fd; /* readable while there is mail, or -1 */
} mailbox;

/* What the ranks share; the last one to leave frees it. */
typedef struct post {
  pthread_mutex_t lock;
  atomic_int members;
  mailbox boxes[];
} post;

typedef struct local_ctrl {
  colli_ctrl base;
  post *post;
} local_ctrl;

/* Puts a message into a neighbour's mailbox. */
static void local_send(colli_ctrl *base, int index, const colli_ctrl_msg *msg) {
  post *office = ((local_ctrl *)base)->post;
  mailbox *box = &office->boxes[base->neighbours[index]];
  mail *letter = malloc(sizeof(*letter));
  if (!letter)
    return; /* the neighbour will learn from others, or by its deadline */
  letter->next = NULL;
  letter->from = base->rank;
  letter->msg = *msg;
  pthread_mutex_lock(&office->lock);
  bool taken = box->open && box->count < MAILBOX_MESSAGES;
  if (taken) {
    *box->last = letter;
    box->last = &letter->next;
    box->count++;
    uint64_t one = 1;
    if (box->fd >= 0 && write(box->fd, &one, sizeof(one)) < 0)
      errno = 0; /* the counter is full: it is readable already */
  }
  pthread_mutex_unlock(&office->lock);
  if (!taken)
    free(letter);
}

/* Takes the oldest message out of this rank's mailbox. */
static colli_ctrl_event local_poll(colli_ctrl *base, int *peer, colli_ctrl_msg *msg,
                                   int *sys_errno) {
  (void)sys_errno;
  post *office = ((local_ctrl *)base)->post;
  mailbox *box = &office->boxes[base->rank];
  pthread_mutex_lock(&office->lock);
  mail *letter = box->first;
  if (letter) {
    box->first = letter->next;
    if (!box->first)
      box->last = &box->first;
    box->count--;
  } else if (box->fd >= 0) {
    uint64_t count;
    if (read(box->fd, &count, sizeof(count)) < 0)
      errno = 0; /* it was not readable */
  }
  pthread_mutex_unlock(&office->lock);
  if (!letter)
    return COLLI_CTRL_NOTHING;
  *peer = letter->from;
  *msg = letter->msg;
  free(letter);
  return COLLI_CTRL_MESSAGE;
}

static int local_fd(const colli_ctrl *base) {
  return ((const local_ctrl *)base)->post->boxes[base->rank].fd;
}

/* Closes this rank's mailbox; the last one frees what all shared. */
static void local_close(colli_ctrl *base, int timeout_ms) {
  (void)timeout_ms; /* what was sent is in the mailboxes already */
  post *office = ((local_ctrl *)base)->post;
  mailbox *box = &office->boxes[base->rank];
  pthread_mutex_lock(&office->lock);
  box->open = false;
  while (box->first) {
    mail *letter = box->first;
    box->first = letter->next;
    free(letter);
  }
  if (box->fd >= 0)
    close(box->fd);
  box->fd = -1;
  pthread_mutex_unlock(&office->lock);
  free(base);
  if (atomic_fetch_sub(&office->members, 1) == 1) {
    pthread_mutex_destroy(&office->lock);
    free(office);
  }
}

static const colli_ctrl_ops local_ops = {local_send, local_poll, local_fd, local_close};

/* One rank's end; NULL without memory or descriptors. */
static colli_ctrl *make_member(post *office, int rank, int nranks, bool events) {
  local_ctrl *ctrl = calloc(1, sizeof(*ctrl));
  if (!ctrl)
    return NULL;
  mailbox *box = &office->boxes[rank];
  box->fd = events ? eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC) : -1;
  if (events && box->fd < 0) {
    free(ctrl);
    return NULL;
  }
  box->last = &box->first;
  box->open = true;
  ctrl->post = office;
  ctrl->base.ops = &local_ops;
  ctrl->base.rank = rank;
  ctrl->base.nranks = nranks;
  ctrl->base.nneighbours = colli_ctrl_tree(rank, nranks, ctrl->base.neighbours);
  atomic_fetch_add(&office->members, 1);
  return &ctrl->base;
}

/* Control for `nranks` ranks of one process. */
coll_status colli_ctrl_create_local(colli_ctrl **ctrls, int nranks, bool events,
                                    coll_error *error) {
  post *office = calloc(1, sizeof(*office) + (size_t)nranks * sizeof(mailbox));
  if (!office)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for %d mailboxes",
                           nranks);
  pthread_mutex_init(&office->lock, NULL);
  for (int rank = 0; rank < nranks; rank++) {
    ctrls[rank] = make_member(office, rank, nranks, events);
    if (ctrls[rank])
      continue;
    int saved = errno;
    if (rank == 0) {
      pthread_mutex_destroy(&office->lock);
      free(office);
    }
    while (rank-- > 0)
      colli_ctrl_close(ctrls[rank], 0);
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "eventfd", saved,
                           "cannot make control links for %d ranks; raise the limit of open files "
                           "(ulimit -n)",
                           nranks);
  }
  return COLL_OK;
}
