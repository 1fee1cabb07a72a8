/* shown.c: fills in the status page. */
#include "libcoll/comm/shown.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/comm/inspect.h"

/* What is known of a rank, and how this one reaches it. */
static void show_rank(const colli_family *family, int rank, colli_status_rank *shown) {
  const colli_rank_info *info = &family->table[rank];
  const char *transport;
  colli_family_link(family, rank, &transport, shown->link, sizeof(shown->link));
  memcpy(shown->host, info->host, sizeof(shown->host));
  shown->host_id = info->host_id;
  shown->pid = info->pid;
  shown->core = info->core;
  snprintf(shown->transport, sizeof(shown->transport), "%s", transport);
}

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
  for (int rank = 0; rank < comm->nranks; rank++) {
    shown->peers[rank].base_rank = (uint64_t)colli_comm_base_rank(comm, rank);
    comm->exec.links[rank].sent_bytes = &shown->peers[rank].sent_bytes;
  }
  bool real = colli_world_is_real(&comm->world);
  colli_flights_init(&comm->exec.flights, &shown->flights, real ? NULL : comm->world.now_ns,
                     comm->world.ctx);
  colli_status_show(shown);
  return true;
}
