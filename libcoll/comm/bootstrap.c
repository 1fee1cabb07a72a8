/* bootstrap.c: how ranks find each other: ids, and the phases of meeting. */
#include "libcoll/comm/bootstrap.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/comm/bootstrap_net.h"

/* Listens and lists the addresses under which others may come. */
static coll_status open_listener(const colli_params *params, int *fd,
                                 colli_addr addrs[COLLI_MAX_ADDRS], coll_error *error) {
  uint16_t port;
  memset(addrs, 0, COLLI_MAX_ADDRS * sizeof(*addrs));
  int count =
      colli_net_interfaces(params->text[COLLI_PARAM_TCP_IFNAME], addrs, COLLI_MAX_ADDRS, error);
  if (count == 0)
    return error ? error->status : COLL_ERR_SYSTEM;
  coll_status status = colli_net_listen(params->text[COLLI_PARAM_PORT_RANGE], fd, &port, error);
  for (int i = 0; i < count; i++)
    addrs[i].port = port;
  return status;
}

coll_status colli_id_make(colli_id *id, const colli_params *params, coll_error *error) {
  memset(id, 0, sizeof(*id));
  id->magic = COLLI_ID_MAGIC;
  id->version = COLLI_ID_VERSION;
  id->pid = getpid();
  id->listen_fd = -1;
  int failed = colli_random_secret(id->secret, sizeof(id->secret));
  if (!failed)
    failed = colli_random_secret(&id->comm_id, sizeof(id->comm_id));
  if (failed)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", failed,
                           "cannot make a secret");
  int fd = -1;
  coll_status status = open_listener(params, &fd, id->addrs, error);
  id->listen_fd = fd;
  return status;
}

/* The first phase: everybody is known at rank 0. */
static coll_status check_in(const colli_self *self, const colli_id *id, int nranks,
                            const colli_rank_info *mine, colli_rank_info *table,
                            uint64_t deadline_ns, coll_error *error) {
  if (self->rank > 0)
    return colli_root_visit(self, id, nranks, mine, deadline_ns, error);
  table[0] = *mine;
  return colli_root_gather(self, id->listen_fd, nranks, table, deadline_ns, error);
}

/* Both phases, with a table to fill and the control listener open. */
static coll_status meet(const colli_self *self, const colli_id *id, int nranks,
                        const colli_rank_info *mine, int listen_fd, colli_rank_info *table,
                        uint64_t deadline_ns, colli_ctrl **ctrl, coll_error *error) {
  int peers[COLLI_CTRL_LINKS_MAX], fds[COLLI_CTRL_LINKS_MAX], count = 0;
  coll_status status = check_in(self, id, nranks, mine, table, deadline_ns, error);
  if (status != COLL_OK) {
    close(listen_fd);
    return status;
  }
  status = colli_links_make(self, listen_fd, nranks, table, deadline_ns, peers, fds, &count, error);
  if (status != COLL_OK)
    return status;
  return colli_ctrl_create_net(ctrl, self->rank, nranks, peers, fds, count, error);
}

coll_status colli_bootstrap(const colli_id *id, int rank, int nranks, colli_rank_info *mine,
                            const colli_params *params, uint64_t deadline_ns, const colli_log *log,
                            colli_rank_info **table, colli_ctrl **ctrl, coll_error *error) {
  colli_self self = {rank, id->comm_id, id->secret, log};
  bool owner = rank == 0 && id->pid == getpid() && id->listen_fd >= 0;
  *ctrl = NULL;
  *table = NULL;
  if (nranks > 1 && rank == 0 && !owner)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "rank 0 must be the process that called coll_unique_id(); this is "
                           "process %d, the id is of process %d",
                           getpid(), id->pid);
  *table = calloc((size_t)nranks, sizeof(**table));
  coll_status status = *table ? COLL_OK
                              : colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                                                "no memory for %d ranks", nranks);
  int listen_fd = -1;
  if (status == COLL_OK && nranks > 1)
    status = open_listener(params, &listen_fd, mine->control_addrs, error);
  if (status != COLL_OK || nranks == 1) {
    if (owner)
      close(id->listen_fd);
    if (status == COLL_OK) {
      (*table)[0] = *mine;
      status = colli_ctrl_create_local(ctrl, 1, false, error);
    }
  } else {
    status = meet(&self, id, nranks, mine, listen_fd, *table, deadline_ns, ctrl, error);
  }
  if (status != COLL_OK) {
    free(*table);
    *table = NULL;
  }
  return status;
}
