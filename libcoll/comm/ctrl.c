/* ctrl.c: control links, whichever kind they are. */
#include "libcoll/comm/ctrl_internal.h"

#include <string.h>

/* Parent and children in the binary tree of ranks. */
int colli_ctrl_tree(int rank, int nranks, int *neighbours) {
  int count = 0;
  if (rank > 0)
    neighbours[count++] = (rank - 1) / 2;
  for (int child = 2 * rank + 1; child <= 2 * rank + 2; child++)
    if (child < nranks)
      neighbours[count++] = child;
  return count;
}

/* Whether a message can have come from a libcoll of `nranks` ranks. */
bool colli_ctrl_plausible(const colli_ctrl_msg *msg, int nranks) {
  return msg->kind >= COLLI_CTRL_FAILED && msg->kind <= COLLI_CTRL_GOODBYE && msg->origin >= 0 &&
         msg->origin < nranks && msg->peer >= -1 && msg->peer < nranks;
}

int colli_ctrl_neighbours(const colli_ctrl *ctrl, int *neighbours) {
  memcpy(neighbours, ctrl->neighbours, (size_t)ctrl->nneighbours * sizeof(*neighbours));
  return ctrl->nneighbours;
}

void colli_ctrl_send(colli_ctrl *ctrl, int neighbour, const colli_ctrl_msg *msg) {
  for (int i = 0; i < ctrl->nneighbours; i++)
    if (ctrl->neighbours[i] == neighbour)
      ctrl->ops->send(ctrl, i, msg);
}

colli_ctrl_event colli_ctrl_poll(colli_ctrl *ctrl, int *peer, colli_ctrl_msg *msg, int *sys_errno) {
  *sys_errno = 0;
  return ctrl->ops->poll(ctrl, peer, msg, sys_errno);
}

int colli_ctrl_fd(const colli_ctrl *ctrl) {
  return ctrl->ops->fd(ctrl);
}

void colli_ctrl_close(colli_ctrl *ctrl, int timeout_ms) {
  if (ctrl)
    ctrl->ops->close(ctrl, timeout_ms);
}
