/*
 * pmi1.c: rank and id from a launcher that speaks PMI-1.
 *
 * The launcher gives each process a socket (PMI_FD) or a port (PMI_PORT, Hydra's -pmi-port). Its
 * client says init once and finalize at its end: Hydra kills the job if a process ends in between,
 * and Slurm if one says init twice. So an MPI in the same process, which says both for itself, gets
 * the connection for itself alone.
 */
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/base/fork.h"
#include "libcoll/create/carrier.h"
#include "libcoll/create/pmi1_wire.h"
#include "libcoll/wireup/resolve.h"

#define NAME_BYTES  257 /* of the launcher's table, with the end; Hydra and Slurm: 256 */
#define LEAVE_NS    (2 * COLLI_NS_PER_S)
#define FAILED_TEXT "failed"

/* A process is a client once, so this state is per process. */
static struct {
  pthread_mutex_t mutex;
  colli_pmi1 pmi;
  pid_t pid;       /* the process that joined; 0: none */
  bool lost;       /* an answer is missing, so that no later one could be matched */
  unsigned shared; /* ids that were shared */
  int rank, nranks;
  char table[NAME_BYTES];
} client = {.mutex = PTHREAD_MUTEX_INITIALIZER, .pmi.fd = -1};

/* Whether the launcher speaks PMI-1. */
static bool offered(const colli_params *params) {
  bool socket = secure_getenv("PMI_FD") && getenv("PMI_RANK") && getenv("PMI_SIZE");
  bool port = secure_getenv("PMI_PORT") && getenv("PMI_ID");
  return (socket || port) && !colli_carrier_overruled(params);
}

/* dl_iterate_phdr: whether an object is an MPI (libmpi.so, libmpich.so, libmpi_cray.so ...). */
static int is_mpi(struct dl_phdr_info *info, size_t bytes, void *unused) {
  (void)bytes, (void)unused;
  const char *slash = strrchr(info->dlpi_name, '/');
  return strncmp(slash ? slash + 1 : info->dlpi_name, "libmpi", 6) == 0;
}

/* Reads a number in min .. max; false if the text is none. */
static bool read_number(const char *text, int min, int max, int *number) {
  char *end;
  errno = 0;
  long value = text ? strtol(text, &end, 10) : 0;
  if (!text || end == text || *end || errno || value < min || value > max)
    return false;
  *number = (int)value;
  return true;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* At the process's end: what fails here no longer matters. */
static void leave_at_exit(void) {
  coll_error ignored = COLL_ERROR_INIT;
  if (client.pid == getpid() && !client.lost)
    colli_pmi1_ask(&client.pmi, colli_now_ns() + LEAVE_NS, "cmd=finalize\n", "finalize_ack",
                   &ignored);
}

/* Takes the launcher's socket. */
static coll_status take_socket(coll_error *error) {
  const char *fd = getenv("PMI_FD"), *rank = getenv("PMI_RANK"), *nranks = getenv("PMI_SIZE");
  if (read_number(fd, 0, INT_MAX, &client.pmi.fd) &&
      read_number(nranks, 1, INT_MAX, &client.nranks) &&
      read_number(rank, 0, client.nranks - 1, &client.rank))
    return COLL_OK;
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "PMI_FD=%s, PMI_RANK=%s and PMI_SIZE=%s are no descriptor, rank and "
                         "number of ranks",
                         fd, rank, nranks);
}

/* Connects to one of the launcher's addresses. */
static coll_status dial(const colli_addr *addr, uint64_t deadline_ns, coll_error *error) {
  client.pmi.fd = colli_net_connect(addr);
  int failed = client.pmi.fd < 0 ? errno : 0;
  if (!failed) {
    struct pollfd ready = {.fd = client.pmi.fd, .events = POLLOUT};
    uint64_t now = colli_now_ns();
    int result =
        poll(&ready, 1, now < deadline_ns ? (int)((deadline_ns - now) / COLLI_NS_PER_MS + 1) : 0);
    failed = result == 0 ? ETIMEDOUT : colli_net_connect_result(client.pmi.fd);
  }
  if (!failed)
    return COLL_OK;
  if (client.pmi.fd >= 0)
    colli_fd_close(client.pmi.fd);
  client.pmi.fd = -1;
  return colli_error_sys(error, failed == ETIMEDOUT ? COLL_ERR_TIMEOUT : COLL_ERR_SYSTEM, "create",
                         "connect", failed, "the launcher's PMI_PORT=%s cannot be reached",
                         getenv("PMI_PORT"));
}

/* Hears "cmd=set KEY=NUMBER". */
static coll_status hear_number(uint64_t deadline_ns, const char *key, int *number,
                               coll_error *error) {
  char text[16];
  coll_status status = colli_pmi1_hear(&client.pmi, deadline_ns, "set", error);
  if (status != COLL_OK || (colli_pmi1_value(&client.pmi, key, text, sizeof(text)) &&
                            read_number(text, 0, INT_MAX, number)))
    return status;
  return colli_error_set(error, COLL_ERR_SYSTEM, "create",
                         "the launcher (PMI_PORT) did not tell a number for \"%s\"", key);
}

/* Connects to the launcher's port, and says who this is. */
static coll_status take_port(uint64_t deadline_ns, coll_error *error) {
  colli_addr addrs[COLLI_MAX_ADDRS];
  int count = 0, id, debug;
  char line[64];
  if (!read_number(getenv("PMI_ID"), 0, INT_MAX, &id))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create", "PMI_ID=%s is no number",
                           getenv("PMI_ID"));
  coll_status status =
      colli_net_parse(getenv("PMI_PORT"), deadline_ns, addrs, COLLI_MAX_ADDRS, &count, error);
  for (int i = 0; i < count && client.pmi.fd < 0; i++)
    status = dial(&addrs[i], deadline_ns, error);
  snprintf(line, sizeof(line), "cmd=initack pmiid=%d\n", id);
  if (status == COLL_OK)
    status = colli_pmi1_ask(&client.pmi, deadline_ns, line, "initack", error);
  if (status == COLL_OK)
    status = hear_number(deadline_ns, "size", &client.nranks, error);
  if (status == COLL_OK)
    status = hear_number(deadline_ns, "rank", &client.rank, error);
  return status == COLL_OK ? hear_number(deadline_ns, "debug", &debug, error) : status;
}

/* Says init, and asks for the name of the launcher's table. */
static coll_status say_init(uint64_t deadline_ns, coll_error *error) {
  coll_status status =
      colli_pmi1_ask(&client.pmi, deadline_ns, "cmd=init pmi_version=1 pmi_subversion=1\n",
                     "response_to_init", error);
  if (status == COLL_OK)
    status = colli_pmi1_ask(&client.pmi, deadline_ns, "cmd=get_my_kvsname\n", "my_kvsname", error);
  if (status != COLL_OK ||
      colli_pmi1_value(&client.pmi, "kvsname", client.table, sizeof(client.table)))
    return status;
  return colli_error_set(error, COLL_ERR_SYSTEM, "create",
                         "the launcher (PMI-1) did not tell the name of its table");
}

/* Becomes a client, once in this process. */
static coll_status become_client(uint64_t deadline_ns, coll_error *error) {
  client.pid = getpid();
  client.pmi.fd = -1;
  const bool socket = getenv("PMI_FD") != NULL;
  coll_status status = socket ? take_socket(error) : take_port(deadline_ns, error);
  /* A rank alone has nobody to meet. But who has connected to a port must finalize. */
  if (status == COLL_OK && (client.nranks > 1 || !socket)) {
    atexit(leave_at_exit);
    status = say_init(deadline_ns, error);
  }
  client.lost = status != COLL_OK;
  return status;
}

/* Joins the launcher's job. The connection stays open until the process exits. */
static coll_status join(const colli_params *params, uint64_t deadline_ns, int *rank, int *nranks,
                        coll_error *error) {
  (void)params;
  const char *size = getenv("PMI_SIZE");
  bool alone = size && strcmp(size, "1") == 0; /* it needs no connection */
  if (!alone && (dlsym(RTLD_DEFAULT, "MPI_Init") || dl_iterate_phdr(is_mpi, NULL)))
    return colli_error_set(
        error, COLL_ERR_INVALID_USAGE, "create",
        "this program also uses MPI, which needs the launcher's connection (PMI-1) for itself: "
        "pass coll_unique_id() from rank 0 to the others by MPI_Bcast and call coll_comm_create(), "
        "or export COLL_ROOT and COLL_SECRET_FILE");
  pthread_mutex_lock(&client.mutex);
  coll_status status = COLL_OK;
  if (client.pid == 0)
    status = become_client(deadline_ns, error);
  else if (client.pid != getpid())
    status = colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "this process was forked from one that uses PMI-1, whose connection "
                             "it cannot use; export COLL_ROOT and COLL_SECRET_FILE");
  else if (client.lost)
    status = colli_error_set(error, COLL_ERR_SYSTEM, "create",
                             "the launcher (PMI-1) failed before in this process");
  *rank = client.rank;
  *nranks = client.nranks;
  pthread_mutex_unlock(&client.mutex);
  return status;
}

/* ---- sharing --------------------------------------------------------------------------------- */

/* Writes this rank's id into the launcher's table. */
static coll_status put_id(uint64_t deadline_ns, int rank, const colli_id *id, coll_error *error) {
  char line[COLLI_PMI1_LINE], digits[COLLI_ID_DIGITS + 1] = FAILED_TEXT;
  if (id)
    colli_id_write(id, digits);
  snprintf(line, sizeof(line), "cmd=put kvsname=%s key=libcoll.id.%u.%d value=%s\n", client.table,
           client.shared, rank, digits);
  coll_status status = colli_pmi1_ask(&client.pmi, deadline_ns, line, "put_result", error);
  explicit_bzero(line, sizeof(line));
  explicit_bzero(digits, sizeof(digits));
  return status;
}

/* Reads that of another rank. */
static coll_status get_id(uint64_t deadline_ns, int rank, char digits[COLLI_ID_DIGITS + 1],
                          coll_error *error) {
  char line[NAME_BYTES + 64];
  snprintf(line, sizeof(line), "cmd=get kvsname=%s key=libcoll.id.%u.%d\n", client.table,
           client.shared, rank);
  coll_status status = colli_pmi1_ask(&client.pmi, deadline_ns, line, "get_result", error);
  if (status != COLL_OK)
    return status;
  *digits = 0;
  colli_pmi1_value(&client.pmi, "value", digits, COLLI_ID_DIGITS + 1);
  if (strcmp(digits, FAILED_TEXT) == 0)
    status =
        colli_error_set(error, COLL_ERR_SYSTEM, "create", "rank %d failed; see its error", rank);
  return status;
}

/* Reads where to check in. */
static coll_status get_place(uint64_t deadline_ns, int rank, int nranks, colli_id *id,
                             coll_error *error) {
  char root[COLLI_ID_DIGITS + 1] = "", parent[COLLI_ID_DIGITS + 1];
  const int parent_rank = colli_carrier_parent(rank, nranks);
  coll_status status = get_id(deadline_ns, 0, root, error);
  memcpy(parent, root, sizeof(parent));
  if (status == COLL_OK && parent_rank != 0)
    status = get_id(deadline_ns, parent_rank, parent, error);
  if (status == COLL_OK)
    status = colli_carrier_place(root, parent, id, error);
  explicit_bzero(root, sizeof(root));
  explicit_bzero(parent, sizeof(parent));
  return status;
}

/* Shares ids. */
static coll_status share(const colli_params *params, uint64_t deadline_ns, int rank, int nranks,
                         colli_id *id, coll_error *error) {
  (void)params;
  coll_status status = COLL_OK;
  pthread_mutex_lock(&client.mutex);
  if (!id || id->listen_fd >= 0)
    status = put_id(deadline_ns, rank, id, error);
  if (status == COLL_OK)
    status = colli_pmi1_ask(&client.pmi, deadline_ns, "cmd=barrier_in\n", "barrier_out", error);
  client.lost = status != COLL_OK;
  if (status == COLL_OK && id && rank != 0)
    status = get_place(deadline_ns, rank, nranks, id, error);
  client.shared++;
  colli_pmi1_forget(&client.pmi);
  pthread_mutex_unlock(&client.mutex);
  return status;
}

const colli_carrier colli_carrier_pmi1 = {
    .fan_out = COLLI_CARRIER_FAN_OUT, .offered = offered, .join = join, .share = share};
