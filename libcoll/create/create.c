/* create.c: the public ways to make a communicator: by id, and local. */
#include "libcoll/create/create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/assemble.h"
#include "libcoll/create/levels.h"
#include "libcoll/create/measure_links.h"
#include "libcoll/net/auth.h"
#include "libcoll/net/door.h"
#include "libcoll/progress/enter.h"
#include "libcoll/tuning/levels_file.h"
#include "libcoll/wireup/listeners.h"
#include "transports/registry.h"

/* Opens one rank's endpoints, and fills in *info. */
static coll_status open_rank(colli_settings *settings, const colli_id *id, int nranks, int rank,
                             coll_comm **comm, colli_rank_info *info, coll_error *error) {
  _Static_assert(COLLI_TRANSPORTS_MAX <= COLLI_MAX_TRANSPORTS, "a record has room for all");
  _Static_assert(sizeof("shm,verbs,tcp") + 3 * (COLLI_TRANSPORT_NAME_MAX + 1) <=
                     sizeof(((colli_rank_info *)0)->transport_names),
                 "a record has room for all names");
  colli_params *params = &settings->params;
  colli_transport_list transports;
  coll_status status = colli_levels_file_use(params, error);
  if (status == COLL_OK)
    status = colli_transports_list(params->text[COLLI_PARAM_TRANSPORT_PATH],
                                   params->text[COLLI_PARAM_TRANSPORT], &transports, error);
  if (status != COLL_OK)
    return status;
  colli_assembly assembly = {.rank = rank,
                             .nranks = nranks,
                             .comm_id = id->comm_id,
                             .secret = id->secret,
                             .params = params,
                             .inherited = settings->inherited,
                             .time = settings->time,
                             .world = colli_world_real,
                             .apart = nranks > 1,
                             .transports = transports.ops};
  return colli_comm_open(&assembly, comm, info, error);
}

/* Checks that there is memory for handshake proofs. Without it, each side would later conclude that
 * the other does not know the secret or is missing. */
static coll_status try_proofs(const colli_id *id, coll_error *error) {
  uint8_t mac[COLLI_MAC_BYTES];
  if (!id->secret || colli_hmac(id->secret->bytes, "", 0, mac))
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                         "out of memory for the handshakes with other ranks; see ulimit -v");
}

/* Shares GPU memory if all ranks may. If that fails, calls in streams are staged; if a rank died
 * meanwhile, the next call tells. */
static void use_gpus(coll_comm *comm, uint64_t timeout_ns) {
  const uint64_t usual_ns = comm->watch.timeout_ns;
  for (int rank = 0; rank < comm->nranks; rank++)
    if (!colli_rank_at(comm->table, rank).gpu) {
      if (colli_rank_at(comm->table, comm->rank).gpu)
        colli_log_write(&comm->log, COLLI_LOG_INFO,
                        "calls in streams are staged through host memory: rank %d has no CUDA "
                        "context, or COLL_GPU_MODE=staged",
                        rank);
      return;
    }
  if (colli_call_enter(comm) != COLL_OK)
    return;
  comm->watch.timeout_ns = usual_ns > timeout_ns ? usual_ns : timeout_ns; /* to compile kernels */
  if (colli_levels_use_gpu(comm) != COLL_OK && comm->failure.status == COLL_OK) {
    colli_log_write(&comm->log, COLLI_LOG_INFO, "%s", comm->failure.error.message);
    colli_error_clear(&comm->failure.error);
  }
  comm->watch.timeout_ns = usual_ns;
  colli_call_leave(comm);
}

/* Sets for how long a call may wait; returns how long it was. */
static uint64_t set_timeout(coll_comm *comm, uint64_t timeout_ns) {
  const uint64_t usual_ns = comm->watch.timeout_ns;
  if (colli_call_enter(comm) == COLL_OK) { /* a progress thread reads it, too */
    comm->watch.timeout_ns = timeout_ns;
    colli_call_leave(comm);
  }
  return usual_ns;
}

/* Measures links if a rank wants that, about until the deadline. If a rank dies or stops meanwhile,
 * all have joined, and the next call tells. */
static void measure_links(coll_comm *comm, uint64_t deadline_ns) {
  const uint64_t usual_ns = comm->watch.timeout_ns, now_ns = colli_now_ns();
  const uint64_t least_ns = now_ns + COLLI_MEASURE_NS;
  const uint64_t left_ns = (deadline_ns > least_ns ? deadline_ns : least_ns) - now_ns;
  coll_error error = COLL_ERROR_INIT;
  if (!colli_measure_is_wanted(comm))
    return;
  set_timeout(comm, left_ns < usual_ns ? left_ns : usual_ns);
  if (colli_measure_links(comm, COLLI_MEASURE_NS, NULL, &error) != COLL_OK)
    colli_log_write(&comm->log, COLLI_LOG_WARN, "links between hosts were not measured: %s",
                    error.message);
  set_timeout(comm, usual_ns);
}

/* Creates a communicator by meeting the other ranks where the id says. */
coll_status colli_create(coll_comm **comm, const colli_id *id, int nranks, int rank,
                         colli_settings *settings, colli_lifelines *lifelines) {
  COLLI_ASSERT_RANK(nranks >= 1 && rank >= 0 && rank < nranks, rank);
  coll_error *error = &settings->error;
  colli_lifelines none = {.listen_fd = -1};
  settings->log.rank = rank;
  colli_rank_info mine;
  colli_rank_table *table = NULL;
  colli_ctrl *ctrl = NULL;
  long long timeout_ms = settings->params.number[COLLI_PARAM_CREATE_TIMEOUT_MS];
  if (lifelines && lifelines->timeout_ms > 0)
    timeout_ms = lifelines->timeout_ms;
  uint64_t deadline_ns = colli_now_ns() + (uint64_t)timeout_ms * COLLI_NS_PER_MS;
  coll_status status = try_proofs(id, error);
  if (status == COLL_OK)
    status = open_rank(settings, id, nranks, rank, comm, &mine, error);
  if (status != COLL_OK) {
    colli_id_close(id);
    return status;
  }
  colli_lifelines *used = lifelines ? lifelines : &none;
  used->time = colli_trace_time((*comm)->family->trace);
  status = colli_bootstrap(id, rank, nranks, &mine, &settings->params, deadline_ns, &settings->log,
                           used, &table, &ctrl, error);
  colli_secret *known = lifelines ? lifelines->keep : id->secret;
  if (status == COLL_OK && !known && used->listen_fd >= 0)
    colli_fd_close(used->listen_fd);
  else if (status == COLL_OK && known && nranks > 1) {
    colli_door_expect(used->listen_fd, known->bytes, COLLI_HELLO_SHRINK);
    (*comm)->shrink.listener = colli_shrink_listener_create(used->listen_fd, known);
  }
  if (status != COLL_OK) {
    coll_comm_destroy(comm);
    return status;
  }
  COLLI_ASSERT_RANK(table && ctrl, rank);
  colli_trace_set_time((*comm)->family->trace, &used->time);
  status = colli_comm_join(comm, table, ctrl, error);
  if (status == COLL_OK && !lifelines)
    measure_links(*comm, deadline_ns);
  if (status == COLL_OK && !lifelines)
    use_gpus(*comm, (uint64_t)timeout_ms * COLLI_NS_PER_MS);
  return status;
}

/* Closes the listener that an id holds in this process. */
void colli_id_close(const colli_id *id) {
  if (id->listen_fd >= 0)
    colli_fd_close(id->listen_fd);
}

coll_status coll_unique_id(coll_id *out, const coll_config *config) {
  if (!out)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_settings settings;
  colli_id id;
  memset(out, 0, sizeof(*out));
  coll_status status = colli_settings_load(&settings, config);
  if (status == COLL_OK)
    status = colli_id_make(&id, &settings.params, &settings.error);
  if (status != COLL_OK)
    return colli_settings_finish(&settings, status);
  colli_id_pack(&id, out);
  colli_door_expect(id.listen_fd, id.secret->bytes, COLLI_HELLO_CHECKIN);
  if (!colli_listener_keep(id.comm_id, colli_id_check(out), id.listen_fd)) {
    colli_id_close(&id);
    explicit_bzero(out, sizeof(*out));
    status = colli_error_set(&settings.error, COLL_ERR_NO_MEMORY, "create",
                             "out of memory for the listener of an id");
  }
  colli_id_release(&id);
  return colli_settings_finish(&settings, status);
}

coll_status coll_unique_id_release(coll_id *out) {
  if (!out)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_id id;
  if (colli_id_unpack(out, &id, NULL) != COLL_ERR_INVALID_ARGUMENT) {
    id.listen_fd = colli_listener_take(id.comm_id, colli_id_check(out));
    colli_id_close(&id);
    colli_id_release(&id);
  }
  explicit_bzero(out, sizeof(*out));
  return COLL_OK;
}

/* Refuses an invalid number of ranks. */
static coll_status check_nranks(int nranks, coll_error *error) {
  if (nranks >= 1 && nranks <= COLLI_MAX_RANKS)
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                         "nranks is %d; it must be 1 .. %d", nranks, COLLI_MAX_RANKS);
}

coll_status coll_comm_create(coll_comm **comm, const coll_id *id_bytes, int nranks, int rank,
                             const coll_config *config) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  *comm = NULL;
  colli_settings settings;
  colli_id id = {.listen_fd = -1};
  coll_status status = colli_settings_load(&settings, config);
  if (status == COLL_OK && !id_bytes)
    status = colli_error_set(&settings.error, COLL_ERR_INVALID_ARGUMENT, "create", "id is NULL");
  if (status == COLL_OK)
    status = check_nranks(nranks, &settings.error);
  if (status == COLL_OK && (rank < 0 || rank >= nranks))
    status = colli_error_set(&settings.error, COLL_ERR_INVALID_ARGUMENT, "create",
                             "rank %d is not in 0 .. %d", rank, nranks - 1);
  if (status == COLL_OK) {
    status = colli_id_unpack(id_bytes, &id, &settings.error);
    if (status != COLL_ERR_INVALID_ARGUMENT)
      id.listen_fd = colli_listener_take(id.comm_id, colli_id_check(id_bytes));
    if (status == COLL_OK)
      status = colli_create(comm, &id, nranks, rank, &settings, NULL);
    else
      colli_id_close(&id);
  }
  colli_id_release(&id);
  return colli_settings_finish(&settings, status);
}

/* Threads have one clock. */
static void share_time(coll_comm *comm, coll_comm *root) {
  const colli_shared_time time = colli_trace_time(root->family->trace);
  colli_trace_set_time(comm->family->trace, &time);
}

/* Opens, and then joins, `nranks` communicators of this process. */
coll_status colli_create_local(coll_comm **comms, int nranks, colli_settings *const *settings,
                               coll_error *error) {
  COLLI_ASSERT(nranks >= 1 && nranks <= COLLI_MAX_RANKS);
  colli_id id;
  memset(comms, 0, (size_t)nranks * sizeof(*comms));
  coll_status status = colli_id_fresh(&id, error);
  if (status != COLL_OK)
    return status;
  colli_rank_info *all = calloc((size_t)nranks, sizeof(*all));
  colli_ctrl **ctrls = calloc((size_t)nranks, sizeof(*ctrls));
  if (!all || !ctrls)
    status =
        colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks", nranks);
  for (int rank = 0; status == COLL_OK && rank < nranks; rank++)
    status = open_rank(settings[rank], &id, nranks, rank, &comms[rank], &all[rank], error);
  for (int rank = 0; status == COLL_OK && rank < nranks; rank++)
    share_time(comms[rank], comms[0]);
  if (status == COLL_OK)
    status = colli_ctrl_create_local(ctrls, nranks, true, error);
  bool linked = status == COLL_OK;
  for (int rank = 0; linked && rank < nranks; rank++) {
    if (status == COLL_OK)
      status =
          colli_comm_join(&comms[rank], colli_rank_table_create(all, nranks), ctrls[rank], error);
    else
      colli_ctrl_close(ctrls[rank], 0);
  }
  for (int rank = 0; status != COLL_OK && rank < nranks; rank++)
    coll_comm_destroy(&comms[rank]);
  free(all);
  free(ctrls);
  colli_id_release(&id);
  return status;
}

/* Gives the communicators of one process a meeting point for later shrinks. */
static coll_status open_meeting(coll_comm **comms, int nranks, coll_error *error) {
  colli_meeting *meeting = colli_meeting_create(nranks);
  if (!meeting)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                           "out of memory for a meeting point of %d ranks", nranks);
  for (int rank = 0; rank < nranks; rank++) {
    COLLI_ASSERT_RANK(comms[rank]->rank == rank && !comms[rank]->shrink.meeting, rank);
    comms[rank]->shrink.meeting = meeting;
  }
  return COLL_OK;
}

/* Makes the communicators of all threads with the same settings, and their meeting point. */
static coll_status create_for_threads(coll_comm **comms, int nranks, colli_settings *settings) {
  colli_settings **each = calloc((size_t)nranks, sizeof(*each));
  if (!each)
    return colli_error_set(&settings->error, COLL_ERR_NO_MEMORY, "create",
                           "out of memory for %d ranks", nranks);
  for (int rank = 0; rank < nranks; rank++)
    each[rank] = settings;
  coll_status status = colli_create_local(comms, nranks, each, &settings->error);
  free(each);
  if (status == COLL_OK)
    status = open_meeting(comms, nranks, &settings->error);
  for (int rank = 0; status != COLL_OK && rank < nranks; rank++)
    coll_comm_destroy(&comms[rank]);
  return status;
}

coll_status coll_comm_create_local(coll_comm **comms, int nranks, const coll_config *config) {
  if (!comms)
    return COLL_ERR_INVALID_ARGUMENT;
  colli_settings settings;
  coll_status status = colli_settings_load(&settings, config);
  if (status == COLL_OK)
    status = check_nranks(nranks, &settings.error);
  if (status == COLL_OK)
    status = create_for_threads(comms, nranks, &settings);
  return colli_settings_finish(&settings, status);
}
