/* ctrl_internal.h: the two kinds of control links behind ctrl.h. */
#ifndef COLLI_COMM_CTRL_INTERNAL_H
#define COLLI_COMM_CTRL_INTERNAL_H

#include "libcoll/comm/ctrl.h"

#define COLLI_CTRL_MAX_NEIGHBOURS 8

/* What each kind does; see ctrl.h for the meaning. */
typedef struct colli_ctrl_ops {
  void (*send)(colli_ctrl *ctrl, int index, const colli_ctrl_msg *msg);
  colli_ctrl_event (*poll)(colli_ctrl *ctrl, int *peer, colli_ctrl_msg *msg, int *sys_errno);
  int (*fd)(const colli_ctrl *ctrl);
  void (*close)(colli_ctrl *ctrl, int timeout_ms);
} colli_ctrl_ops;

/* The first member of both kinds. */
struct colli_ctrl {
  const colli_ctrl_ops *ops;
  int rank;
  int nranks;
  int nneighbours;
  int neighbours[COLLI_CTRL_MAX_NEIGHBOURS];
};

/* Parent and children in the binary tree of ranks; returns how many (at most 3). */
int colli_ctrl_tree(int rank, int nranks, int *neighbours);

/* Whether a message can have come from a libcoll of `nranks` ranks. */
bool colli_ctrl_plausible(const colli_ctrl_msg *msg, int nranks);

/* A connected, authenticated socket to a neighbour. */
typedef struct colli_ctrl_socket {
  int peer;
  int fd;
} colli_ctrl_socket;

/* Control over sockets, which it takes over in every case. */
coll_status colli_ctrl_create_net(colli_ctrl **ctrl, int rank, int nranks,
                                  const colli_ctrl_socket *sockets, int count, coll_error *error);

#endif
