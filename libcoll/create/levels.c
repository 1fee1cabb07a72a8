/*
 * levels.c: makes the parts of a communicator whose ranks are in groups: one of each group, where
 * calls are direct, and one of the ranks that have the same place in all groups.
 */
#include "libcoll/create/levels.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/assemble.h"
#include "libcoll/create/split.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/gpu_lend.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/direct.h"
#include "libcoll/stream/direct_groups.h"
#include "libcoll/stream/staged_parts.h"

/* ---- groups ---------------------------------------------------------------------------------- */

/* Whether all ranks are on this one's host. */
static bool is_one_host(const coll_comm *comm) {
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_rank_host(comm->table, rank) != 0)
      return false;
  return true;
}

/* The number of ranks in each group; 0: it differs. `count` has room for all. */
static int find_size(const int *group, int nranks, int *count) {
  int size = 0;
  memset(count, 0, (size_t)nranks * sizeof(*count));
  for (int rank = 0; rank < nranks; rank++)
    count[group[rank]]++;
  for (int lead = 0; lead < nranks; lead++) {
    if (count[lead] > 0 && size > 0 && count[lead] != size)
      return 0;
    size = count[lead] > 0 ? count[lead] : size;
  }
  return size;
}

/* Lists the ranks of all groups, in the order of their first ones. `next` has room for all. */
static void list_members(const coll_comm *comm, const int *group, int *next, colli_levels *levels) {
  int number = 0;
  for (int rank = 0; rank < comm->nranks; rank++) {
    if (group[rank] == rank)
      next[rank] = number++ * levels->size;
    const int at = next[group[rank]]++;
    levels->member[at] = rank;
    if (rank == comm->rank) {
      levels->group = at / levels->size;
      levels->place = at % levels->size;
    }
  }
}

/* Describes the groups, if they are several of equal size, and not of one rank unless all GPUs may
 * lend memory to networks (*lend). */
static coll_status find_groups(coll_comm *comm, colli_levels *levels, bool *lend) {
  const size_t n = (size_t)comm->nranks;
  int *group = malloc(2 * n * sizeof(*group));
  levels->member = malloc(n * sizeof(*levels->member));
  coll_status status;
  if (group && levels->member)
    status = colli_direct_groups(comm, group, lend);
  else
    status = colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, "comm_use_gpu", "out of memory");
  if (status == COLL_OK) {
    levels->size = find_size(group, comm->nranks, group + n);
    levels->ngroups = levels->size > 0 ? comm->nranks / levels->size : 0;
    if (levels->size < (*lend ? 1 : 2) || levels->ngroups < 2)
      status = colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, "comm_use_gpu",
                                 "%s, and do not form groups of equal size, of two or more, whose "
                                 "GPUs have peer access to "
                                 "each other; calls in streams are staged through host memory",
                                 is_one_host(comm) ? "the ranks are on one host"
                                                   : "the ranks are on several hosts");
    else
      list_members(comm, group, group + n, levels);
  }
  free(group);
  return status;
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* Makes one of the two communicators. */
static coll_status make_part(coll_comm *comm, int color, int key, coll_comm **part) {
  coll_config config = COLL_CONFIG_INIT;
  const colli_split_call call = {
      .kind = COLLI_SPLIT_LEVEL, .color = color, .key = key, .config = &config};
  colli_split *split;
  config.algo = ""; /* what is forced for all ranks may not suit a part of them */
  const coll_status status = colli_split_start(comm, &call, &split);
  return status == COLL_OK ? colli_split_finish(split, part) : status;
}

/* Has the ranks of this group share GPU memory. */
static coll_status join_within(coll_comm *comm, coll_comm *within, coll_error *error) {
  const uint64_t usual_ns = within->watch.timeout_ns;
  colli_call_pause(comm);
  coll_status status = colli_call_enter(within);
  if (status == COLL_OK) {
    within->watch.timeout_ns = comm->watch.timeout_ns;
    status = colli_direct_join(within);
    within->watch.timeout_ns = usual_ns;
    *error = within->failure.error;
    colli_call_leave(within);
  }
  colli_call_resume(comm);
  return status;
}

/* Makes both, and has all groups share GPU memory or none. */
static coll_status make_parts(coll_comm *comm, colli_levels *levels) {
  coll_error error = COLL_ERROR_INIT;
  coll_status status = make_part(comm, levels->group, levels->place, &levels->within);
  if (status == COLL_OK)
    status = make_part(comm, levels->place, levels->group, &levels->across);
  if (status != COLL_OK)
    return status;
  if (levels->size == 1)
    levels->within->log.level = COLLI_LOG_NONE; /* it has nobody to meet */
  status = join_within(comm, levels->within, &error);
  status = colli_direct_agree(comm, &colli_direct_joining, status, &error, COLL_ERR_UNSUPPORTED);
  if (status != COLL_OK)
    return status;
  levels->within->log.level = levels->across->log.level = COLLI_LOG_NONE; /* `comm` tells */
  return COLL_OK;
}

/* Whether all ranks across groups take GPU memory from this one, as far as is known; and, with some
 * of it that a device has, as it turns out. */
static coll_status lend_across(coll_comm *comm, const colli_levels *levels, int device,
                               const void *memory, coll_error *error) {
  for (int group = 0; group < levels->ngroups; group++) {
    const int peer = colli_levels_member(levels, group, levels->place);
    if (group == levels->group)
      continue;
    if (!colli_gpu_is_taken(comm, peer))
      return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                             "its GPU does not reach rank %d's, nor does their transport (or "
                             "COLL_GPU_DIRECT_RDMA is off)",
                             peer);
    if (memory && !colli_gpu_try_lending(comm, device, peer, memory))
      return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                             "the network to rank %d refuses its GPU's memory; COLL_LOG=info says "
                             "why",
                             peer);
  }
  return COLL_OK;
}

/* Finds out whether ranks that are alone in their groups are worth making parts for. */
static coll_status expect_messages(coll_comm *comm, const colli_levels *levels) {
  coll_error error = COLL_ERROR_INIT;
  const coll_status status = lend_across(comm, levels, 0, NULL, &error);
  return colli_direct_agree(comm, &colli_direct_joining, status, &error, COLL_ERR_UNSUPPORTED);
}

/* Finds out whether long parts across groups can be messages from and to GPU memory, on all ranks.
 */
static coll_status try_messages(coll_comm *comm, colli_levels *levels) {
  const coll_error before = comm->failure.error;
  const colli_gpu_peers *peers = levels->within->direct->peers;
  const void *room = (const void *)(uintptr_t)colli_gpu_peers_result(peers, false);
  coll_error error = COLL_ERROR_INIT;
  coll_status status = lend_across(comm, levels, peers->device, room, &error);
  status = colli_direct_agree(comm, &colli_direct_joining, status, &error, COLL_ERR_UNSUPPORTED);
  levels->by_messages = status == COLL_OK;
  if (status != COLL_ERR_UNSUPPORTED || levels->size == 1 || comm->failure.status != COLL_OK)
    return status;
  comm->failure.error = before; /* only some parts are staged */
  return COLL_OK;
}

/* Tells the log what was found. */
static void tell(const coll_comm *comm, const colli_levels *levels) {
  const char *across = levels->by_messages ? "messages from and to GPU memory (GPUDirect RDMA)"
                                           : "copies in host memory";
  if (levels->size > 1)
    colli_log_write(&comm->log, COLLI_LOG_INFO,
                    "long calls in streams stay in GPU memory within %d groups of %d ranks; what "
                    "goes from group to group: %s",
                    levels->ngroups, levels->size, across);
  else
    colli_log_write(&comm->log, COLLI_LOG_INFO, "long calls in streams are %s", across);
}

/* Finds groups and makes their communicators. */
static coll_status join_groups(coll_comm *comm) {
  colli_levels *levels = calloc(1, sizeof(*levels));
  if (!levels)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, "comm_use_gpu", "out of memory");
  levels->operation = "comm_use_gpu";
  levels->room_bytes = colli_staged_least_slot(comm);
  bool lend = false;
  coll_status status = find_groups(comm, levels, &lend);
  if (status == COLL_OK && levels->size == 1)
    status = expect_messages(comm, levels);
  if (status == COLL_OK)
    status = make_parts(comm, levels);
  if (status == COLL_OK && lend)
    status = try_messages(comm, levels);
  if (status != COLL_OK) {
    colli_levels_free(comm, levels);
    return status;
  }
  tell(comm, levels);
  comm->levels = levels;
  return COLL_OK;
}

coll_status colli_levels_use_gpu(coll_comm *comm) {
  if (comm->direct || comm->levels)
    return COLL_OK;
  if (comm->nranks == 1)
    return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, "comm_use_gpu",
                             "there are no other ranks");
  if (!is_one_host(comm))
    return join_groups(comm);
  coll_status status = colli_direct_join(comm);
  if (status != COLL_ERR_UNSUPPORTED || comm->failure.status != COLL_OK)
    return status;
  const coll_error why = comm->failure.error;
  status = join_groups(comm);
  if (status == COLL_ERR_UNSUPPORTED && comm->failure.status == COLL_OK)
    comm->failure.error = why; /* it says more */
  return status;
}

coll_status coll_comm_use_gpu(coll_comm *comm) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  status = colli_call_check_usable(comm);
  if (status == COLL_OK)
    status = colli_levels_use_gpu(comm);
  colli_call_leave(comm);
  return status;
}
