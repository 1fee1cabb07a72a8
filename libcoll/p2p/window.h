/* window.h: memory of this rank that others write to by put; the public coll_window. */
#ifndef COLLI_P2P_WINDOW_H
#define COLLI_P2P_WINDOW_H

#include "libcoll/p2p/p2p.h"

struct coll_window {
  coll_window *next;
  coll_comm *comm;
  uint32_t number; /* the same on all ranks */
  int nranks;
  int inflight; /* posts that refer to it */
  char *base;
  size_t bytes;
  uint64_t *sizes;   /* nranks: bytes that each rank gave */
  uint64_t *signals; /* nranks: signals come and not waited for */
  bool *ended;       /* nranks: that rank writes no more */
  int left;          /* ranks that have not ended it */
  colli_post *ends;  /* nranks: the posts that tell them that this rank has ended it */
  colli_post *closing;
};

/* Adds a window whose fields except for `next` and `number` are set; removes and frees it. */
void colli_p2p_add_window(colli_p2p *p2p, coll_window *window);
void colli_p2p_remove_window(colli_p2p *p2p, coll_window *window);

#endif
