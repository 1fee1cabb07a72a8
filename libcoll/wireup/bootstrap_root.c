/* bootstrap_root.c: rank 0: collects the records, starts the table, tells everybody the outcome. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap_internal.h"

#define TELL_NS   (100 * COLLI_NS_PER_MS) /* for telling a failure to ranks that read slowly */
#define LINGER_NS COLLI_NS_PER_S          /* and to ranks that are on their way */

/* A connection that knows the secret. */
typedef struct root_conn {
  int fd;
  int rank;
  int poll; /* index in the poll set; -1: not in it yet */
  bool in;  /* its record has come */
  bool ready;
  size_t done; /* bytes of the current message */
  union {
    boot_checkin checkin;
    boot_word word;
  } msg;
} root_conn;

typedef struct root_state {
  boot *b;
  boot_links *links;
  boot_pendings pendings;
  root_conn **conns;
  int count, room;
  bool *in; /* by rank: has checked in */
  int checked_in, ready;
  bool links_up;
  uint64_t deadline_ns; /* of the rank that gives up first */
} root_state;

/* The first rank for which `flag` is false. */
static int first_missing(const root_state *r, const bool *flag) {
  int rank = 0;
  while (rank < r->b->nranks && flag[rank])
    rank++;
  return rank;
}

/* The deadline passed while ranks had not come. */
static coll_status checkin_late(root_state *r) {
  const boot *b = r->b;
  char list[200], addr[COLLI_ADDR_TEXT];
  int missing = b->nranks - r->checked_in;
  boot_list_ranks(r->in, b->nranks, false, list, sizeof(list));
  return boot_fail(b, COLL_ERR_TIMEOUT, first_missing(r, r->in), NULL,
                   "rank%s %s of %d did not check in within %.3g s at rank 0 (host %s, %s); look "
                   "whether %s started and can reach that address (firewall, COLL_TCP_IFNAME); "
                   "COLL_CREATE_TIMEOUT_MS gives more time",
                   missing > 1 ? "s" : "", list, b->nranks,
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S, b->mine->host,
                   colli_addr_text(&b->id->addrs[0], addr), missing > 1 ? "they were" : "it was");
}

/* The deadline passed while ranks had not made their control links. */
static coll_status links_late(root_state *r) {
  const boot *b = r->b;
  char list[200];
  bool *ready = calloc((size_t)b->nranks, sizeof(*ready));
  if (!ready)
    return boot_fail(b, COLL_ERR_NO_MEMORY, -1, NULL, "no memory");
  ready[0] = r->links_up;
  for (int i = 0; i < r->count; i++)
    if (r->conns[i]->ready)
      ready[r->conns[i]->rank] = true;
  boot_list_ranks(ready, b->nranks, false, list, sizeof(list));
  int first = first_missing(r, ready);
  free(ready);
  const colli_rank_info *info = &r->links->table[first < b->nranks ? first : 0];
  return boot_fail(b, COLL_ERR_TIMEOUT, first, info,
                   "rank(s) %s of %d checked in, but did not make their control links within "
                   "%.3g s (rank %d: host %s, pid %d); look whether they are stopped, or whether a "
                   "firewall lies between the hosts",
                   list, b->nranks, (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S,
                   first, info->host, info->pid);
}

/* Closes one connection. */
static void drop_conn(root_state *r, int i) {
  boot_close(&r->conns[i]->fd);
  free(r->conns[i]);
  r->conns[i] = r->conns[--r->count];
}

/* Keeps a connection that has proved itself; false if there is no room. */
static bool add_conn(root_state *r, const boot_pending *pending) {
  if (r->count == r->room)
    return false;
  root_conn *conn = calloc(1, sizeof(*conn));
  if (!conn)
    return false;
  conn->fd = pending->fd;
  conn->rank = pending->auth.hello.src_rank;
  conn->poll = -1;
  r->conns[r->count++] = conn;
  return true;
}

/* Lets in those who have proved that they know the secret and want to check in here; false if no
 * more connections can be had. */
static bool welcome(root_state *r) {
  const boot *b = r->b;
  boot_pending pending;
  while (boot_pendings_next(b, &r->pendings, &pending)) {
    const colli_hello *hello = &pending.auth.hello;
    bool wanted = hello->kind == COLLI_HELLO_CHECKIN && hello->comm_id == b->id->comm_id &&
                  hello->dst_rank == 0;
    if (!wanted || !add_conn(r, &pending))
      boot_pending_refuse(b, &pending);
    else
      colli_auth_answer(&pending.auth, true); /* if that fails, reading finds out */
  }
  return r->pendings.sys_errno == 0;
}

/* Connections cannot be accepted. */
static coll_status accept_failed(root_state *r) {
  const boot *b = r->b;
  colli_error_sys(b->error, COLL_ERR_SYSTEM, "create", "accept4", r->pendings.sys_errno,
                  "rank 0 cannot take more check-ins (%d of %d ranks are in); it needs a "
                  "descriptor for each rank: raise the limit (ulimit -n)",
                  r->checked_in, b->nranks);
  b->error->rank = 0;
  snprintf(b->error->host, sizeof(b->error->host), "%s", b->mine->host);
  return COLL_ERR_SYSTEM;
}

/* Checks a record that has come and puts it into the table. */
static coll_status check_in(root_state *r, root_conn *conn) {
  const boot *b = r->b;
  boot_checkin *in = &conn->msg.checkin;
  colli_rank_info *info = &in->info;
  info->host[sizeof(info->host) - 1] = 0;
  if (in->nranks != b->nranks)
    return boot_fail(
        b, COLL_ERR_MISMATCH, conn->rank, info,
        "rank %d (host %s, pid %d) was started with %d ranks, but rank 0 (host %s, pid "
        "%d) with %d; start all with the same number",
        conn->rank, info->host, info->pid, in->nranks, b->mine->host, b->mine->pid, b->nranks);
  if (conn->rank < 0 || conn->rank >= b->nranks)
    return boot_fail(b, COLL_ERR_PROTOCOL, -1, info,
                     "a process (host %s, pid %d) checked in as rank %d of %d", info->host,
                     info->pid, conn->rank, b->nranks);
  if (r->in[conn->rank]) {
    const colli_rank_info *first = conn->rank == 0 ? b->mine : &r->links->table[conn->rank];
    return boot_fail(b, COLL_ERR_MISMATCH, conn->rank, first,
                     "two processes claim to be rank %d: pid %d on host %s, and pid %d on host %s; "
                     "give each rank to one process",
                     conn->rank, first->pid, first->host, info->pid, info->host);
  }
  r->links->table[conn->rank] = *info;
  r->in[conn->rank] = conn->in = true;
  conn->done = 0;
  r->checked_in++;
  uint64_t left_ns = in->remaining_ms * COLLI_NS_PER_MS;
  uint64_t deadline_ns = colli_now_ns() + left_ns - boot_margin_ns(left_ns);
  if (deadline_ns < r->deadline_ns)
    r->deadline_ns = deadline_ns;
  return COLL_OK;
}

/* Reads what a rank says; *gone: its connection ended before it had checked in. */
static coll_status read_conn(root_state *r, root_conn *conn, bool *gone) {
  const boot *b = r->b;
  boot_checkin *in = &conn->msg.checkin;
  int result = conn->in ? boot_pull(conn->fd, &conn->msg.word, sizeof(boot_word), &conn->done)
                        : boot_pull(conn->fd, in, sizeof(*in), &conn->done);
  if (!conn->in && conn->done >= BOOT_CHECKIN_HEAD && in->version != COLL_VERSION)
    return boot_fail(b, COLL_ERR_MISMATCH, conn->rank, NULL,
                     "rank %d uses libcoll %u.%u.%u, but rank 0 (host %s) %d.%d.%d; install the "
                     "same version everywhere",
                     conn->rank, in->version / 10000, in->version / 100 % 100, in->version % 100,
                     b->mine->host, COLL_VERSION_MAJOR, COLL_VERSION_MINOR, COLL_VERSION_PATCH);
  if (result == COLL_T_AGAIN)
    return COLL_OK;
  if (result == COLL_T_DONE && !conn->in)
    return check_in(r, conn);
  const colli_rank_info *info = &r->links->table[conn->in ? conn->rank : 0];
  if (result == COLL_T_DONE && conn->msg.word.status == COLL_OK && !conn->ready) {
    conn->ready = true;
    conn->done = 0;
    r->ready++;
    return COLL_OK;
  }
  if (result == COLL_T_DONE)
    return boot_fail_word(b, &conn->msg.word);
  if (conn->in)
    return boot_fail(b, COLL_ERR_PEER_LOST, conn->rank, info,
                     "rank %d (host %s, pid %d) is lost: it closed its connection to rank 0 after "
                     "it had checked in and before all ranks were joined; look for what ended that "
                     "process",
                     conn->rank, info->host, info->pid);
  colli_log_write(b->log, COLLI_LOG_INFO, "a connection of rank %d closed before it checked in",
                  conn->rank);
  *gone = true;
  return COLL_OK;
}

/* Reads what all ranks say. */
static coll_status read_conns(root_state *r) {
  const boot_polls *polls = &r->b->polls;
  for (int i = 0; i < r->count;) {
    root_conn *conn = r->conns[i];
    bool gone = false;
    if (conn->poll < 0 || polls->fds[conn->poll].revents) {
      coll_status status = read_conn(r, conn, &gone);
      if (status != COLL_OK)
        return status;
    }
    if (gone)
      drop_conn(r, i);
    else
      i++;
  }
  return COLL_OK;
}

/* Tells one rank the outcome and hears whether it has hung up; true if it needs no more. */
static bool tell(root_conn *conn, const boot_word *word, bool linger) {
  int result = boot_push(conn->fd, word, sizeof(*word), &conn->done);
  if (result != COLL_T_DONE || !linger)
    return result != COLL_T_AGAIN; /* told; or gone, which its neighbours find out */
  /* Closing while it still sends its record might cost it what it was told. */
  char waste[512];
  size_t wasted = 0;
  return boot_pull(conn->fd, waste, sizeof(waste), &wasted) > 0;
}

/*
 * Tells every rank the outcome. A failure is told for a moment to those who are still on their way
 * too: they would find a closed port, and not know why.
 */
static void tell_outcome(root_state *r, coll_status status) {
  boot *b = r->b;
  boot_word word;
  boot_word_fill(b, &word, status);
  /* Over lifelines they learn it at once. */
  bool linger = status != COLL_OK && !(b->lifelines && b->lifelines->nlifelines > 0);
  uint64_t until_ns = colli_now_ns() + (status == COLL_ERR_TIMEOUT ? TELL_NS : LINGER_NS);
  if (!linger || until_ns > b->deadline_ns)
    until_ns = b->deadline_ns;
  for (int i = 0; i < r->count; i++)
    r->conns[i]->done = 0;
  for (int told = 0;;) {
    for (int i = 0; i < r->count;) {
      if (tell(r->conns[i], &word, linger)) {
        drop_conn(r, i);
        told++;
      } else {
        i++;
      }
    }
    if (colli_now_ns() >= until_ns || (r->count == 0 && (!linger || told >= b->nranks - 1)))
      return;
    b->polls.count = 0;
    b->polls.wake_ns = until_ns;
    for (int i = 0; i < r->count; i++)
      boot_polls_add(&b->polls, r->conns[i]->fd,
                     r->conns[i]->done < sizeof(word) ? POLLOUT : POLLIN);
    if (linger)
      boot_pendings_watch(b, &r->pendings);
    boot_polls_wait(&b->polls);
    if (linger)
      welcome(r); /* if it cannot take any now, hanging up makes room */
  }
}

/* Says what to wait for, and waits. */
static void wait_for_news(root_state *r) {
  boot *b = r->b;
  b->polls.count = 0;
  b->polls.wake_ns = r->deadline_ns;
  for (int i = 0; i < r->count; i++)
    r->conns[i]->poll = boot_polls_add(&b->polls, r->conns[i]->fd, POLLIN);
  boot_pendings_watch(b, &r->pendings);
  boot_links_watch(b, r->links);
  boot_lifelines_watch(b);
  boot_polls_wait(&b->polls);
}

/* Moves on until all ranks are joined or something fails. */
static coll_status serve(root_state *r) {
  boot *b = r->b;
  for (;;) {
    coll_status status = read_conns(r);
    if (status != COLL_OK)
      return status;
    if (!welcome(r))
      return accept_failed(r);
    int cut = boot_lifelines_cut(b);
    if (cut >= 0)
      return boot_fail_cut(b, cut, NULL);
    bool all_in = r->checked_in == b->nranks;
    if (all_in && !r->links->have_table) {
      r->links->have_table = true;
      uint64_t left_ns = boot_remaining_ms(r->deadline_ns) * COLLI_NS_PER_MS;
      r->links->deadline_ns = r->deadline_ns - boot_margin_ns(left_ns);
    }
    int result = boot_links_step(b, r->links);
    if (result > 0)
      return (coll_status)result;
    r->links_up = result == COLL_T_DONE;
    if (r->links_up && r->ready == b->nranks - 1)
      return COLL_OK;
    if (colli_now_ns() >= r->deadline_ns)
      return all_in ? links_late(r) : checkin_late(r);
    wait_for_news(r);
  }
}

coll_status boot_root(boot *b, boot_links *links) {
  root_state *r = calloc(1, sizeof(*r));
  coll_status status = COLL_ERR_NO_MEMORY;
  if (r) {
    r->b = b;
    r->links = links;
    r->pendings.listen_fd = b->id->listen_fd;
    r->deadline_ns = b->deadline_ns;
    r->room = 2 * b->nranks;
    r->conns = calloc((size_t)r->room, sizeof(*r->conns));
    r->in = calloc((size_t)b->nranks, sizeof(*r->in));
  }
  if (r && r->conns && r->in) {
    r->in[0] = true;
    r->checked_in = 1;
    links->table[0] = *b->mine;
    status = serve(r);
    tell_outcome(r, status);
    boot_pendings_close(&r->pendings);
  } else {
    boot_fail(b, status, -1, NULL, "no memory for the check-in of %d ranks", b->nranks);
  }
  while (r && r->count > 0)
    drop_conn(r, r->count - 1);
  if (r) {
    free(r->conns);
    free(r->in);
    explicit_bzero(r, sizeof(*r));
  }
  free(r);
  return status;
}
