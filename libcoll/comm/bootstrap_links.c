/* bootstrap_links.c: the table goes down the tree, and the control links come about on the way. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/bootstrap_net.h"

enum { LINK_TREE = 1, LINK_RING = 2 };

/* One control link in the making. */
typedef struct edge {
  int peer;
  uint64_t word;
  bool dials; /* this rank is the one that connects */
  bool begun;
  bool complete;
  int fd;      /* authenticated, or -1 */
  size_t done; /* bytes of the table that went over it */
  colli_dial dial;
} edge;

typedef struct making {
  const colli_self *self;
  colli_door door;
  int nranks;
  colli_rank_info *table;
  bool has_table;
  edge edges[COLLI_CTRL_LINKS_MAX];
  int count;
  coll_error *error;
} making;

/* The links of this rank: parents dial their children, and ring neighbours the next rank. */
static void plan(making *m) {
  int n = m->nranks, rank = m->self->rank, peers[COLLI_CTRL_LINKS_MAX];
  m->count = colli_ctrl_peers(rank, n, peers);
  for (int i = 0; i < m->count; i++) {
    bool tree = colli_ctrl_tree_joined(rank, peers[i]);
    m->edges[i] = (edge){.peer = peers[i],
                         .word = tree ? LINK_TREE : LINK_RING,
                         .dials = tree ? peers[i] > rank : peers[i] == (rank + 1) % n,
                         .fd = -1};
  }
}

/* Takes connections that belong to an edge; all others are refused. */
static void take_visitors(making *m) {
  colli_auth auth;
  while (colli_door_next(&m->door, &auth)) {
    const colli_hello *hello = &auth.hello;
    edge *wanted = NULL;
    for (int i = 0; i < m->count; i++) {
      edge *e = &m->edges[i];
      if (!e->dials && e->fd < 0 && e->peer == hello->src_rank && e->word == hello->word)
        wanted = e;
    }
    bool fits = wanted && hello->kind == COLLI_HELLO_CONTROL && hello->dst_rank == m->self->rank &&
                hello->comm_id == m->self->comm_id;
    if (colli_auth_answer(&auth, fits) == 0 && fits)
      wanted->fd = auth.fd;
    else
      close(auth.fd);
  }
}

/* Records that a neighbour was lost while the links were made. */
static coll_status lost(making *m, int peer) {
  const colli_rank_info *info = m->has_table ? &m->table[peer] : NULL;
  coll_status status =
      colli_error_set(m->error, COLL_ERR_PEER_LOST, "create",
                      "rank %d (host %s, pid %d) was lost while the communicator was made", peer,
                      info ? info->host : "?", info ? info->pid : 0);
  if (m->error)
    m->error->peer = peer;
  return status;
}

/* Moves one edge on. */
static coll_status move(making *m, edge *e) {
  if (e->complete || (e->dials && !m->has_table))
    return COLL_OK;
  if (e->fd < 0) {
    if (!e->dials)
      return COLL_OK;
    if (!e->begun)
      colli_dial_begin(&e->dial, m->self, e->peer, m->table[e->peer].control_addrs,
                       COLLI_HELLO_CONTROL, e->word, false);
    e->begun = true;
    int status = colli_dial_poll(&e->dial);
    if (status == COLL_T_AGAIN)
      return COLL_OK;
    if (status > 0) {
      char whom[96];
      snprintf(whom, sizeof(whom), "rank %d (host %s, pid %d)", e->peer, m->table[e->peer].host,
               m->table[e->peer].pid);
      return colli_dial_failed(&e->dial, (coll_status)status, whom, m->error);
    }
    e->fd = e->dial.result;
  }
  size_t bytes = (size_t)m->nranks * sizeof(*m->table);
  int status = COLL_T_DONE;
  if (e->word == LINK_TREE && e->dials)
    status = colli_push(e->fd, m->table, bytes, &e->done);
  else if (e->word == LINK_TREE)
    status = colli_pull(e->fd, m->table, bytes, &e->done);
  if (status > 0)
    return lost(m, e->peer);
  if (status == COLL_T_AGAIN)
    return COLL_OK;
  e->complete = true;
  if (e->word == LINK_TREE && !e->dials) {
    m->has_table = true;
    for (int rank = 0; rank < m->nranks; rank++)
      m->table[rank].host[sizeof(m->table[rank].host) - 1] = 0;
  }
  return COLL_OK;
}

/* Sleeps until one of the edges may move. */
static void rest(const making *m, uint64_t deadline_ns) {
  struct pollfd fds[COLLI_DOOR_STRANGERS + 1 + COLLI_CTRL_LINKS_MAX * COLLI_MAX_ADDRS];
  int count = colli_door_fds(&m->door, fds);
  for (int i = 0; i < m->count; i++) {
    const edge *e = &m->edges[i];
    if (e->complete)
      continue;
    if (e->fd >= 0)
      fds[count++] = (struct pollfd){.fd = e->fd, .events = e->dials ? POLLOUT : POLLIN};
    else if (e->begun)
      count += colli_dial_fds(&e->dial, fds + count);
  }
  int patience = colli_patience_ms(deadline_ns);
  poll(fds, (nfds_t)count, patience > 20 ? 20 : patience);
}

/* Names a rank that did not come, at the deadline. */
static coll_status too_late(making *m, const edge *e) {
  coll_status status = colli_error_set(
      m->error, COLL_ERR_TIMEOUT, "create",
      "rank %d made no control link with rank %d (host %s) in time; look at that process, or raise "
      "COLL_CREATE_TIMEOUT_MS",
      m->self->rank, e->peer, m->has_table ? m->table[e->peer].host : "unknown");
  if (m->error)
    m->error->peer = e->peer;
  return status;
}

/* Makes all edges. */
static coll_status make_all(making *m, uint64_t deadline_ns) {
  for (;;) {
    take_visitors(m);
    const edge *open = NULL;
    for (int i = 0; i < m->count; i++) {
      coll_status status = move(m, &m->edges[i]);
      if (status != COLL_OK)
        return status;
      if (!m->edges[i].complete && !open)
        open = &m->edges[i];
    }
    if (!open)
      return COLL_OK;
    if (colli_now_ns() > deadline_ns)
      return too_late(m, open);
    rest(m, deadline_ns);
  }
}

coll_status colli_links_make(const colli_self *self, int listen_fd, int nranks,
                             colli_rank_info *table, uint64_t deadline_ns, int *peers, int *fds,
                             int *count, coll_error *error) {
  making *m = calloc(1, sizeof(*m));
  *count = 0;
  if (!m) {
    close(listen_fd);
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for control links");
  }
  m->self = self;
  m->door.self = self;
  m->door.listen_fd = listen_fd;
  m->nranks = nranks;
  m->table = table;
  m->has_table = self->rank == 0;
  m->error = error;
  plan(m);
  coll_status status = make_all(m, deadline_ns);
  for (int i = 0; i < m->count; i++) {
    edge *e = &m->edges[i];
    if (e->begun)
      colli_dial_end(&e->dial);
    if (status == COLL_OK) {
      peers[*count] = e->peer;
      fds[(*count)++] = e->fd;
    } else if (e->fd >= 0) {
      close(e->fd);
    }
  }
  colli_door_close(&m->door);
  free(m);
  return status;
}
