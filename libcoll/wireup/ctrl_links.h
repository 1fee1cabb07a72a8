/* ctrl_links.h: code that both kinds of control links share, and how bootstrap makes one of
 * them. */
#ifndef COLLI_WIREUP_CTRL_LINKS_H
#define COLLI_WIREUP_CTRL_LINKS_H

#include <stddef.h>

#include "libcoll/net/sealed.h"
#include "libcoll/wireup/ctrl.h"
#include "libcoll/wireup/rank_table.h"

#define COLLI_CTRL_LINKS_MAX 8 /* a parent, two children, two ring neighbours; some spare */

/* The operations of one kind of control links; the functions of ctrl.h call these. */
typedef struct colli_ctrl_ops {
  void (*send)(colli_ctrl *ctrl, int link, const colli_ctrl_msg *msg);
  colli_ctrl_event (*poll)(colli_ctrl *ctrl, int *link, colli_ctrl_msg *msg, int *sys_errno);
  bool (*unsent)(const colli_ctrl *ctrl);
  int (*fd)(const colli_ctrl *ctrl);
  void (*close)(colli_ctrl *ctrl, int timeout_ms);
} colli_ctrl_ops;

/* The first member of either kind. */
struct colli_ctrl {
  const colli_ctrl_ops *ops;
  int rank;
  int nranks;
  int count;
  int peers[COLLI_CTRL_LINKS_MAX];
};

/* A queued message; `link` is the index that the receiver has for its link. */
typedef struct colli_ctrl_entry {
  int link;
  colli_ctrl_msg msg;
} colli_ctrl_entry;

/* A ring buffer of messages that grows. */
typedef struct colli_ctrl_queue {
  colli_ctrl_entry *at;
  size_t first, count, capacity;
} colli_ctrl_queue;

/*
 * Appends a message. A long queue drops superseded messages (WAITING), so that a rank that does not
 * read needs bounded memory. False if out of memory.
 */
bool colli_ctrl_queue_push(colli_ctrl_queue *queue, int link, const colli_ctrl_msg *msg,
                           int nranks);

/* Removes the oldest message; false if there is none. */
bool colli_ctrl_queue_pop(colli_ctrl_queue *queue, colli_ctrl_entry *entry);

void colli_ctrl_queue_free(colli_ctrl_queue *queue);

/* The neighbours of a rank, each once: tree parent and children, next and previous in the ring. */
int colli_ctrl_peers(int rank, int nranks, int peers[COLLI_CTRL_LINKS_MAX]);

/* Makes control links from authenticated connections: conns[i] leads to peers[i], and so does
 * spares[i] through another network, or it is COLLI_SEALED_NONE; NULL: all are. Takes ownership of
 * them in every case. A neighbour is silent once its host has answered on no socket for
 * heartbeat_ms. */
coll_status colli_ctrl_create_net(colli_ctrl **ctrl, int rank, int nranks, const int *peers,
                                  const colli_sealed *conns, const colli_sealed *spares, int count,
                                  int heartbeat_ms, coll_error *error);

/* What links need to tell that one of their two sockets is lost, and to make it again. NULL: out of
 * memory. The links that get it own it; without it they do neither. */
typedef struct colli_ctrl_spares colli_ctrl_spares;
struct boot;
colli_ctrl_spares *colli_ctrl_spares_create(const struct boot *b, const colli_rank_table *table,
                                            const char *port_range);
void colli_ctrl_set_spares(colli_ctrl *ctrl, colli_ctrl_spares *spares);

#endif
