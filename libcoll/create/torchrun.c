/*
 * torchrun.c: torchrun (torch.distributed.run). It tells rank, number of ranks and a host for rank
 * 0. MASTER_PORT belongs to a store, of its agent or of the program, so ranks meet at another port
 * of that host.
 *
 * Nothing that it passes is secret. Without COLL_SECRET, who knows the run's name and the address
 * can join, and the log says so.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/base/log.h"
#include "libcoll/create/carrier.h"
#include "libcoll/create/find_secret.h"
#include "libcoll/create/meet.h"

/* Calls of this process, which all ranks make in the same order. */
static atomic_uint calls;

/* Whether torchrun started this process. */
static bool offered(const colli_params *params) {
  static const char *const needed[] = {"TORCHELASTIC_RUN_ID", "RANK", "WORLD_SIZE", "MASTER_ADDR",
                                       "MASTER_PORT"};
  for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
    if (!getenv(needed[i]))
      return false;
  return !*params->text[COLLI_PARAM_ROOT] && !getenv("COLL_RANK");
}

/* Rank and number of ranks. */
static coll_status join(const colli_params *params, uint64_t deadline_ns, int *rank, int *nranks,
                        coll_error *error) {
  (void)params, (void)deadline_ns, (void)error;
  *rank = colli_carrier_number("RANK");
  *nranks = colli_carrier_number("WORLD_SIZE");
  return COLL_OK;
}

/* The key: of the user's secret, or of what torchrun passes. */
static coll_status choose_seal(const colli_params *params, uint64_t deadline_ns, int rank,
                               const char *round, colli_seal *seal, coll_error *error) {
  colli_secret *secret = NULL;
  coll_status status = COLL_OK;
  if (colli_secret_given(params)) {
    status = colli_find_secret(params, deadline_ns, &secret, error);
  } else if (rank == 0) {
    colli_log log = {(colli_log_level)params->number[COLLI_PARAM_LOG], rank};
    colli_log_write(&log, COLLI_LOG_WARN,
                    "torchrun passes no secret: whoever knows its run id and can reach this host "
                    "can join; export COLL_SECRET or COLL_SECRET_FILE to all ranks");
  }
  if (status == COLL_OK)
    status = colli_seal_key(secret, round, seal, error);
  colli_secret_release(secret);
  return status;
}

/*
 * Shares rank 0's id. The name of the round keeps workers of a round that is ending apart from
 * those that replace them. Agents draw a new MASTER_PORT for each round, except one that is alone:
 * it counts rounds. Counts of several agents may differ, since each counts only its own failures.
 */
static coll_status share(const colli_params *params, uint64_t deadline_ns, int rank, int nranks,
                         colli_id *id, coll_error *error) {
  colli_meeting meeting = {.port = 0};
  const char *restarts = getenv("TORCHELASTIC_RESTART_COUNT");
  bool alone = restarts && colli_carrier_number("LOCAL_WORLD_SIZE") == nranks;
  char round[512];
  int bytes =
      snprintf(round, sizeof(round), "torchrun %s %s:%s %d %s", getenv("TORCHELASTIC_RUN_ID"),
               getenv("MASTER_ADDR"), getenv("MASTER_PORT"), nranks, alone ? restarts : "");
  if (bytes >= (int)sizeof(round))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "TORCHELASTIC_RUN_ID and MASTER_ADDR have more than %d characters",
                           (int)sizeof(round) - 64);
  snprintf(meeting.host, sizeof(meeting.host), "%s", getenv("MASTER_ADDR"));
  snprintf(meeting.job, sizeof(meeting.job), "torchrun, call %u", atomic_fetch_add(&calls, 1));
  coll_status status = colli_meet_ports(&meeting, params, round, error);
  if (status == COLL_OK)
    status = choose_seal(params, deadline_ns, rank, round, &meeting.seal, error);
  if (status == COLL_OK)
    status = colli_meet(&meeting, deadline_ns, rank, nranks, id, error);
  explicit_bzero(&meeting, sizeof(meeting));
  return status;
}

const colli_carrier colli_carrier_torchrun = {.offered = offered, .join = join, .share = share};
