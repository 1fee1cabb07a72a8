/* assemble.c: makes a communicator from its parts, and takes it apart. */
#include "libcoll/comm/assemble.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/places.h"
#include "topology/topology.h"
#include "transports/hook/fault.h"

#define GOODBYE_MS 500 /* how long a leaving rank waits for its last words to arrive */

static uint64_t real_now_ns(void *ctx) {
  (void)ctx;
  return colli_now_ns();
}

const colli_world colli_world_real = {.now_ns = real_now_ns};

static const char *param_text(void *ctx, const char *name) {
  const char *text = colli_params_text(&((coll_comm *)ctx)->params, name);
  return text ? text : "";
}

/* The clock as transports ask for it: with the communicator, not the world. */
static uint64_t env_now_ns(void *ctx) {
  coll_comm *comm = ctx;
  return comm->world.now_ns(comm->world.ctx);
}

/* Whether a comma-separated list names a word; an empty list names everything. */
static bool listed(const char *list, const char *word) {
  size_t length = strlen(word);
  if (!*list)
    return true;
  for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
    if (strncmp(at, word, length) == 0 && (at[length] == ',' || !at[length]))
      return true;
  return false;
}

/* Refuses names in COLL_TRANSPORT that are no transport. */
static coll_status check_transport_names(const colli_assembly *assembly, const char *list,
                                         coll_error *error) {
  char copy[256], known[128] = "";
  for (int i = 0; assembly->transports[i]; i++) {
    size_t used = strlen(known);
    snprintf(known + used, sizeof(known) - used, "%s%s", used ? ", " : "",
             assembly->transports[i]->name);
  }
  snprintf(copy, sizeof(copy), "%s", list);
  char *rest = NULL;
  for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest)) {
    bool found = false;
    for (int i = 0; assembly->transports[i]; i++)
      found |= strcmp(assembly->transports[i]->name, word) == 0;
    if (!found)
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "COLL_TRANSPORT=%s: there is no transport '%s'; known: %s", list, word,
                             known);
  }
  return COLL_OK;
}

/* Opens one transport into port `index` of the table; a machine without it is no error yet. */
static void open_port(coll_comm *comm, const colli_assembly *assembly, int index,
                      colli_rank_info *info) {
  const coll_transport_ops *ops = assembly->transports[index];
  colli_port *port = &comm->ports[index];
  if (!listed(comm->params.text[COLLI_PARAM_TRANSPORT], ops->name))
    return;
  const coll_transport_ops *faulty =
      *comm->params.text[COLLI_PARAM_FAULT] ? colli_fault_over(ops) : NULL;
  port->ops = faulty ? faulty : ops;
  port->env = (coll_transport_env){
      .size = sizeof(port->env),
      .ctx = comm,
      .now_ns = env_now_ns,
      .fail = colli_comm_transport_failed,
      .param = param_text,
      .rank = comm->rank,
      .nranks = comm->nranks,
      .host_id = info->host_id,
      .comm_id = comm->comm_id,
      .slot_bytes = (size_t)comm->params.number[COLLI_PARAM_SLOT_BYTES],
      .slot_count = (unsigned)comm->params.number[COLLI_PARAM_SLOT_COUNT],
      .device = assembly->world.device,
  };
  memcpy(port->env.secret, assembly->secret, COLL_SECRET_BYTES);
  int status = port->ops->open(&port->env, &port->endpoint);
  if (status == COLL_T_DONE)
    status = port->ops->describe(port->endpoint, info->blob[index]);
  if (status == COLL_T_DONE) {
    info->transports |= 1u << index;
    return;
  }
  if (comm->reported.status == COLL_OK)
    colli_error_set(&comm->reported, (coll_status)status, "create", "transport %s cannot be used",
                    ops->name);
  colli_log_write(&comm->log, COLLI_LOG_WARN, "transport %s is left out: %s", ops->name,
                  comm->reported.message);
  if (port->endpoint)
    port->ops->close(port->endpoint);
  port->endpoint = NULL;
}

/* Fills in what the others must know of this rank. */
static void describe_self(coll_comm *comm, colli_rank_info *info) {
  memset(info, 0, sizeof(*info));
  memcpy(info->host, comm->host, sizeof(info->host));
  info->host_id = colli_host_id(comm->params.text[COLLI_PARAM_HOST_ID]);
  info->pid = getpid();
  if (comm->params.from_env[COLLI_PARAM_SLOT_BYTES])
    info->slot_bytes = (uint32_t)comm->params.number[COLLI_PARAM_SLOT_BYTES];
  info->slot_count = (uint32_t)comm->params.number[COLLI_PARAM_SLOT_COUNT];
  info->timeout_ms = (uint32_t)comm->params.number[COLLI_PARAM_TIMEOUT_MS];
  colli_places_self(info);
}

/* First half: opens the endpoints and fills in *info. */
coll_status colli_comm_open(const colli_assembly *assembly, coll_comm **out, colli_rank_info *info,
                            coll_error *error) {
  *out = NULL;
  const colli_params *params = assembly->params;
  coll_status status = check_transport_names(assembly, params->text[COLLI_PARAM_TRANSPORT], error);
  if (status == COLL_OK)
    status = colli_plans_check_force(params->text[COLLI_PARAM_ALGO], error);
  if (status != COLL_OK)
    return status;
  coll_comm *comm = calloc(1, sizeof(*comm));
  if (!comm)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for a communicator");
  comm->rank = assembly->rank;
  comm->nranks = assembly->nranks;
  comm->comm_id = assembly->comm_id;
  comm->exec.busy_peers = -1;
  comm->watch.spin = COLLI_SPIN_MOST;
  colli_params_copy(&comm->params, params);
  comm->log = (colli_log){(colli_log_level)colli_log_level_parse(params->text[COLLI_PARAM_LOG]),
                          comm->rank};
  comm->world = assembly->world;
  comm->timeout_ns = (uint64_t)params->number[COLLI_PARAM_TIMEOUT_MS] * COLLI_NS_PER_MS;
  colli_error_clear(&comm->error);
  colli_error_clear(&comm->reported);
  gethostname(comm->host, sizeof(comm->host) - 1);
  describe_self(comm, info);
  for (int i = 0; comm->nranks > 1 && assembly->transports[i]; i++) {
    open_port(comm, assembly, i, info);
    comm->nports = i + 1;
  }
  if (comm->nranks > 1 && info->transports == 0) {
    if (error)
      colli_error_copy(error, &comm->reported);
    status = comm->reported.status;
    coll_comm_destroy(&comm);
    return status;
  }
  *out = comm;
  return COLL_OK;
}

/* Chooses the transport for one peer: the first that both have and that reaches. */
static coll_status choose_transport(coll_comm *comm, int peer, coll_error *error) {
  const colli_rank_info *self = &comm->table[comm->rank], *other = &comm->table[peer];
  char reasons[256] = "";
  for (int i = 0; i < comm->nports; i++) {
    colli_port *port = &comm->ports[i];
    coll_link link = {0};
    if (!port->endpoint)
      continue;
    if (!(other->transports & 1u << i))
      snprintf(link.reason, sizeof(link.reason), "rank %d does not have it", peer);
    else if (port->ops->reach(self->blob[i], other->blob[i], &link)) {
      colli_link *to = &comm->exec.links[peer];
      to->ops = port->ops;
      to->endpoint = port->endpoint;
      to->blob = other->blob[i];
      return COLL_OK;
    }
    size_t used = strlen(reasons);
    snprintf(reasons + used, sizeof(reasons) - used, "%s%s: %s", used ? "; " : "", port->ops->name,
             link.reason);
  }
  return colli_error_set(error, COLL_ERR_UNREACHABLE, "create",
                         "no transport joins rank %d (host %s) and rank %d (host %s): %s; check "
                         "COLL_TRANSPORT and COLL_TCP_IFNAME on both",
                         comm->rank, comm->host, peer, other->host, reasons);
}

/* Checks what must be equal on all ranks, and chooses a transport for each peer. */
static coll_status meet_peers(coll_comm *comm, coll_error *error) {
  const colli_rank_info *self = &comm->table[comm->rank];
  for (int peer = 0; peer < comm->nranks; peer++) {
    const colli_rank_info *other = &comm->table[peer];
    if (other->slot_bytes != self->slot_bytes || other->slot_count != self->slot_count)
      return colli_error_set(
          error, COLL_ERR_MISMATCH, "create",
          "rank %d (host %s) has COLL_SLOT_BYTES=%u COLL_SLOT_COUNT=%u, rank %d (host %s) has %u "
          "and %u (0: not set); set them alike on all ranks",
          comm->rank, comm->host, self->slot_bytes, self->slot_count, peer, other->host,
          other->slot_bytes, other->slot_count);
    comm->exec.links[peer].next_busy = -1;
    if (peer == comm->rank)
      continue;
    coll_status status = choose_transport(comm, peer, error);
    if (status != COLL_OK)
      return status;
  }
  return COLL_OK;
}

/* Sets up executor and plans for the table of ranks. */
static void set_up(coll_comm *comm) {
  colli_exec *exec = &comm->exec;
  exec->rank = comm->rank;
  exec->nranks = comm->nranks;
  exec->kernels = colli_kernels_best();
  exec->ctx = comm;
  exec->events = &colli_comm_events;
  colli_plans *plans = &comm->plans;
  plans->nranks = comm->nranks;
  plans->rank = comm->rank;
  plans->force = comm->params.text[COLLI_PARAM_ALGO];
  colli_limits *limits = &plans->limits;
  const char *slowest;
  comm->crowded = colli_places_model(comm->table, comm->nranks, comm->rank, comm->ports,
                                     comm->nports, &plans->model, &slowest);
  colli_limits_default(slowest, limits);
  if (comm->table[0].slot_bytes)
    limits->slot_bytes = comm->table[0].slot_bytes;
  limits->slot_count = comm->table[0].slot_count;
  limits->chunk_bytes = limits->slot_bytes * limits->slot_count / 2;
  exec->slot_bytes = limits->slot_bytes;
  for (int i = 0; i < comm->nports; i++)
    comm->ports[i].env.slot_bytes = limits->slot_bytes;
}

/* Second half: takes over the control links and the table. */
coll_status colli_comm_join(coll_comm **out, const colli_rank_info *table, colli_ctrl *ctrl,
                            coll_error *error) {
  coll_comm *comm = *out;
  size_t n = (size_t)comm->nranks;
  comm->ctrl = ctrl;
  comm->table = malloc(n * sizeof(*table));
  comm->exec.links = calloc(n, sizeof(*comm->exec.links));
  comm->stalled = calloc(n, sizeof(*comm->stalled));
  comm->left = calloc(n, sizeof(*comm->left));
  comm->lost = calloc(n, sizeof(*comm->lost));
  coll_status status = COLL_OK;
  if (!comm->table || !comm->exec.links || !comm->stalled || !comm->left || !comm->lost)
    status = colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "no memory for %d ranks",
                             comm->nranks);
  if (status == COLL_OK) {
    memcpy(comm->table, table, n * sizeof(*table));
    set_up(comm);
    status = meet_peers(comm, error);
  }
  if (status == COLL_OK) {
    coll_request *first = colli_request_get(comm, true);
    if (first)
      colli_request_put(first);
    return COLL_OK;
  }
  if (error && comm->table) {
    coll_error record = *error;
    colli_comm_fail(comm, &record);
  }
  coll_comm_destroy(out);
  return status;
}

/* Tells the neighbours that this rank leaves in good order. */
static void say_goodbye(coll_comm *comm) {
  int neighbours[8];
  int count = colli_ctrl_neighbours(comm->ctrl, neighbours);
  colli_ctrl_msg msg = {
      .kind = COLLI_CTRL_GOODBYE, .origin = comm->rank, .serial = ++comm->serial, .peer = -1};
  for (int i = 0; i < count; i++)
    colli_ctrl_send(comm->ctrl, neighbours[i], &msg);
}

coll_status coll_comm_destroy(coll_comm **out) {
  if (!out)
    return COLL_ERR_INVALID_ARGUMENT;
  coll_comm *comm = *out;
  if (!comm)
    return COLL_OK;
  *out = NULL;
  if (comm->ctrl && comm->failed == COLL_OK)
    colli_comm_listen(comm);
  colli_exec_cancel(&comm->exec, COLL_ERR_ABORTED);
  if (comm->ctrl)
    say_goodbye(comm);
  colli_exec_disconnect(&comm->exec);
  for (int i = 0; i < comm->nports; i++)
    if (comm->ports[i].endpoint)
      comm->ports[i].ops->close(comm->ports[i].endpoint);
  if (comm->ctrl)
    colli_ctrl_close(comm->ctrl, GOODBYE_MS);
  colli_shrink_close(comm);
  colli_memory_free_all(comm);
  colli_plans_free(&comm->plans);
  colli_request_free_all(comm);
  colli_group_free(&comm->group);
  free(comm->exec.links);
  free(comm->stalled);
  free(comm->left);
  free(comm->lost);
  free(comm->table);
  explicit_bzero(comm->params.storage, sizeof(comm->params.storage));
  for (int i = 0; i < COLLI_MAX_TRANSPORTS; i++)
    explicit_bzero(comm->ports[i].env.secret, COLL_SECRET_BYTES);
  free(comm);
  return COLL_OK;
}
