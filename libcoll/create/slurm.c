/*
 * slurm.c: srun --mpi=none. Slurm tells each process its rank and the step's nodes, but carries
 * nothing: ranks meet on the first node. The secret is sealed by munge, which authenticates Slurm's
 * own messages, or with COLL_SECRET.
 */
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/create/carrier.h"
#include "libcoll/create/find_secret.h"
#include "libcoll/create/meet.h"

/* Calls of this process, which all ranks make in the same order. */
static atomic_uint calls;

/* Whether Slurm started this process in a step, and nobody else told its rank. */
static bool offered(const colli_params *params) {
  static const char *const needed[] = {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_JOB_ID",
                                       "SLURM_STEP_ID", "SLURM_STEP_NODELIST"};
  for (size_t i = 0; i < sizeof(needed) / sizeof(*needed); i++)
    if (!getenv(needed[i]))
      return false;
  /* A launcher inside a step has variables of its own; so has a script that chose a root. */
  return !getenv("OMPI_COMM_WORLD_RANK") && !getenv("PMI_RANK") &&
         !(getenv("MASTER_ADDR") && getenv("MASTER_PORT") && colli_secret_given(params)) &&
         !colli_carrier_overruled(params);
}

/* Rank and number of ranks. */
static coll_status join(const colli_params *params, uint64_t deadline_ns, int *rank, int *nranks,
                        coll_error *error) {
  (void)params, (void)deadline_ns, (void)error;
  *rank = colli_carrier_number("SLURM_PROCID");
  *nranks = colli_carrier_number("SLURM_NTASKS");
  return COLL_OK;
}

/* The first node of a list such as "n[01-04,7],m3". False if it is malformed or too long. */
static bool first_node(const char *list, char *node, size_t bytes) {
  size_t used = 0;
  for (const char *c = list; *c && *c != ','; c++) {
    if (*c == '[') {
      size_t digits = strspn(c + 1, "0123456789");
      const char *end = strchr(c, ']');
      if (digits == 0 || !end || used + digits >= bytes)
        return false;
      memcpy(node + used, c + 1, digits);
      used += digits;
      c = end;
    } else if (used + 1 < bytes) {
      node[used++] = *c;
    } else {
      return false;
    }
  }
  node[used] = '\0';
  return used > 0;
}

/* Where rank 0 is. */
static coll_status find_host(colli_meeting *meeting, coll_error *error) {
  const char *list = getenv("SLURM_STEP_NODELIST");
  if (colli_carrier_number("SLURM_STEP_NUM_NODES") == 1) {
    snprintf(meeting->host, sizeof(meeting->host), "127.0.0.1");
    return COLL_OK;
  }
  if (first_node(list, meeting->host, sizeof(meeting->host)))
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "SLURM_STEP_NODELIST=%s: its first node cannot be told; export "
                         "COLL_ROOT=address:port and COLL_SECRET_FILE",
                         list);
}

/* The seal: the user's secret, or munge. */
static coll_status choose_seal(const colli_params *params, uint64_t deadline_ns, const char *job,
                               colli_seal *seal, coll_error *error) {
  colli_secret *secret;
  if (!colli_secret_given(params)) {
    *seal = colli_seal_munge(params);
    return COLL_OK;
  }
  coll_status status = colli_find_secret(params, deadline_ns, &secret, error);
  if (status != COLL_OK)
    return status;
  status = colli_seal_key(secret, job, seal, error);
  colli_secret_release(secret);
  return status;
}

/* Shares rank 0's id. */
static coll_status share(const colli_params *params, uint64_t deadline_ns, int rank, int nranks,
                         colli_id *id, coll_error *error) {
  colli_meeting meeting = {.port = 0};
  const char *restarts = getenv("SLURM_RESTART_COUNT");
  char step[64];
  /* An array's tasks are jobs of their own. A job that was requeued keeps its number. */
  snprintf(step, sizeof(step), "slurm %.20s.%.20s %.10s", getenv("SLURM_JOB_ID"),
           getenv("SLURM_STEP_ID"), restarts ? restarts : "0");
  snprintf(meeting.job, sizeof(meeting.job), "%s of %d, call %u", step, nranks,
           atomic_fetch_add(&calls, 1));
  coll_status status = find_host(&meeting, error);
  if (status == COLL_OK)
    status = colli_meet_ports(&meeting, params, step, error);
  if (status == COLL_OK)
    status = choose_seal(params, deadline_ns, step, &meeting.seal, error);
  if (status == COLL_OK)
    status = colli_meet(&meeting, deadline_ns, rank, nranks, id, error);
  explicit_bzero(&meeting, sizeof(meeting));
  return status;
}

const colli_carrier colli_carrier_slurm = {.offered = offered, .join = join, .share = share};
