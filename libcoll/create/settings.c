/* settings.c: the settings of a creating call: of the environment or of another communicator, and
 * the caller's on top. */
#include <stdio.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/create.h"

/* Copies the fields that the caller's configuration has over the defaults. */
static coll_status read_config(const coll_config *config, coll_config *out, coll_error *error) {
  *out = (coll_config)COLL_CONFIG_INIT;
  if (!config)
    return COLL_OK;
  if (config->size < sizeof(size_t) || config->size > 4096)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "config.size is %zu; start from COLL_CONFIG_INIT", config->size);
  memcpy(out, config, config->size < sizeof(*out) ? config->size : sizeof(*out));
  if (out->timeout_ms < 0 || out->create_timeout_ms < 0)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "config timeouts must not be negative (%d, %d ms)", out->timeout_ms,
                           out->create_timeout_ms);
  if (out->heartbeat_ms != 0 &&
      (out->heartbeat_ms < colli_param_table[COLLI_PARAM_HEARTBEAT_MS].min ||
       out->heartbeat_ms > colli_param_table[COLLI_PARAM_HEARTBEAT_MS].max))
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "config.heartbeat_ms is %d; it must be 0, or 100 to 3600000",
                           out->heartbeat_ms);
  if ((unsigned)out->deterministic > COLL_DETERMINISTIC_ORDERED ||
      (unsigned)out->accumulate > COLL_ACCUMULATE_FLOAT32 ||
      (unsigned)out->progress > COLL_PROGRESS_ON ||
      (unsigned)out->shrink_quorum > COLL_SHRINK_QUORUM_REACHABLE)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "config.deterministic is %d, config.accumulate %d, config.progress %d, "
                           "config.shrink_quorum %d; see coll.h",
                           (int)out->deterministic, (int)out->accumulate, (int)out->progress,
                           (int)out->shrink_quorum);
  return COLL_OK;
}

/* Begins a creating call. */
static coll_status begin_settings(colli_settings *settings, const coll_config *config,
                                  coll_config *known) {
  colli_error_clear(&settings->error);
  settings->log = (colli_log){COLLI_LOG_ERROR, -1};
  settings->to_caller = NULL;
  settings->inherited = false;
  settings->time = (colli_shared_time){0};
  coll_status status = read_config(config, known, &settings->error);
  if (status != COLL_OK)
    return status;
  settings->to_caller = known->error;
  settings->deterministic = known->deterministic;
  settings->accumulate = known->accumulate;
  return status;
}

/* Sets a number, of which transports read the text; false if there is no space for that. */
static bool set_number(colli_params *params, colli_param_id id, int number) {
  char text[16];
  snprintf(text, sizeof(text), "%d", number);
  params->number[id] = number;
  return colli_params_set_text(params, id, text);
}

/* Applies the configuration on top of existing settings. */
static coll_status apply_config(colli_settings *settings, const coll_config *config) {
  colli_params *params = &settings->params;
  if (config->create_timeout_ms)
    params->number[COLLI_PARAM_CREATE_TIMEOUT_MS] = config->create_timeout_ms;
  if (config->deterministic)
    params->number[COLLI_PARAM_DETERMINISTIC] = config->deterministic;
  if (config->accumulate)
    params->number[COLLI_PARAM_ACCUMULATE] = config->accumulate;
  if (config->progress)
    params->number[COLLI_PARAM_PROGRESS] = config->progress;
  if (config->shrink_quorum)
    params->number[COLLI_PARAM_SHRINK_QUORUM] = config->shrink_quorum;
  if ((config->timeout_ms && !set_number(params, COLLI_PARAM_TIMEOUT_MS, config->timeout_ms)) ||
      (config->heartbeat_ms && !set_number(params, COLLI_PARAM_HEARTBEAT_MS, config->heartbeat_ms)))
    return colli_error_set(&settings->error, COLL_ERR_INVALID_USAGE, "create",
                           "the COLL_ variables are too long to add config.timeout_ms and "
                           "config.heartbeat_ms; shorten them");
  if (config->transport && !colli_params_set_text(params, COLLI_PARAM_TRANSPORT, config->transport))
    return colli_error_set(&settings->error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "config.transport is too long");
  if (config->algo && !colli_params_set_text(params, COLLI_PARAM_ALGO, config->algo))
    return colli_error_set(&settings->error, COLL_ERR_INVALID_ARGUMENT, "create",
                           "config.algo is too long");
  settings->log.level = (colli_log_level)colli_log_level_parse(params->text[COLLI_PARAM_LOG]);
  return COLL_OK;
}

/* Says which settings are ignored, because they name code or files. */
static void log_ignored(const colli_settings *settings) {
  char list[256] = "";
  for (int i = 0; i < COLLI_PARAM_COUNT; i++)
    if (settings->params.ignored[i]) {
      size_t used = strlen(list);
      snprintf(list + used, sizeof(list) - used, "%s%s", used ? ", " : "",
               colli_param_table[i].name);
    }
  if (*list)
    colli_log_write(&settings->log, COLLI_LOG_WARN,
                    "ignored, because this program runs with more rights than its caller (set-uid, "
                    "set-gid or capabilities): %s",
                    list);
}

/* Loads the environment and applies the configuration on top. */
coll_status colli_settings_load(colli_settings *settings, const coll_config *config) {
  coll_config known;
  coll_status status = begin_settings(settings, config, &known);
  if (status == COLL_OK)
    status = colli_params_load(&settings->params, &settings->error);
  if (status == COLL_OK)
    status = apply_config(settings, &known);
  if (status == COLL_OK)
    log_ignored(settings);
  return status;
}

/* Copies the settings of another communicator and applies the configuration on top. */
coll_status colli_settings_inherit(colli_settings *settings, const coll_comm *comm,
                                   const coll_config *config) {
  coll_config known;
  coll_status status = begin_settings(settings, config, &known);
  colli_params_copy(&settings->params, &comm->params);
  settings->inherited = true;
  if (comm->family->trace)
    settings->time = colli_trace_time(comm->family->trace);
  return status == COLL_OK ? apply_config(settings, &known) : status;
}

/* Ends a creating call: hands over the error record and logs it. */
coll_status colli_settings_finish(colli_settings *settings, coll_status status) {
  COLLI_ASSERT(status != COLL_IN_PROGRESS);
  if (status != COLL_OK) {
    settings->error.status = status;
    if (settings->error.rank < 0)
      settings->error.rank = settings->log.rank;
    colli_log_write(&settings->log, COLLI_LOG_ERROR, "%s: %s", coll_status_name(status),
                    settings->error.message);
    if (settings->to_caller)
      colli_error_copy(settings->to_caller, &settings->error);
  }
  return status;
}
