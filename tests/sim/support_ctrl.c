/* support_ctrl.c: control links as mailboxes of one thread. */
#include "support_ctrl.h"

#include <stdlib.h>

#include "libcoll/comm/ctrl_internal.h"

typedef struct letter {
  struct letter *next;
  int from;
  colli_ctrl_event event;
  colli_ctrl_msg msg;
} letter;

/* What the ranks share; the last one to close frees it. */
typedef struct office {
  int members;
  struct sim_ctrl *ctrl[]; /* NULL: closed */
} office;

typedef struct sim_ctrl {
  colli_ctrl base;
  office *shared;
  letter *first, *last;
  bool said_goodbye[COLLI_CTRL_MAX_NEIGHBOURS];
} sim_ctrl;

/* Puts something into a rank's mailbox. */
static void deliver(sim_ctrl *to, int from, colli_ctrl_event event, const colli_ctrl_msg *msg) {
  letter *l = calloc(1, sizeof(*l));
  if (!l)
    abort();
  l->from = from;
  l->event = event;
  if (msg)
    l->msg = *msg;
  if (to->first)
    to->last->next = l;
  else
    to->first = l;
  to->last = l;
}

static void ctrl_send(colli_ctrl *base, int index, const colli_ctrl_msg *msg) {
  sim_ctrl *ctrl = (sim_ctrl *)base;
  sim_ctrl *to = ctrl->shared->ctrl[base->neighbours[index]];
  ctrl->said_goodbye[index] |= msg->kind == COLLI_CTRL_GOODBYE;
  if (to)
    deliver(to, base->rank, COLLI_CTRL_MESSAGE, msg);
}

static colli_ctrl_event ctrl_poll(colli_ctrl *base, int *peer, colli_ctrl_msg *msg,
                                  int *sys_errno) {
  sim_ctrl *ctrl = (sim_ctrl *)base;
  letter *l = ctrl->first;
  if (!l)
    return COLLI_CTRL_NOTHING;
  ctrl->first = l->next;
  colli_ctrl_event event = l->event;
  *peer = l->from;
  *msg = l->msg;
  *sys_errno = 0;
  free(l);
  return event;
}

static int ctrl_fd(const colli_ctrl *base) {
  (void)base;
  return -1;
}

static void ctrl_close(colli_ctrl *base, int timeout_ms) {
  (void)timeout_ms;
  sim_ctrl *ctrl = (sim_ctrl *)base;
  office *shared = ctrl->shared;
  shared->ctrl[base->rank] = NULL;
  for (int i = 0; i < base->nneighbours; i++) {
    sim_ctrl *to = shared->ctrl[base->neighbours[i]];
    if (to && !ctrl->said_goodbye[i])
      deliver(to, base->rank, COLLI_CTRL_CLOSED, NULL);
  }
  while (ctrl->first) {
    letter *l = ctrl->first;
    ctrl->first = l->next;
    free(l);
  }
  free(ctrl);
  if (--shared->members == 0)
    free(shared);
}

static const colli_ctrl_ops ctrl_ops = {ctrl_send, ctrl_poll, ctrl_fd, ctrl_close};

/* Adds a neighbour that is not there yet. */
static void add_neighbour(colli_ctrl *base, int rank) {
  for (int i = 0; i < base->nneighbours; i++)
    if (base->neighbours[i] == rank)
      return;
  if (rank != base->rank)
    base->neighbours[base->nneighbours++] = rank;
}

bool sim_ctrl_create(colli_ctrl **ctrls, int nranks) {
  office *shared = calloc(1, sizeof(*shared) + (size_t)nranks * sizeof(sim_ctrl *));
  if (!shared)
    return false;
  for (int rank = 0; rank < nranks; rank++) {
    sim_ctrl *ctrl = calloc(1, sizeof(*ctrl));
    if (!ctrl)
      abort();
    ctrl->shared = shared;
    ctrl->base.ops = &ctrl_ops;
    ctrl->base.rank = rank;
    ctrl->base.nranks = nranks;
    ctrl->base.nneighbours = colli_ctrl_tree(rank, nranks, ctrl->base.neighbours);
    add_neighbour(&ctrl->base, (rank + 1) % nranks);
    add_neighbour(&ctrl->base, (rank + nranks - 1) % nranks);
    shared->ctrl[rank] = ctrl;
    shared->members++;
    ctrls[rank] = &ctrl->base;
  }
  return true;
}
