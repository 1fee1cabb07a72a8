/* env.c: coll_init_from_env: finds this process's rank and the number of ranks in a launcher's
 * variables. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/carrier.h"
#include "libcoll/create/create.h"
#include "libcoll/create/find_secret.h"
#include "libcoll/net/auth.h"
#include "libcoll/net/door.h"
#include "libcoll/wireup/bootstrap/tree.h"
#include "libcoll/wireup/resolve.h"

/* A launcher's names for rank and number of ranks. */
typedef struct launcher {
  const char *name;
  const char *rank;
  const char *nranks;
} launcher;

static const launcher launchers[] = {
    {"collrun", "COLL_RANK", "COLL_NRANKS"},
    {"Slurm", "SLURM_PROCID", "SLURM_NTASKS"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"},
    {"MPICH", "PMI_RANK", "PMI_SIZE"},
    {"torchrun", "RANK", "WORLD_SIZE"},
};

/* Reads a number from a variable: false if it is not one in 0 .. max. */
static bool read_number(const char *text, int max, int *number) {
  char *end;
  errno = 0;
  long value = strtol(text, &end, 10);
  if (end == text || *end || errno || value < 0 || value > max)
    return false;
  *number = (int)value;
  return true;
}

/* Finds rank and nranks; 0 and 1 without a launcher. */
static coll_status find_rank(int *rank, int *nranks, coll_error *error) {
  *rank = 0;
  *nranks = 1;
  for (size_t i = 0; i < sizeof(launchers) / sizeof(*launchers); i++) {
    const launcher *l = &launchers[i];
    const char *rank_text = getenv(l->rank), *nranks_text = getenv(l->nranks);
    if (!rank_text && (!nranks_text || i > 0))
      continue; /* a batch script may see the number of tasks without being one of them */
    if (!rank_text || !nranks_text)
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "%s is set but %s is not; set both or neither",
                             rank_text ? l->rank : l->nranks, rank_text ? l->nranks : l->rank);
    if (!read_number(nranks_text, COLLI_MAX_RANKS, nranks) || *nranks < 1)
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "%s=%s is not a number of ranks (1 .. %d)", l->nranks, nranks_text,
                             COLLI_MAX_RANKS);
    if (!read_number(rank_text, *nranks - 1, rank))
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "%s=%s is not a rank in 0 .. %d (%s=%s)", l->rank, rank_text,
                             *nranks - 1, l->nranks, nranks_text);
    return COLL_OK;
  }
  return COLL_OK;
}

/* Where rank 0 listens, as text: COLL_ROOT, or MASTER_ADDR and MASTER_PORT. */
static coll_status find_root(const colli_params *params, char *text, size_t bytes,
                             coll_error *error) {
  const char *root = params->text[COLLI_PARAM_ROOT];
  const char *addr = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
  if (*root)
    snprintf(text, bytes, "%s", root);
  else if (addr && port)
    snprintf(text, bytes, strchr(addr, ':') ? "[%s]:%s" : "%s:%s", addr, port);
  else
    return colli_error_set(
        error, COLL_ERR_INVALID_USAGE, "create",
        "COLL_ROOT is not set: export COLL_ROOT=address:port of rank 0 (a free "
        "port) and the same secret (COLL_SECRET_FILE) to all ranks, or start them with collrun");
  return COLL_OK;
}

/* Rank 0: the socket that the launcher left open, or one on the port that COLL_ROOT names. */
static coll_status open_root(const colli_params *params, colli_id *id, coll_error *error) {
  const char *fd_text = params->text[COLLI_PARAM_ROOT_FD];
  id->pid = getpid();
  if (*fd_text) {
    int fd, listening = 0;
    socklen_t length = sizeof(listening);
    if (!read_number(fd_text, 1 << 20, &fd) ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening)
      return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "COLL_ROOT_FD=%s is no listening socket in this process; unset it, or "
                             "make only one communicator from the environment",
                             fd_text);
    id->listen_fd = COLLI_FD(fd);
    return COLL_OK;
  }
  char range[16];
  uint16_t port;
  snprintf(range, sizeof(range), "%u", id->addrs[0].port);
  return colli_door_listen(range, id->secret->bytes, &id->listen_fd, &port, error);
}

/* Makes the id that the variables describe. */
static coll_status read_id(const colli_params *params, uint64_t deadline_ns, int rank, colli_id *id,
                           coll_error *error) {
  char root[256];
  int count = 0;
  coll_status status = find_root(params, root, sizeof(root), error);
  if (status != COLL_OK)
    return status;
  status = colli_find_secret(params, deadline_ns, &id->secret, error);
  if (status != COLL_OK)
    return status;
  status = colli_net_parse(root, deadline_ns, id->addrs, COLLI_MAX_ADDRS, &count, error);
  if (status != COLL_OK)
    return status;
  uint8_t mac[COLLI_MAC_BYTES];
  if (!colli_hmac(id->secret->bytes, root, strlen(root), mac))
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create",
                           "out of memory for an HMAC; see ulimit -v");
  memcpy(&id->comm_id, mac, sizeof(id->comm_id));
  return rank == 0 ? open_root(params, id, error) : COLL_OK;
}

/* Finds rank, nranks and the id in a launcher's variables. */
static coll_status ask_variables(const colli_params *params, uint64_t deadline_ns, int *rank,
                                 int *nranks, colli_id *id, coll_error *error) {
  if (*params->text[COLLI_PARAM_RESPAWN])
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "collrun --respawn has started this rank again (COLL_RESPAWN=%s), and "
                           "the others go on: it gets to them with coll_comm_join(), as in "
                           "docs/failures.md, not with coll_init_from_env()",
                           params->text[COLLI_PARAM_RESPAWN]);
  coll_status status = find_rank(rank, nranks, error);
  return status == COLL_OK && *nranks > 1 ? read_id(params, deadline_ns, *rank, id, error) : status;
}

/* Asks the launcher for rank and nranks, and shares ids through it. */
static coll_status ask_carrier(const colli_carrier *carrier, const colli_params *params,
                               uint64_t deadline_ns, int *rank, int *nranks, colli_id *id,
                               coll_error *error) {
  coll_status status = carrier->join(params, deadline_ns, rank, nranks, error);
  if (status == COLL_OK &&
      (*nranks < 1 || *nranks > COLLI_MAX_RANKS || *rank < 0 || *rank >= *nranks))
    return colli_error_set(
        error, COLL_ERR_INVALID_USAGE, "create",
        "the launcher says that this is rank %d of %d; 1 .. %d ranks are possible", *rank, *nranks,
        COLLI_MAX_RANKS);
  if (status != COLL_OK || *nranks == 1)
    return status;
  const boot_place place = boot_place_find(carrier->fan_out, *rank, *nranks, *rank == 0);
  if (boot_place_children(&place) > 0 && colli_id_make(id, params, error) != COLL_OK) {
    coll_error ignored = COLL_ERROR_INIT;
    /* so that the others need not wait */
    carrier->share(params, deadline_ns, *rank, *nranks, NULL, &ignored);
    return error->status;
  }
  status = carrier->share(params, deadline_ns, *rank, *nranks, id, error);
  if (status != COLL_OK)
    colli_id_close(id);
  id->server = 0;
  id->fan_out = carrier->fan_out;
  return status;
}

/* The first carrier that is offered, or NULL. */
static const colli_carrier *find_carrier(const colli_params *params) {
  static const colli_carrier *const carriers[] = {&colli_carrier_torchrun, &colli_carrier_pmix,
                                                  &colli_carrier_pmi1, &colli_carrier_slurm};
  for (size_t i = 0; i < sizeof(carriers) / sizeof(*carriers); i++)
    if (carriers[i]->offered(params))
      return carriers[i];
  return NULL;
}

coll_status coll_init_from_env(coll_comm **comm, const coll_config *config) {
  if (!comm)
    return COLL_ERR_INVALID_ARGUMENT;
  *comm = NULL;
  colli_settings settings;
  colli_id id = {.listen_fd = -1};
  int rank = 0, nranks = 1;
  coll_status status = colli_settings_load(&settings, config);
  const colli_params *params = &settings.params;
  if (status == COLL_OK) {
    uint64_t deadline_ns =
        colli_now_ns() + (uint64_t)params->number[COLLI_PARAM_CREATE_TIMEOUT_MS] * COLLI_NS_PER_MS;
    const colli_carrier *carrier = find_carrier(params);
    status = carrier
                 ? ask_carrier(carrier, params, deadline_ns, &rank, &nranks, &id, &settings.error)
                 : ask_variables(params, deadline_ns, &rank, &nranks, &id, &settings.error);
  }
  if (status == COLL_OK)
    status = colli_create(comm, &id, nranks, rank, &settings, NULL);
  colli_id_release(&id);
  return colli_settings_finish(&settings, status);
}
