/* shown.c: fills in the status page. */
#include "libcoll/comm/shown.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/fork.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/net/door.h"

/* What is known of a rank, and how this one reaches it. */
static void show_rank(const colli_family *family, int rank, colli_status_rank *shown) {
  const colli_rank_info info = colli_rank_at(family->table, rank);
  const char *transport;
  colli_family_link(family, rank, &transport, shown->link, sizeof(shown->link));
  memcpy(shown->host, info.host, sizeof(shown->host));
  shown->host_id = info.host_id;
  shown->pid = info.pid;
  shown->core = info.core;
  snprintf(shown->transport, sizeof(shown->transport), "%s", transport);
}

/* ---- other hosts ----------------------------------------------------------------------------- */

#define SERVE_A_HOST 2 /* ranks with a service on each host: one of them may be stopped */

void colli_family_offer_status(colli_family *family, colli_rank_info *info) {
  uint16_t port;
  coll_error error = COLL_ERROR_INIT;
  /* With COLL_PORT_RANGE, a job opens only the ports that it needs. */
  if (!*family->params.text[COLLI_PARAM_PORT_RANGE] && family->secret &&
      colli_door_listen("", family->secret->bytes, &family->status_fd, &port, &error) == COLL_OK)
    info->status_port = port;
}

static int by_host(const void *a, const void *b) {
  const colli_status_post *left = a, *right = b;
  if (left->host_id != right->host_id)
    return left->host_id < right->host_id ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Lists the ranks of other hosts that have a service. Returns whether this one has one. */
static bool list_posts(const colli_family *family, colli_status_plan *plan) {
  const uint64_t here = colli_rank_at(family->table, family->rank).host_id;
  uint64_t before = 0;
  int all = 0, on_host = 0;
  bool serves = false;
  colli_rank_walk walk = colli_rank_walk_begin(family->table);
  for (int rank = 0; rank < family->nranks; rank++) {
    const colli_rank_info *info = colli_rank_walk_to(&walk, rank);
    if (info->status_port == 0)
      continue;
    colli_status_post *post = &plan->posts[all++];
    *post = (colli_status_post){.rank = rank, .host_id = info->host_id};
    memcpy(post->addrs, info->control_addrs, sizeof(post->addrs));
    for (int i = 0; i < COLLI_MAX_ADDRS; i++)
      post->addrs[i].port = (uint16_t)info->status_port;
  }
  qsort(plan->posts, (size_t)all, sizeof(*plan->posts), by_host);
  for (int i = 0; i < all; i++) {
    const colli_status_post post = plan->posts[i];
    on_host = i > 0 && post.host_id == before ? on_host + 1 : 0;
    before = post.host_id;
    serves |= on_host < SERVE_A_HOST && post.rank == family->rank;
    if (on_host < SERVE_A_HOST && post.host_id != here)
      plan->posts[plan->nposts++] = post;
  }
  return serves;
}

/* Starts the service, if there are other hosts and this rank is one that has it. */
static void start_service(colli_family *family) {
  colli_status_plan plan = {.rank = family->rank,
                            .comm_id = family->comm_id,
                            .listen_fd = family->status_fd,
                            .secret = family->secret,
                            .tls = family->params.number[COLLI_PARAM_TLS] != 0,
                            .log = family->log};
  plan.posts = calloc((size_t)family->nranks, sizeof(*plan.posts));
  if (!plan.posts || !list_posts(family, &plan) || plan.nposts == 0) {
    free(plan.posts);
    colli_fd_close(family->status_fd);
  } else {
    family->service = colli_status_service_start(&plan, family->status.head->desk);
    if (!family->service)
      colli_log_write(&family->log, COLLI_LOG_INFO, "collctl cannot ask this rank for others: %s",
                      strerror(errno));
  }
  family->status_fd = -1;
}

/* ---- this process ---------------------------------------------------------------------------- */

void colli_family_show(colli_family *family) {
  if (!colli_world_is_real(&family->world))
    return;
  colli_status_head head = {.pid = getpid(),
                            .rank = family->rank,
                            .nranks = family->nranks,
                            .comm_id = family->comm_id,
                            .start_ticks = colli_ticks(),
                            .start_ns = colli_now_ns()};
  memcpy(head.host, family->host, sizeof(head.host));
  int sys_errno = colli_status_open(&family->status, &head);
  if (sys_errno != 0)
    colli_log_write(&family->log, COLLI_LOG_INFO, "collctl cannot show this process: %s",
                    strerror(sys_errno));
  for (int rank = 0; family->status.head && rank < family->nranks; rank++)
    show_rank(family, rank, colli_status_ranks(family->status.head) + rank);
  if (family->status.head && family->status_fd >= 0)
    start_service(family);
}

void colli_family_show_rails(void *ctx, int peer, int rails, int lost) {
  const colli_family *family = ctx;
  if (!family->status.head)
    return;
  colli_status_rank *shown = colli_status_ranks(family->status.head) + peer;
  __atomic_store_n(&shown->rails, (uint32_t)rails, __ATOMIC_RELAXED);
  __atomic_store_n(&shown->lost_rails, (uint32_t)lost, __ATOMIC_RELAXED);
}

bool colli_comm_show(coll_comm *comm) {
  colli_status_comm *shown = colli_status_take(&comm->family->status, comm->nranks);
  if (!shown)
    return false;
  comm->shown = shown;
  memcpy(shown->name, comm->name, sizeof(shown->name));
  shown->uid = comm->uid;
  shown->rank = comm->rank;
  shown->nranks = comm->nranks;
  for (int rank = 0; comm->uid != 0 && rank < comm->nranks; rank++)
    shown->peers[rank].base_rank = (uint64_t)colli_comm_base_rank(comm, rank);
  bool real = colli_world_is_real(&comm->world);
  colli_flights_init(&comm->exec.flights, &shown->flights, real ? NULL : comm->world.now_ns,
                     comm->world.ctx);
  colli_status_show(shown);
  return true;
}

void colli_comm_hide(coll_comm *comm) {
  colli_status_free(&comm->family->status, comm->shown);
  comm->shown = NULL;
}
