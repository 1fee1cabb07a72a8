/* assemble.c: makes a communicator from its parts, and takes it apart. */
#include "libcoll/create/assemble.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/api/attr.h"
#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/completion.h"
#include "libcoll/comm/pool.h"
#include "libcoll/comm/shm_capacity.h"
#include "libcoll/comm/shown.h"
#include "libcoll/exec/connect.h"
#include "libcoll/failure/events.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/notice.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/outsider.h"
#include "libcoll/progress/progress_thread.h"
#include "libcoll/progress/visit.h"
#include "libcoll/run/p2p_call.h"
#include "libcoll/stream/direct.h"
#include "libcoll/stream/on_stream.h"
#include "libcoll/tuning/locality.h"

coll_comm *colli_comm_new(void) {
  coll_comm *comm = malloc(sizeof(*comm));
  if (!comm)
    return NULL;
  memset(comm, 0, offsetof(coll_comm, params)); /* which are large, and filled in as a whole */
  if (colli_fork_guard_add(&comm->entry.guard))
    return comm;
  free(comm);
  return NULL;
}

/* First half of creation: opens the endpoints and fills in *info. */
coll_status colli_comm_open(const colli_assembly *assembly, coll_comm **out, colli_rank_info *info,
                            coll_error *error) {
  *out = NULL;
  COLLI_ASSERT_RANK(assembly->rank >= 0 && assembly->rank < assembly->nranks, assembly->rank);
  const colli_params *params = assembly->params;
  coll_status status = colli_force_check(params->text[COLLI_PARAM_ALGO], error);
  if (status != COLL_OK)
    return status;
  coll_comm *comm = colli_comm_new();
  if (!comm)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for a communicator");
  colli_family *family;
  status = colli_family_open(assembly, &family, info, error);
  if (status != COLL_OK) {
    colli_fork_guard_remove(&comm->entry.guard);
    colli_bell_free(comm);
    free(comm);
    return status;
  }
  comm->rank = assembly->rank;
  comm->nranks = assembly->nranks;
  comm->comm_id = assembly->comm_id;
  colli_params_copy(&comm->params, params);
  comm->log = family->log;
  comm->world = assembly->world;
  comm->gpu = family->gpu;
  info->gpu = colli_direct_wanted(comm);
  memcpy(comm->host, family->host, sizeof(comm->host));
  snprintf(comm->name, sizeof(comm->name), "world");
  memcpy(family->name, comm->name, sizeof(family->name));
  comm->calls.deterministic = (coll_determinism)params->number[COLLI_PARAM_DETERMINISTIC];
  comm->calls.accumulate = (coll_accumulate)params->number[COLLI_PARAM_ACCUMULATE];
  comm->calls.check_finite = (colli_finite_check)params->number[COLLI_PARAM_CHECK_FINITE];
  colli_error_clear(&comm->failure.error);
  comm->failure.root = -1;
  comm->watch.spin = COLLI_SPIN_MOST;
  colli_family_add(family, comm);
  *out = comm;
  return COLL_OK;
}

/* Copies an array, or nothing; false if out of memory. */
static bool copy_numbers(int32_t **to, const int32_t *from, int count) {
  *to = from ? malloc((size_t)count * sizeof(**to)) : NULL;
  if (*to)
    memcpy(*to, from, (size_t)count * sizeof(**to));
  return *to || !from;
}

/* Copies the levels inside groups; false if out of memory. */
static bool copy_inner(colli_plans *to, const colli_plans *from) {
  while (to->ninner < from->ninner &&
         copy_numbers(&to->inner[to->ninner], from->inner[to->ninner], from->nranks))
    to->ninner++;
  memcpy(to->names, from->names, sizeof(to->names));
  return to->ninner == from->ninner;
}

/* Takes over what the table of ranks says from a communicator of the same ranks. */
static coll_status copy_locality(coll_comm *comm, const coll_comm *twin, coll_error *error) {
  colli_plans *plans = &comm->calls.plans;
  const colli_plans *known = &twin->calls.plans;
  COLLI_ASSERT_RANK(comm->nranks == twin->nranks && comm->rank == twin->rank, comm->rank);
  if (!copy_numbers(&plans->group, known->group, comm->nranks) || !copy_inner(plans, known) ||
      (known->weights && !(plans->weights = colli_weights_copy(known->weights))))
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks",
                           comm->nranks);
  comm->watch.crowded = twin->watch.crowded;
  comm->watch.mate = twin->watch.mate;
  plans->model = known->model;
  if (plans->weights)
    plans->model.link_beta_ns_per_byte = plans->weights->beta_ns_per_byte;
  plans->neighbours = known->neighbours;
  plans->ngroups = known->ngroups;
  plans->limits = known->limits;
  return COLL_OK;
}

/* Asks the table of ranks. */
static coll_status ask_table(coll_comm *comm, colli_locality *locality, coll_error *error) {
  colli_transport_list transports = {.count = comm->family->nports};
  for (int i = 0; i < transports.count; i++)
    transports.ops[i] = comm->family->ports[i].ops;
  coll_status status = colli_locality_find(comm->table, comm->rank, &transports,
                                           comm->family->corrections, locality, error);
  if (status != COLL_OK)
    return status;
  COLLI_ASSERT_RANK(locality->neighbours >= 1 && locality->neighbours <= comm->nranks, comm->rank);
  COLLI_ASSERT_RANK(locality->ngroups <= 1 || locality->group, comm->rank);
  return COLL_OK;
}

/* Says how hosts share work, if that is because their links differ. */
static void tell_shares(const coll_comm *comm) {
  const colli_weights *weights = comm->calls.plans.weights;
  char list[200] = "";
  if (comm->rank != 0 || comm->uid != 0 || !weights || !weights->share)
    return;
  for (int host = 0; host < weights->nhosts; host++) {
    const size_t used = strlen(list), left = sizeof(list) - used;
    if (left < sizeof(" 255 ...")) {
      snprintf(list + used, left, " ...");
      break;
    }
    snprintf(list + used, left, " %d", weights->share[host]);
  }
  colli_log_write(&comm->log, COLLI_LOG_INFO,
                  "shares of hosts in all-reduces:%s (of long vectors, because their links are not "
                  "equally fast)",
                  list);
}

/* Takes over what the table says about the choice of algorithms. */
static void take_locality(coll_comm *comm, const colli_locality *locality) {
  colli_plans *plans = &comm->calls.plans;
  plans->model = locality->model;
  plans->ngroups = locality->ngroups;
  plans->group = locality->group;
  plans->ninner = locality->ninner;
  memcpy(plans->inner, locality->inner, sizeof(plans->inner));
  memcpy(plans->names, locality->names, sizeof(plans->names));
  plans->weights = locality->weights;
  tell_shares(comm);
}

/* Finds what the table of ranks says. */
static coll_status find_locality(coll_comm *comm, coll_error *error) {
  colli_locality locality;
  coll_status status = ask_table(comm, &locality, error);
  if (status != COLL_OK)
    return status;
  comm->watch.crowded = locality.crowded;
  comm->watch.mate = locality.crowded ? locality.mate : -1;
  comm->calls.plans.neighbours = locality.neighbours;
  comm->calls.plans.limits = locality.limits;
  take_locality(comm, &locality);
  return COLL_OK;
}

coll_status colli_comm_refresh_model(coll_comm *comm, coll_error *error) {
  colli_locality locality;
  COLLI_ASSERT_RANK(!comm->exec.oldest, comm->rank);
  coll_status status = ask_table(comm, &locality, error);
  if (status != COLL_OK)
    return status;
  colli_plans_clear(&comm->calls.plans);
  take_locality(comm, &locality);
  return COLL_OK;
}

/* Sets up the inputs of the choice of algorithms. */
static coll_status set_up_plans(coll_comm *comm, const coll_comm *twin, coll_error *error) {
  colli_plans *plans = &comm->calls.plans;
  plans->nranks = comm->nranks;
  plans->rank = comm->rank;
  coll_status status =
      colli_force_parse(comm->params.text[COLLI_PARAM_ALGO], &plans->chooser.force, error);
  if (status == COLL_OK)
    status = twin ? copy_locality(comm, twin, error) : find_locality(comm, error);
  if (status != COLL_OK)
    return status;
  comm->exec.shares_work = !comm->watch.crowded;
  plans->chooser.limits = &plans->limits;
  plans->chooser.model = &plans->model;
  plans->chooser.tuner = comm->family->tuner;
  return COLL_OK;
}

/* Connects with a peer, and fills in the link on first use: with many ranks, most are never used,
 * and what is not written takes no memory. */
static int connect_peer(colli_exec *exec, int peer, int channel, coll_conn **conn) {
  coll_comm *comm = exec->ctx;
  colli_link *link = &exec->links[peer];
  link->ops = colli_comm_transport(comm, peer, &link->endpoint);
  link->sent_bytes = &comm->shown->peers[peer].sent_bytes;
  return comm->child ? link->ops->connect(link->endpoint, peer, NULL, channel, conn)
                     : colli_family_connect(comm->family, peer, channel, conn);
}

/* Sets up executor and plans, and the records of each rank. */
coll_status colli_comm_set_up(coll_comm *comm, const coll_comm *twin, coll_error *error) {
  size_t n = (size_t)comm->nranks;
  colli_exec *exec = &comm->exec;
  COLLI_ASSERT_RANK(comm->table && comm->rank >= 0 && comm->rank < comm->nranks, comm->rank);
  COLLI_ASSERT_RANK(!exec->links && !comm->calls.exec, comm->rank); /* not twice */
  exec->rank = comm->rank;
  exec->nranks = comm->nranks;
  exec->kernels = colli_kernels_best();
  exec->ctx = comm;
  exec->events = &colli_comm_events;
  exec->connect = connect_peer;
  exec->id = comm->comm_id;
  exec->observers = comm->family->observers.count ? &comm->family->observers : NULL;
  comm->calls.exec = exec;
  comm->calls.memories = &comm->memory;
  comm->watch.timeout_ns = (uint64_t)comm->params.number[COLLI_PARAM_TIMEOUT_MS] * COLLI_NS_PER_MS;
  coll_status status = set_up_plans(comm, twin, error);
  if (status != COLL_OK)
    return status;
  exec->links = calloc(n, sizeof(*exec->links));
  comm->failure.wait_reports = calloc(n, sizeof(*comm->failure.wait_reports));
  comm->failure.left = calloc(n, sizeof(*comm->failure.left));
  comm->failure.lost = calloc(n, sizeof(*comm->failure.lost));
  comm->failure.silent = calloc(n, sizeof(*comm->failure.silent));
  colli_request_init(comm);
  coll_request *first = colli_request_get(comm);
  if (first)
    colli_request_put(first);
  bool shown = exec->links && colli_comm_show(comm);
  bool p2p = colli_p2p_init(&comm->p2p, exec, &colli_comm_p2p_events);
  if (!p2p || !shown || !comm->failure.wait_reports || !comm->failure.left || !comm->failure.lost ||
      !comm->failure.silent || !first)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks",
                           comm->nranks);
  return COLL_OK;
}

/* Makes slots fit into the memory of hosts that have little, and says so; false if out of memory.
 */
static bool fit_slots(coll_comm *comm, colli_limits *limits) {
  const colli_family *family = comm->family;
  if (!colli_shm_capacity_limited(comm->table))
    return true;
  colli_rank_info *all = colli_rank_table_unpack(comm->table);
  if (!all)
    return false;
  const size_t wanted = limits->slot_bytes;
  limits->slot_bytes = colli_shm_capacity_slots(all, comm->nranks, family->shm_bits, wanted);
  bool opened = false; /* otherwise the reason was already logged, or shm is not wanted */
  for (int i = 0; i < family->nports; i++)
    opened |= family->shm_bits & 1u << i && family->ports[i].endpoint;
  if (opened)
    colli_shm_capacity_explain(all, comm->nranks, comm->rank, family->shm_bits,
                               &family->shm_capacity, wanted, limits->slot_bytes, &comm->log);
  COLLI_ASSERT_RANK(limits->slot_bytes > 0 && limits->slot_bytes <= wanted, comm->rank);
  free(all);
  return true;
}

/* Determines the size of slots, which depends on the slowest link and on the memory for them. */
static coll_status settle_slots(coll_comm *comm, coll_error *error) {
  colli_family *family = comm->family;
  colli_limits *limits = &comm->calls.plans.limits;
  const colli_rank_info first = colli_rank_at(comm->table, 0);
  if (first.slot_bytes)
    limits->slot_bytes = first.slot_bytes;
  if (!fit_slots(comm, limits))
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks",
                           comm->nranks);
  limits->slot_count = first.slot_count;
  limits->chunk_bytes = limits->slot_bytes * limits->slot_count / 2;
  comm->exec.slot_bytes = limits->slot_bytes;
  for (int i = 0; i < family->nports; i++)
    family->ports[i].env.slot_bytes = limits->slot_bytes;
  return COLL_OK;
}

/* Starts the progress thread if it is requested and there are other ranks. */
static coll_status start_progress(coll_comm *comm, coll_error *error) {
  bool wanted = comm->params.number[COLLI_PARAM_PROGRESS] == COLL_PROGRESS_ON;
  if (!wanted || comm->nranks == 1 || comm->world.pause)
    return COLL_OK;
  return colli_progress_start(comm->family, error);
}

/* Second half of creation: takes ownership of the table and the control links. */
coll_status colli_comm_join(coll_comm **out, colli_rank_table *table, colli_ctrl *ctrl,
                            coll_error *error) {
  coll_comm *comm = *out;
  colli_family *family = comm->family;
  COLLI_ASSERT_RANK(comm->uid == 0 && !comm->table, comm->rank);
  coll_status status = colli_family_join(family, table, ctrl, error);
  comm->table = family->table;
  if (status == COLL_OK)
    status = colli_comm_set_up(comm, NULL, error);
  if (status == COLL_OK)
    status = settle_slots(comm, error);
  if (status == COLL_OK)
    status = start_progress(comm, error);
  if (status == COLL_OK) {
    colli_family_receive_visits(family, comm);
    return COLL_OK;
  }
  if (error && comm->table) {
    coll_error record = *error;
    if (record.rank < 0) {
      record.rank = comm->rank;
      memcpy(record.host, comm->host, sizeof(record.host));
    }
    comm->log.level = COLLI_LOG_NONE; /* the call that creates says it once */
    colli_comm_fail(comm, &record);
  }
  coll_comm_destroy(out);
  return status;
}

/* Frees what belongs to one communicator. */
void colli_comm_free(coll_comm *comm) {
  COLLI_ASSERT_RANK(!comm->exec.oldest && !comm->exec.newest, comm->rank);
  colli_fork_guard_remove(&comm->entry.guard);
  colli_shrink_close(comm);
  colli_plans_free(&comm->calls.plans);
  colli_request_free_all(comm);
  colli_group_free(&comm->calls.group);
  colli_p2p_free(&comm->p2p);
  if (comm->own_table)
    colli_rank_table_free(comm->table);
  free(comm->exec.links);
  free(comm->failure.wait_reports);
  free(comm->failure.left);
  free(comm->failure.lost);
  free(comm->failure.silent);
  free(comm->map.in_base);
  free(comm->map.from_base);
  free(comm->map.numbers);
  free(comm->map.origins);
  free(comm);
}

void colli_levels_free(coll_comm *comm, colli_levels *levels) {
  colli_call_pause(comm);
  coll_comm_destroy(&levels->within);
  coll_comm_destroy(&levels->across);
  colli_call_resume(comm);
  free(levels->member);
  free(levels);
}

/* Destroys the parts of a communicator with levels. `passed`: its streams have passed; else those
 * of the parts are not waited for again, and may still use the rooms. */
static void destroy_parts(coll_comm *comm, bool passed) {
  colli_levels *levels = comm->levels;
  if (!levels)
    return;
  comm->levels = NULL;
  if (!passed) {
    levels->within->watch.timeout_ns = levels->across->watch.timeout_ns = 0;
    if (levels->within->streams) /* its own end stops them, and keeps their memory */
      levels->within->streams->lost = true;
    else
      levels->within->direct = NULL;
  }
  colli_levels_free(comm, levels);
}

/* Takes a communicator apart; a thread is inside it. */
static coll_status take_apart(coll_comm *comm) {
  colli_family *family = comm->family;
  colli_attrs_free(comm);
  const bool passed = colli_stream_finish(comm);
  destroy_parts(comm, passed);
  if (!passed) {
    colli_log_write(&comm->log, COLLI_LOG_ERROR,
                    "coll_comm_destroy(): streams have not come to calls that were put into them, "
                    "or graphs that have such calls still exist; they go on without a result, and "
                    "their memory is not given back");
    family->gpu = NULL;
    comm->direct = NULL;
  }
  colli_direct_leave(comm);
  const bool waits = comm->uid == 0 || comm->exec.oldest || comm->p2p.busy > 0;
  if (waits && comm->shown && comm->failure.wait_reports && comm->failure.left &&
      comm->failure.lost && comm->failure.silent) /* else it was never made */
    colli_notice_poll(family);
  const bool delivered = colli_p2p_linger(comm);
  if (!delivered)
    colli_log_write(
        &comm->log, COLLI_LOG_ERROR,
        "coll_comm_destroy(): messages were not delivered, because their receivers were "
        "in no call for long, or have not received earlier ones");
  colli_family_hide_base(family, comm);
  bool last = colli_family_leave(family, comm);
  if (last)
    colli_movers_remove(&family->mover);
  colli_exec_disconnect(&comm->exec); /* before buffers of operations in flight are released */
  colli_engine_cancel(&comm->exec, &comm->p2p, COLL_ERR_ABORTED);
  colli_completion_deliver(family);
  colli_request_abandon_all(comm);
  colli_memory_free_all(comm);
  colli_mux_close(comm->child);
  if (family->mux)
    colli_mux_progress(family->mux);
  colli_comm_hide(comm);
  colli_call_leave(comm); /* another thread may now free the family, if this was not its last */
  colli_comm_free(comm);
  if (last) {
    colli_progress_stop(family);
    colli_outsider_leave(family);
    colli_family_free(family);
  }
  return delivered ? COLL_OK : COLL_ERR_TIMEOUT;
}

coll_status coll_comm_destroy(coll_comm **out) {
  if (!out)
    return COLL_ERR_INVALID_ARGUMENT;
  if (!*out)
    return COLL_OK;
  coll_status status = colli_call_enter(*out);
  if (status != COLL_OK)
    return status;
  coll_comm *comm = *out;
  *out = NULL;
  return take_apart(comm);
}
