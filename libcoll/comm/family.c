/* family.c: the resources that communicators share: opened before the first of them, closed after
 * the last. */
#include "libcoll/comm/family.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/comm/mux/mux.h"
#include "libcoll/comm/notice_send.h"
#include "libcoll/comm/report.h"
#include "libcoll/comm/shm_capacity.h"
#include "libcoll/comm/shown.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/calibration.h"
#include "libcoll/tuning/cpu_list.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/link_speed.h"
#include "libcoll/tuning/locality.h"
#include "topology/topology.h"

#define GOODBYE_MS 500 /* how long a leaving rank waits for its last messages to arrive */

static const char *param_text(void *ctx, const char *name) {
  const char *text = colli_params_text(&((colli_family *)ctx)->params, name);
  return text ? text : "";
}

/* The clock for transports, which pass the family, not the world. */
static uint64_t env_now_ns(void *ctx) {
  colli_family *family = ctx;
  return family->world.now_ns(family->world.ctx);
}

/* Writes a transport's message to the log. */
static void env_note(void *ctx, const char *text) {
  const colli_family *family = ctx;
  colli_log_write(&family->log, COLLI_LOG_WARN, "messages are copied once more than need be: %s",
                  text);
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

/* Writes the names of transports, "shm,verbs,tcp". */
static void name_transports(const coll_transport_ops *const *transports, char *text, size_t bytes) {
  *text = '\0';
  for (int i = 0; transports[i]; i++) {
    size_t used = strlen(text);
    snprintf(text + used, bytes - used, "%s%s", used ? "," : "", transports[i]->name);
  }
}

/* Refuses unknown names in COLL_TRANSPORT. */
static coll_status check_transport_names(const colli_assembly *assembly, const char *list,
                                         coll_error *error) {
  char copy[256], known[sizeof(((colli_rank_info *)0)->transport_names)];
  name_transports(assembly->transports, known, sizeof(known));
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

/* What a rank has drawn for its keys. */
static void read_nonce(void *ctx, int rank, uint8_t nonce[COLLI_NONCE_BYTES]) {
  const colli_rank_info info = colli_rank_at(((colli_family *)ctx)->table, rank);
  memcpy(nonce, info.nonce, COLLI_NONCE_BYTES);
}

/* Whether nobody on the network can read what a transport sends if COLL_TLS is 1. */
static bool is_private(const coll_transport_ops *ops) {
  return ops->caps & (COLL_CAP_ENCRYPTS | COLL_CAP_SHARED_MEMORY);
}

/* Opens one transport into entry `index` of the table. A machine without it is not an error yet. */
static void open_port(colli_family *family, const colli_assembly *assembly, int index,
                      colli_rank_info *info) {
  const coll_transport_ops *ops = assembly->transports[index];
  colli_port *port = &family->ports[index];
  if (!listed(family->params.text[COLLI_PARAM_TRANSPORT], ops->name))
    return;
  const coll_transport_ops *faulty =
      *family->params.text[COLLI_PARAM_FAULT] ? colli_fault_over(ops, &port->fault) : NULL;
  port->ops = colli_check_over(faulty ? faulty : ops,
                               (colli_data_check)family->params.number[COLLI_PARAM_DATA_CHECK],
                               read_nonce, &port->check);
  port->env = (coll_transport_env){
      .size = sizeof(port->env),
      .ctx = family,
      .now_ns = env_now_ns,
      .fail = colli_family_report,
      .param = param_text,
      .rank = family->rank,
      .nranks = family->nranks,
      .host_id = info->host_id,
      .machine_id = info->machine_id,
      .comm_id = family->comm_id,
      .secret = family->secret->bytes,
      .slot_bytes = (size_t)family->params.number[COLLI_PARAM_SLOT_BYTES],
      .slot_count = (unsigned)family->params.number[COLLI_PARAM_SLOT_COUNT],
      .device = assembly->world.device,
      .note = env_note,
      .ops = port->ops,
      .rails = colli_family_show_rails,
      .gpu = *family->gpu_bus ? family->gpu_bus : NULL,
  };
  int status = COLL_ERR_UNSUPPORTED;
  if (!family->params.number[COLLI_PARAM_TLS] || is_private(ops))
    status = port->ops->open(&port->env, &port->endpoint);
  else
    colli_error_set(&family->reported, COLL_ERR_UNSUPPORTED, "create",
                    "transport %s does not encrypt, so COLL_TLS=1 leaves it out", ops->name);
  if (status == COLL_T_DONE)
    status = port->ops->describe(port->endpoint, info->blob[index]);
  if (status == COLL_T_DONE) {
    info->transports |= 1u << index;
    return;
  }
  if (family->reported.status == COLL_OK)
    colli_error_set(&family->reported, (coll_status)status, "create", "transport %s cannot be used",
                    ops->name);
  port->left_out = strdup(family->reported.message);
  port->absent = ops->caps & COLL_CAP_DEVICE && status == COLL_ERR_UNSUPPORTED &&
                 !*family->params.text[COLLI_PARAM_TRANSPORT];
  if (port->endpoint)
    port->ops->close(port->endpoint);
  port->endpoint = NULL;
}

/* Draws what keys of this communicator are derived from, if there will be some. */
static coll_status draw_nonce(colli_rank_info *info, coll_error *error) {
  if (info->data_check != COLLI_DATA_CHECK_MAC)
    return COLL_OK;
  int sys_errno = colli_random_secret(info->nonce, sizeof(info->nonce));
  if (sys_errno == 0)
    return COLL_OK;
  return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getrandom", sys_errno,
                         "no random bytes for the keys of COLL_DATA_CHECK=mac");
}

/* What identifies this rank's clock; if it cannot be found out, no other rank has the same. */
static uint64_t find_clock(const colli_family *family) {
  const uint64_t id = colli_clock_id();
  return id ? id : (family->comm_id ^ (uint64_t)(family->rank + 1) << 32) | 1u;
}

/* Fills in this rank's record for the others. */
static coll_status describe_self(colli_family *family, const colli_assembly *assembly,
                                 colli_rank_info *info, coll_error *error) {
  const colli_params *params = &family->params;
  memset(info, 0, sizeof(*info));
  memcpy(info->host, family->host, sizeof(info->host));
  info->host_id = colli_host_id(params->text[COLLI_PARAM_HOST_ID], &info->machine_id);
  if (info->host_id == 0)
    return colli_error_sys(error, COLL_ERR_SYSTEM, "create", "open", errno,
                           "what identifies this host cannot be read from /proc; if descriptors "
                           "ran out, raise the limit (ulimit -n)");
  info->pid = getpid();
  if (*params->text[COLLI_PARAM_TRACE])
    info->clock_id = find_clock(family);
  if (params->from_env[COLLI_PARAM_SLOT_BYTES])
    info->slot_bytes = (uint32_t)params->number[COLLI_PARAM_SLOT_BYTES];
  const bool real = colli_world_is_real(&family->world);
  const bool asks = real && !*params->text[COLLI_PARAM_HOST_ID]; /* no host of a test */
  const double cards = asks ? colli_net_cards_mbit(params->text[COLLI_PARAM_TCP_IFNAME]) : 0;
  coll_status status =
      colli_link_speed_describe(params->text[COLLI_PARAM_LINK_SPEED], cards, info, error);
  if (status == COLL_OK)
    status = colli_hierarchy_describe(params->text[COLLI_PARAM_LEVELS], info, error);
  if (status != COLL_OK)
    return status;
  info->slot_count = (uint32_t)params->number[COLLI_PARAM_SLOT_COUNT];
  info->gpu_slot_bytes = (uint32_t)params->number[COLLI_PARAM_GPU_SLOT_BYTES];
  info->timeout_ms = (uint32_t)params->number[COLLI_PARAM_TIMEOUT_MS];
  info->deterministic = (uint8_t)params->number[COLLI_PARAM_DETERMINISTIC];
  info->accumulate = (uint8_t)params->number[COLLI_PARAM_ACCUMULATE];
  info->data_check = (uint8_t)params->number[COLLI_PARAM_DATA_CHECK];
  name_transports(assembly->transports, info->transport_names, sizeof(info->transport_names));
  colli_locality_describe(info);
  colli_shm_capacity_describe(&family->shm_capacity, info);
  if (real)
    colli_calibration_load(params->text[COLLI_PARAM_CALIBRATION], &family->log, &info->calibration,
                           &family->corrections, NULL);
  else
    colli_calibration_default(&info->calibration); /* simulated machines are all the same */
  info->corrections = family->corrections ? family->corrections->digest : 0;
  return draw_nonce(info, error);
}

/* Frees a family whose last communicator has left. */
void colli_family_free(colli_family *family) {
  colli_mux_destroy(family->mux);
  colli_reports_free(family->reports, family->nranks);
  colli_tuner_close(family->tuner);
  colli_gpu_close(family->gpu);
  colli_trace_close(family->trace);
  colli_profiler_close(family->profiler);
  free(family->corrections);
  for (int i = 0; i < family->nports; i++) {
    if (family->ports[i].endpoint)
      family->ports[i].ops->close(family->ports[i].endpoint);
    free(family->ports[i].left_out);
  }
  if (family->ctrl)
    colli_ctrl_close(family->ctrl, GOODBYE_MS);
  colli_status_service_stop(family->service);
  if (family->status_fd >= 0)
    colli_fd_close(family->status_fd);
  colli_status_close(&family->status);
  colli_rank_table_free(family->table);
  free(family->routes);
  free(family->heard);
  free(family->left);
  free(family->lost);
  free(family->silent);
  free(family->early);
  pthread_mutex_destroy(&family->turns.mutex);
  pthread_cond_destroy(&family->turns.next);
  colli_secret_release(family->secret);
  free(family);
}

/* Opens the trace. Its disk may be full by now, which is no reason to end a job that has survived a
 * failure. */
static coll_status open_trace(colli_family *family, const colli_assembly *assembly,
                              coll_error *error) {
  const colli_trace_source source = {family->rank, family->nranks, family->host, family->comm_id,
                                     &assembly->time};
  const colli_params *params = assembly->params;
  coll_status status = colli_trace_open(params->text[COLLI_PARAM_TRACE],
                                        (size_t)params->number[COLLI_PARAM_TRACE_BYTES], &source,
                                        &family->observers, &family->trace, error);
  if (status == COLL_OK || !assembly->inherited)
    return status;
  colli_log_write(&family->log, COLLI_LOG_WARN, "%s; going on without a trace", error->message);
  colli_error_clear(error);
  return COLL_OK;
}

/* Opens what settings ask for besides transports: tuner, GPUs, trace, profiler, room to move. */
static coll_status open_extras(colli_family *family, const colli_assembly *assembly,
                               coll_error *error) {
  const colli_params *params = assembly->params;
  coll_status status = colli_tuner_open(params->text[COLLI_PARAM_TUNER], &family->tuner, error);
  if (status == COLL_OK && colli_world_is_real(&family->world))
    status = colli_gpu_open(&family->gpu, &family->log, error);
  if (family->gpu && !colli_gpu_find_bus(family->gpu, family->gpu_bus))
    *family->gpu_bus = '\0';
  if (status == COLL_OK)
    status = colli_profiler_open(params->text[COLLI_PARAM_PROFILER], family->rank, family->nranks,
                                 &family->observers, &family->profiler, error);
  if (status == COLL_OK && *params->text[COLLI_PARAM_CPUS] &&
      !colli_cpu_list_read(params->text[COLLI_PARAM_CPUS], &family->outsider.may))
    status = colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                             "COLL_CPUS=%s is no list of processors below %d, like 0-3,8",
                             params->text[COLLI_PARAM_CPUS], CPU_SETSIZE);
  if (status == COLL_OK)
    status = open_trace(family, assembly, error);
  return status;
}

/* First half of creation: opens the endpoints and fills in *info. */
coll_status colli_family_open(const colli_assembly *assembly, colli_family **out,
                              colli_rank_info *info, coll_error *error) {
  *out = NULL;
  const colli_params *params = assembly->params;
  coll_status status = check_transport_names(assembly, params->text[COLLI_PARAM_TRANSPORT], error);
  if (status != COLL_OK)
    return status;
  colli_family *family = calloc(1, sizeof(*family));
  if (!family)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for a communicator");
  pthread_mutex_init(&family->turns.mutex, NULL);
  pthread_cond_init(&family->turns.next, NULL);
  family->status_fd = -1;
  family->rank = assembly->rank;
  family->nranks = assembly->nranks;
  family->comm_id = assembly->comm_id;
  family->secret = colli_secret_acquire(assembly->secret);
  colli_params_copy(&family->params, params);
  family->log = (colli_log){(colli_log_level)colli_log_level_parse(params->text[COLLI_PARAM_LOG]),
                            assembly->rank};
  family->world = assembly->world;
  colli_error_clear(&family->reported);
  colli_error_clear(&family->own_fault);
  gethostname(family->host, sizeof(family->host) - 1);
  if (family->nranks > 1 && colli_world_is_real(&family->world))
    colli_shared_probe(&family->shm_capacity);
  status = describe_self(family, assembly, info, error);
  if (status == COLL_OK && assembly->apart)
    colli_family_offer_status(family, info);
  if (status == COLL_OK)
    status = open_extras(family, assembly, error);
  if (status != COLL_OK) {
    colli_family_free(family);
    return status;
  }
  for (int i = 0; family->nranks > 1 && assembly->transports[i]; i++) {
    if (assembly->transports[i]->caps & COLL_CAP_SHARED_MEMORY)
      family->shm_bits |= 1u << i;
    open_port(family, assembly, i, info);
    family->nports = i + 1;
  }
  if (family->nranks > 1 && info->transports == 0) {
    if (error)
      colli_error_copy(error, &family->reported);
    status = family->reported.status;
    colli_family_free(family);
    return status;
  }
  *out = family;
  return COLL_OK;
}

/* Chooses the transport for a peer: the first that both have and that reaches it. */
static coll_status choose_transport(colli_family *family, const colli_rank_info *self, int peer,
                                    const colli_rank_info *other, coll_error *error) {
  const uint32_t both = self->transports & other->transports;
  coll_link link;
  for (int i = 0; i < family->nports; i++)
    if (family->ports[i].endpoint && both & 1u << i &&
        family->ports[i].ops->reach(self->blob[i], other->blob[i], &link)) {
      family->routes[peer] = (int8_t)i;
      return COLL_OK;
    }
  char reasons[256];
  colli_family_say_unreached(family, self, peer, other, reasons, sizeof(reasons));
  return colli_error_set(error, COLL_ERR_UNREACHABLE, "create",
                         "no transport joins rank %d (host %s) and rank %d (host %s): %s; check "
                         "COLL_TRANSPORT and COLL_TCP_IFNAME on both",
                         family->rank, family->host, peer, other->host, reasons);
}

/* Checks the settings that must be equal on all ranks. */
static coll_status compare_settings(const colli_family *family, const colli_rank_info *self,
                                    int peer, const colli_rank_info *other, coll_error *error) {
  if (strncmp(other->transport_names, self->transport_names, sizeof(self->transport_names)) != 0)
    return colli_error_set(
        error, COLL_ERR_MISMATCH, "create",
        "rank %d (host %s) has the transports %s, rank %d (host %s) has %.*s; set "
        "COLL_TRANSPORT_PATH, and COLL_TRANSPORT if it names a plug-in, to the same on all ranks",
        family->rank, family->host, self->transport_names, peer, other->host,
        (int)sizeof(other->transport_names), other->transport_names);
  if (other->slot_bytes != self->slot_bytes || other->slot_count != self->slot_count)
    return colli_error_set(
        error, COLL_ERR_MISMATCH, "create",
        "rank %d (host %s) has COLL_SLOT_BYTES=%u COLL_SLOT_COUNT=%u, rank %d (host %s) has %u "
        "and %u (0: not set); set them to the same on all ranks",
        family->rank, family->host, self->slot_bytes, self->slot_count, peer, other->host,
        other->slot_bytes, other->slot_count);
  if (other->data_check != self->data_check)
    return colli_error_set(
        error, COLL_ERR_MISMATCH, "create",
        "rank %d (host %s) has COLL_DATA_CHECK=%s, rank %d (host %s) has %s; set it to the same on "
        "all ranks",
        family->rank, family->host, colli_param_word(COLLI_PARAM_DATA_CHECK, self->data_check),
        peer, other->host, colli_param_word(COLLI_PARAM_DATA_CHECK, other->data_check));
  if (other->deterministic == self->deterministic && other->accumulate == self->accumulate)
    return COLL_OK;
  return colli_error_set(
      error, COLL_ERR_MISMATCH, "create",
      "rank %d (host %s) has COLL_DETERMINISTIC=%s COLL_ACCUMULATE=%s, rank %d (host %s) has %s "
      "and %s; set them, or the fields of coll_config, to the same on all ranks",
      family->rank, family->host, colli_param_word(COLLI_PARAM_DETERMINISTIC, self->deterministic),
      colli_param_word(COLLI_PARAM_ACCUMULATE, self->accumulate), peer, other->host,
      colli_param_word(COLLI_PARAM_DETERMINISTIC, other->deterministic),
      colli_param_word(COLLI_PARAM_ACCUMULATE, other->accumulate));
}

/* Checks the settings that must be equal on all ranks, and chooses a transport for each peer. */
static coll_status meet_peers(colli_family *family, coll_error *error) {
  const colli_rank_info self = colli_rank_at(family->table, family->rank);
  colli_rank_walk walk = colli_rank_walk_begin(family->table);
  family->routes[family->rank] = -1;
  for (int peer = 0; peer < family->nranks; peer++) {
    if (peer == family->rank)
      continue;
    const colli_rank_info *other = colli_rank_walk_to(&walk, peer);
    coll_status status = compare_settings(family, &self, peer, other, error);
    if (status == COLL_OK)
      status = choose_transport(family, &self, peer, other, error);
    if (status != COLL_OK)
      return status;
  }
  return COLL_OK;
}

/* Logs which transports could not be opened; the first rank of a host speaks for all that lack
 * them. */
static void explain_left_out(const colli_family *family) {
  const int host = colli_rank_host(family->table, family->rank);
  for (int i = 0; i < family->nports; i++) {
    int first = 0, ranks = 0;
    for (int rank = family->nranks - 1; family->ports[i].left_out && rank >= 0; rank--) {
      if (colli_rank_host(family->table, rank) != host ||
          colli_rank_at(family->table, rank).transports & 1u << i)
        continue;
      first = rank;
      ranks++;
    }
    if (ranks > 0 && first == family->rank)
      colli_log_write(&family->log, family->ports[i].absent ? COLLI_LOG_INFO : COLLI_LOG_WARN,
                      "%d rank%s of this host cannot use transport %s: %s", ranks,
                      ranks > 1 ? "s" : "", family->ports[i].ops->name, family->ports[i].left_out);
  }
}

/* Second half of creation: takes ownership of the table and the control links. */
coll_status colli_family_join(colli_family *family, colli_rank_table *table, colli_ctrl *ctrl,
                              coll_error *error) {
  size_t n = (size_t)family->nranks;
  family->ctrl = ctrl;
  family->table = table;
  family->routes = calloc(n, sizeof(*family->routes));
  family->heard = calloc(n, sizeof(*family->heard));
  family->left = calloc(n, sizeof(*family->left));
  family->lost = calloc(n, sizeof(*family->lost));
  family->silent = calloc(n, sizeof(*family->silent));
  family->reports = colli_reports_create(family->nranks);
  if (table)
    explain_left_out(family);
  if (!table || !colli_shm_capacity_restrict(table, family->shm_bits) || !family->routes ||
      !family->heard || !family->left || !family->lost || !family->silent || !family->reports)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for %d ranks",
                           family->nranks);
  coll_status status = meet_peers(family, error);
  if (status == COLL_OK)
    colli_family_show(family);
  return status;
}

void colli_family_add(colli_family *family, coll_comm *comm) {
  COLLI_ASSERT_RANK(family->members != comm, family->rank);
  comm->family = family;
  comm->sibling = family->members;
  family->members = comm;
}

/* Tells the neighbours that this rank leaves as planned. */
static void say_goodbye(colli_family *family) {
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_GOODBYE, .peer = -1};
  if (family->ctrl)
    colli_notice_send(family, 0, &msg);
}

/* Removes a communicator; true if it was the last one. */
bool colli_family_leave(colli_family *family, coll_comm *comm) {
  coll_comm **at = &family->members;
  while (*at && *at != comm)
    at = &(*at)->sibling;
  if (*at)
    *at = comm->sibling;
  if (family->members)
    return false;
  if (!family->unborn)
    say_goodbye(family);
  return true;
}
