/* notice_send.c: sends notices to the other ranks of a family over the control links. */
#include "libcoll/comm/notice_send.h"

/*
 * Forwards a notice to all neighbours but its origin and `except`: most over all links, so that it
 * passes ranks that are frozen or gone, at the price of several copies.
 */
void colli_notice_forward(colli_family *family, const colli_ctrl_msg *msg, int except) {
  int neighbours[8];
  int count = family->ctrl ? colli_ctrl_neighbours(family->ctrl, neighbours) : 0;
  for (int i = 0; i < count; i++)
    if (neighbours[i] != except && neighbours[i] != msg->origin &&
        (!msg->once || colli_ctrl_tree_joined(family->rank, neighbours[i])))
      colli_ctrl_send(family->ctrl, neighbours[i], msg);
}

/* Sends a notice made here to all neighbours. */
void colli_notice_send(colli_family *family, uint64_t uid, colli_ctrl_msg *msg) {
  msg->uid = uid;
  msg->origin = family->rank;
  msg->serial = ++family->serial;
  colli_notice_forward(family, msg, -1);
}
