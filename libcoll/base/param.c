/* param.c: the table of settings, and reading them from the environment. */
#include "libcoll/base/param.h"

#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/log.h"

#define PREFIX "COLL_"

const colli_param_info colli_param_table[COLLI_PARAM_COUNT] = {
    [COLLI_PARAM_TIMEOUT_MS] =
        {"COLL_TIMEOUT_MS", COLLI_PARAM_INT, "60000", 1, INT_MAX,
         "Longest time that an operation may make no progress, in milliseconds."},
    [COLLI_PARAM_CREATE_TIMEOUT_MS] = {"COLL_CREATE_TIMEOUT_MS", COLLI_PARAM_INT, "60000", 1,
                                       INT_MAX,
                                       "Deadline for creating a communicator, by which all ranks "
                                       "must have joined. In milliseconds."},
    [COLLI_PARAM_HEARTBEAT_MS] =
        {"COLL_HEARTBEAT_MS", COLLI_PARAM_INT, "2000", 100, 3600000,
         "A host that does not answer for so long, in milliseconds, counts as silent; a rank that "
         "waits notices it within twice that time. Its processes may be alive. Hosts answer for "
         "processes that compute or are stopped."},
    [COLLI_PARAM_SHRINK_QUORUM] =
        {"COLL_SHRINK_QUORUM", COLLI_PARAM_WORD, "majority", COLL_SHRINK_QUORUM_MAJORITY,
         COLL_SHRINK_QUORUM_REACHABLE,
         "Who may continue in coll_comm_shrink() while other ranks are silent: majority (more than "
         "half of the ranks, or half of them with rank 0) or reachable (whoever meets, even if the "
         "others do the same). The same on all ranks. See docs/failures.md."},
    [COLLI_PARAM_TRANSPORT] = {"COLL_TRANSPORT", COLLI_PARAM_STRING, "", 0, 0,
                               "Comma-separated list of the transports to choose from: shm, "
                               "verbs, tcp, and those of plug-ins. The order counts only if it "
                               "names a plug-in. Empty: all, plug-ins last."},
    [COLLI_PARAM_TRANSPORT_PATH] =
        {"COLL_TRANSPORT_PATH", COLLI_PARAM_STRING, "", 0, 0,
         "Transport plug-ins: a colon-separated list of shared libraries (coll/coll_transport.h); "
         "the same on all ranks. See docs/transports.md. Empty: none."},
    [COLLI_PARAM_ALGO] =
        {"COLL_ALGO", COLLI_PARAM_STRING, "", 0, 0,
         "Forces algorithms: a comma-separated list of collective:algorithm or collective:ranges, "
         "for example allreduce:0-8k=recdbl;8k-=ring,broadcast:chain. Other calls are not "
         "affected; see docs/choosing.md. `coll_explain --list` shows the names."},
    [COLLI_PARAM_TUNER] = {"COLL_TUNER", COLLI_PARAM_STRING, "", 0, 0,
                           "Path of a tuner, a shared library that chooses algorithms "
                           "(coll/coll_tuner.h). Empty: none."},
    [COLLI_PARAM_CALIBRATION] =
        {"COLL_CALIBRATION", COLLI_PARAM_STRING, "", 0, 0,
         "File with this machine's costs for the cost model, written by `coll_calibrate`; none: "
         "built-in costs. Empty: $XDG_CACHE_HOME/libcoll/calibration or "
         "~/.cache/libcoll/calibration, if it exists."},
    [COLLI_PARAM_DETERMINISTIC] =
        {"COLL_DETERMINISTIC", COLLI_PARAM_WORD, "off", COLL_DETERMINISTIC_OFF,
         COLL_DETERMINISTIC_ORDERED,
         "How reproducible float reductions are: off, on (the result depends only on the inputs in "
         "rank order), or ordered (combined from left to right). The same on all ranks."},
    [COLLI_PARAM_ACCUMULATE] = {"COLL_ACCUMULATE", COLLI_PARAM_WORD, "native",
                                COLL_ACCUMULATE_NATIVE, COLL_ACCUMULATE_FLOAT32,
                                "Precision in which float16, bfloat16 and float8 are reduced: "
                                "native or float32. The same on all ranks."},
    [COLLI_PARAM_PROGRESS] =
        {"COLL_PROGRESS", COLLI_PARAM_WORD, "off", COLL_PROGRESS_OFF, COLL_PROGRESS_ON,
         "Whether a thread makes progress on nonblocking operations while the program computes: "
         "off or on. Ranks may choose differently; see docs/overlap.md."},
    [COLLI_PARAM_LOG] = {"COLL_LOG", COLLI_PARAM_WORD, "warn", COLLI_LOG_NONE, COLLI_LOG_DEBUG,
                         "What libcoll logs on standard error: none, error, warn, info or debug."},
    [COLLI_PARAM_TRACE] =
        {"COLL_TRACE", COLLI_PARAM_STRING, "", 0, 0,
         "File to which each rank writes when its operations begin and end, for "
         "https://ui.perfetto.dev; %r is the rank. See docs/tracing.md. Empty: none."},
    [COLLI_PARAM_TRACE_BYTES] = {"COLL_TRACE_BYTES", COLLI_PARAM_BYTES, "16M", 65536, 1 << 30,
                                 "Size of that file, which is allocated at creation. An operation "
                                 "takes about 120 bytes."},
    [COLLI_PARAM_PROFILER] = {"COLL_PROFILER", COLLI_PARAM_STRING, "", 0, 0,
                              "Path of a profiler, a shared library that is told when operations "
                              "begin and end (coll/coll_profiler.h). See docs/tracing.md."},
    [COLLI_PARAM_HOST_ID] =
        {"COLL_HOST_ID", COLLI_PARAM_STRING, "", 0, 0,
         "Any text; ranks with the same text count as one host, with another text as on another "
         "machine. Empty: boot id and network namespace. For tests."},
    [COLLI_PARAM_LINK_SPEED] =
        {"COLL_LINK_SPEED", COLLI_PARAM_STRING, "", 0, 0,
         "Speed of this host's link to the other hosts, as 100mbit or 2.5gbit: a host that is "
         "slower than others gets less to do. measure: all hosts measure at creation, in up to a "
         "second, unless they have a number here. Empty: what the kernel says of network cards, or "
         "measured if hosts are far and have no levels. See docs/levels.md."},
    [COLLI_PARAM_LEVELS] =
        {"COLL_LEVELS", COLLI_PARAM_STRING, "", 0, 0,
         "Where this host is, from the widest group of hosts to the narrowest, as paris/rack7: "
         "hosts of one group are nearer to each other than to others. What lies between groups may "
         "follow a name, as speed and round trip: paris@200mbit,20ms/rack7. file:PATH: a file "
         "that says it of all hosts. On all hosts or on none. Empty: as Slurm's topology says, if "
         "it does, or as measured. none: there are none. See docs/levels.md."},
    [COLLI_PARAM_PORT_RANGE] = {"COLL_PORT_RANGE", COLLI_PARAM_STRING, "", 0, 0,
                                "TCP ports to listen on: 6000-6099, or a single number. Empty: any "
                                "free port."},
    [COLLI_PARAM_TCP_IFNAME] =
        {"COLL_TCP_IFNAME", COLLI_PARAM_STRING, "", 0, 0,
         "Network interfaces to use: a comma-separated list of name prefixes; ^name excludes, "
         "=name matches the whole name. Empty, or with ^ only: all others but docker*, veth* and "
         "virbr*, or these if there are no others. Between hosts, several are used at once. A "
         "host offers at most six addresses: one of each family first, then those of cards."},
    [COLLI_PARAM_TCP_TRAFFIC] =
        {"COLL_TCP_TRAFFIC_CLASS", COLLI_PARAM_INT, "0", 0, 252,
         "Traffic class of what ranks send each other over TCP: four times the DSCP, a multiple of "
         "4. Ranks may differ: each sets what it sends. See docs/topology.md."},
    [COLLI_PARAM_TCP_SOCKETS] =
        {"COLL_TCP_SOCKETS", COLLI_PARAM_INT, "0", 0, 4,
         "TCP sockets from each network interface to another host's, where the network limits "
         "each. Of two ranks the larger number counts. 0: one, or one for each card of the first "
         "interface, if it is a bond that deals out connections. See docs/topology.md."},
    [COLLI_PARAM_TCP_CONGESTION] =
        {"COLL_TCP_CONGESTION", COLLI_PARAM_STRING, "", 0, 0,
         "Congestion control of TCP connections between ranks: one of those that the kernel has, "
         "as cubic or bbr. Ranks may differ: each sets it for what it sends. Empty: the "
         "system's or the route's, but Reno inside a machine (not for rails)."},
    [COLLI_PARAM_VERBS_DEVICE] =
        {"COLL_VERBS_DEVICE", COLLI_PARAM_STRING, "", 0, 0,
         "InfiniBand and RoCE devices to use: a comma-separated list of name prefixes; ^name "
         "excludes, =name matches the whole name, name:2 only that port. Empty: all. See "
         "docs/verbs.md."},
    [COLLI_PARAM_VERBS_PORT] = {"COLL_VERBS_PORT", COLLI_PARAM_INT, "", 1, 255,
                                "Port to use on each of these devices. Empty: all that are up."},
    [COLLI_PARAM_VERBS_GID_INDEX] = {"COLL_VERBS_GID_INDEX", COLLI_PARAM_INT, "", 0, 255,
                                     "Entry of the port's GID table to use, as `ibv_devinfo -v` "
                                     "lists it. Empty: entry 0 on InfiniBand; on RoCE, version 2 "
                                     "before 1, and addresses that COLL_TCP_IFNAME allows first."},
    [COLLI_PARAM_VERBS_TRAFFIC] = {"COLL_VERBS_TRAFFIC_CLASS", COLLI_PARAM_INT, "0", 0, 255,
                                   "Traffic class of verbs packets: four times the DSCP on RoCE."},
    [COLLI_PARAM_VERBS_SERVICE] = {"COLL_VERBS_SERVICE_LEVEL", COLLI_PARAM_INT, "0", 0, 15,
                                   "Service level of verbs packets: the priority on RoCE."},
    [COLLI_PARAM_VERBS_TIMEOUT] = {"COLL_VERBS_TIMEOUT", COLLI_PARAM_INT, "18", 1, 22,
                                   "How long verbs devices wait for an answer before they resend a "
                                   "packet: 4.096 us times 2 to this power (18: 1.07 s)."},
    [COLLI_PARAM_VERBS_RETRY] =
        {"COLL_VERBS_RETRY", COLLI_PARAM_INT, "7", 0, 7,
         "How often verbs devices resend an unanswered packet before the peer counts as lost."},
    [COLLI_PARAM_CHECK_FINITE] =
        {"COLL_CHECK_FINITE", COLLI_PARAM_WORD, "off", COLLI_CHECK_FINITE_OFF,
         COLLI_CHECK_FINITE_ERROR,
         "Whether the input of collectives is searched for NaN and infinity before it is sent: "
         "off, "
         "warn (each rank logs its first: operation, element, value) or error (the operation fails "
         "on all ranks, which name the rank that had it). See docs/types.md."},
    [COLLI_PARAM_DATA_CHECK] =
        {"COLL_DATA_CHECK", COLLI_PARAM_WORD, "none", COLLI_DATA_CHECK_NONE, COLLI_DATA_CHECK_MAC,
         "How data is checked on its way between ranks: none, crc32c (checksums find damage, in "
         "shared memory too) or mac (codes that need the secret also find what others have "
         "altered, "
         "repeated or added; not in shared memory, where only ranks write). The same on all ranks. "
         "See docs/reliability.md."},
    [COLLI_PARAM_TLS] =
        {"COLL_TLS", COLLI_PARAM_INT, "0", 0, 1,
         "1: encrypt everything that ranks send over sockets, with TLS 1.3. InfiniBand and RoCE "
         "are "
         "not used then; shared memory is, and needs none. The same on all ranks. See "
         "docs/encryption.md."},
    [COLLI_PARAM_SLOT_BYTES] =
        {"COLL_SLOT_BYTES", COLLI_PARAM_BYTES, "64K", 4096, 1 << 20,
         "Size of the slots through which data is pipelined; a multiple of 64, the same on all "
         "ranks. Default: 64K, or 128K if some pair of ranks uses TCP."},
    [COLLI_PARAM_SLOT_COUNT] =
        {"COLL_SLOT_COUNT", COLLI_PARAM_INT, "8", 2, 64,
         "Number of slots for each connection and direction. The same on all ranks."},
    [COLLI_PARAM_GPU_MODE] =
        {"COLL_GPU_MODE", COLLI_PARAM_WORD, "auto", 0, 4,
         "How calls in streams of CUDA run: staged (on copies in host memory), ordered (in GPU "
         "memory), spin (the same, without the host, with a GPU for each rank), meet (the same, "
         "for "
         "threads that share a GPU), or auto: the last of these that is possible. The same on all "
         "ranks; see docs/gpu.md."},
    [COLLI_PARAM_GPU_SLOT_BYTES] =
        {"COLL_GPU_SLOT_BYTES", COLLI_PARAM_BYTES, "32M", 4096, 1 << 30,
         "Size of the slots of GPU memory through which calls in streams move data; a multiple of "
         "64, the same on all ranks. A communicator takes five of them on each rank's GPU. "
         "Long calls that are staged are copied in parts, four of which are as long as the "
         "shortest slot, of 1 MiB at most."},
    [COLLI_PARAM_GPU_DIRECT_RDMA] =
        {"COLL_GPU_DIRECT_RDMA", COLLI_PARAM_WORD, "auto", COLLI_GPU_RDMA_AUTO, COLLI_GPU_RDMA_OFF,
         "Whether InfiniBand and RoCE devices read and write GPU memory themselves, in long "
         "messages between two ranks and long collectives in streams: auto (where GPU, drivers "
         "and device can) or off (messages are copied in host memory; collectives if any rank "
         "says so). Ranks may differ; see docs/verbs.md."},
    [COLLI_PARAM_TOPO_FILE] =
        {"COLL_TOPO_FILE", COLLI_PARAM_STRING, "", 0, 0,
         "Description of the machine that coll_topo shows instead of this one: an hwloc XML file, "
         "or an hwloc synthetic description. Empty: this machine."},
    [COLLI_PARAM_FAULT] =
        {"COLL_FAULT", COLLI_PARAM_STRING, "", 0, 0,
         "Faults to inject into every transport, for tests: a comma-separated list of "
         "seed=N, again=P, pending=P, refuse=P (percent of the calls), delay_us=N, "
         "drop_after=K, and cut, stall, flip, lose, replay or swap=A-B@K. Empty: none."},
    [COLLI_PARAM_SSH] = {"COLL_SSH", COLLI_PARAM_STRING, "ssh", 0, 0,
                         "Program, with options, that collrun uses to start ranks on other hosts."},
    [COLLI_PARAM_RANK] = {"COLL_RANK", COLLI_PARAM_INT, "", 0, INT_MAX,
                          "This process's rank. Set by launchers."},
    [COLLI_PARAM_NRANKS] = {"COLL_NRANKS", COLLI_PARAM_INT, "", 1, INT_MAX,
                            "Number of ranks. Set by launchers."},
    [COLLI_PARAM_LOCAL_RANK] = {"COLL_LOCAL_RANK", COLLI_PARAM_INT, "", 0, INT_MAX,
                                "This process's number among the ranks of its host. Set by "
                                "launchers."},
    [COLLI_PARAM_LOCAL_NRANKS] = {"COLL_LOCAL_NRANKS", COLLI_PARAM_INT, "", 1, INT_MAX,
                                  "Number of ranks on this host. Set by launchers."},
    [COLLI_PARAM_CPUS] =
        {"COLL_CPUS", COLLI_PARAM_STRING, "", 0, 0,
         "Processors, like 0-3,8, to which a rank moves while another program uses "
         "the one to which it is bound. Set by collrun unless --bind is given. "
         "Empty: it stays."},
    [COLLI_PARAM_ROOT] = {"COLL_ROOT", COLLI_PARAM_STRING, "", 0, 0,
                          "Where rank 0 listens: address:port, [v6]:port or name:port. Set by "
                          "launchers."},
    [COLLI_PARAM_ROOT_FD] = {"COLL_ROOT_FD", COLLI_PARAM_INT, "", 0, INT_MAX,
                             "Rank 0 only: descriptor of a socket that already listens there. Set "
                             "by launchers."},
    [COLLI_PARAM_SECRET_FD] = {"COLL_SECRET_FD", COLLI_PARAM_INT, "", 0, INT_MAX,
                               "Descriptor from which the secret that all ranks share is read: 64 "
                               "hexadecimal digits. It is closed then. Set by collrun."},
    [COLLI_PARAM_SECRET_FILE] = {"COLL_SECRET_FILE", COLLI_PARAM_STRING, "", 0, 0,
                                 "File with the secret, which must belong to the user or to root, "
                                 "and which nobody else may "
                                 "read."},
    [COLLI_PARAM_MUNGE_SOCKET] = {"COLL_MUNGE_SOCKET", COLLI_PARAM_STRING, "", 0, 0,
                                  "Socket of munged, which carries the secret under srun "
                                  "--mpi=none. Empty: the usual one."},
    [COLLI_PARAM_RESPAWN] = {"COLL_RESPAWN", COLLI_PARAM_INT, "", 1, INT_MAX,
                             "How often this rank was started again, while the others continued. "
                             "Set by collrun --respawn."},
    [COLLI_PARAM_JOIN_FILE] =
        {"COLL_JOIN_FILE", COLLI_PARAM_STRING, "", 0, 0,
         "A file through which rank 0 can pass the id for coll_comm_join() to "
         "ranks that are started again. Set by collrun --respawn."},
    [COLLI_PARAM_SECRET] = {"COLL_SECRET", COLLI_PARAM_STRING, "", 0, 0,
                            "The secret itself. Erased from the environment once it is read."},
};

/* Settings that name code to run, or a file. If the process has more rights than its caller
 * (set-uid, set-gid, file capabilities), whoever sets the environment must choose neither. */
static const bool trusted[COLLI_PARAM_COUNT] = {
    [COLLI_PARAM_TRACE] = true,
    [COLLI_PARAM_PROFILER] = true,
    [COLLI_PARAM_TRANSPORT_PATH] = true,
    [COLLI_PARAM_TUNER] = true,
    [COLLI_PARAM_CALIBRATION] = true,
    [COLLI_PARAM_TOPO_FILE] = true,
    [COLLI_PARAM_SSH] = true,
    [COLLI_PARAM_SECRET_FILE] = true,
    [COLLI_PARAM_MUNGE_SOCKET] = true,
};

/* The words of WORD settings; numbered from colli_param_info.min. */
static const char *const words[COLLI_PARAM_COUNT][5] = {
    [COLLI_PARAM_LOG] = {"none", "error", "warn", "info", "debug"},
    [COLLI_PARAM_DETERMINISTIC] = {"off", "on", "ordered"},
    [COLLI_PARAM_ACCUMULATE] = {"native", "float32"},
    [COLLI_PARAM_PROGRESS] = {"off", "on"},
    [COLLI_PARAM_SHRINK_QUORUM] = {"majority", "reachable"},
    [COLLI_PARAM_CHECK_FINITE] = {"off", "warn", "error"},
    [COLLI_PARAM_DATA_CHECK] = {"none", "crc32c", "mac"},
    [COLLI_PARAM_GPU_MODE] = {"auto", "staged", "ordered", "spin", "meet"},
    [COLLI_PARAM_GPU_DIRECT_RDMA] = {"auto", "off"},
};

const char *colli_param_word(colli_param_id id, long long number) {
  const colli_param_info *info = &colli_param_table[id];
  return number >= info->min && number <= info->max ? words[id][number - info->min] : "?";
}

/* Parses a whole number, for BYTES with a suffix K, M or G; false if malformed or too large. */
static bool parse_number(const char *text, colli_param_type type, long long *number) {
  char *end;
  errno = 0;
  long long value = strtoll(text, &end, 10);
  if (end == text || errno || strchr(" \t\n", *text))
    return false;
  int shift = 0;
  if (type == COLLI_PARAM_BYTES && *end) {
    static const char suffixes[] = "KMGkmg";
    const char *suffix = strchr(suffixes, *end);
    if (!suffix)
      return false;
    shift = 10 * (int)((suffix - suffixes) % 3 + 1);
    end++;
  }
  if (*end || value > (LLONG_MAX >> shift) || value < (LLONG_MIN >> shift))
    return false;
  *number = value * (1ll << shift);
  return true;
}

/* Number of single-letter changes that turn a into b (Levenshtein); names are short. */
static int edit_distance(const char *a, const char *b) {
  int row[64];
  int columns = (int)strlen(b);
  if (columns > 63 || strlen(a) > 63)
    return INT_MAX;
  for (int j = 0; j <= columns; j++)
    row[j] = j;
  for (int i = 1; a[i - 1]; i++) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= columns; j++) {
      int cost = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      int least = row[j] < row[j - 1] ? row[j] : row[j - 1];
      row[j] = least + 1 < cost ? least + 1 : cost;
    }
  }
  return row[columns];
}

/* Reports an unknown variable; its value is not shown, as it may be a secret. */
static coll_status fail_unknown(const char *name, coll_error *error) {
  int best = 0;
  for (int i = 1; i < COLLI_PARAM_COUNT; i++)
    if (edit_distance(name, colli_param_table[i].name) <
        edit_distance(name, colli_param_table[best].name))
      best = i;
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "%s is set in the environment but libcoll knows no such setting; did you "
                         "mean %s? Unset it, or see docs/parameters.md",
                         name, colli_param_table[best].name);
}

/* Reports a value that its setting does not accept. */
static coll_status fail_malformed(colli_param_id id, const char *text, coll_error *error) {
  const colli_param_info *info = &colli_param_table[id];
  char list[64] = "";
  for (long long i = info->min; info->type == COLLI_PARAM_WORD && i <= info->max; i++) {
    size_t used = strlen(list);
    snprintf(list + used, sizeof(list) - used, "%s%s",
             i == info->min   ? ""
             : i == info->max ? " or "
                              : ", ",
             colli_param_word(id, i));
  }
  if (*list)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create", "%s=%s: it takes %s",
                           info->name, text, list);
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "%s=%s: it takes a whole number from %lld to %lld%s", info->name, text,
                         info->min, info->max,
                         info->type == COLLI_PARAM_BYTES
                             ? " that is a multiple of 64; the suffixes K, M and G are allowed"
                             : "");
}

/* Checks the text of one setting and reads its number. */
static coll_status parse_value(colli_params *params, colli_param_id id, coll_error *error) {
  const colli_param_info *info = &colli_param_table[id];
  const char *text = params->text[id];
  params->number[id] = -1;
  if (info->type == COLLI_PARAM_STRING || !*text)
    return COLL_OK;
  for (long long i = info->min; info->type == COLLI_PARAM_WORD && i <= info->max; i++)
    if (strcmp(text, colli_param_word(id, i)) == 0) {
      params->number[id] = i;
      return COLL_OK;
    }
  if (info->type == COLLI_PARAM_WORD)
    return fail_malformed(id, text, error);
  long long number;
  if (!parse_number(text, info->type, &number) || number < info->min || number > info->max ||
      (info->type == COLLI_PARAM_BYTES && number % 64 != 0))
    return fail_malformed(id, text, error);
  params->number[id] = number;
  return COLL_OK;
}

/* Finds a setting by its name, the first `length` bytes of `name`; -1 if there is none. */
static int find_setting(const char *name, size_t length) {
  for (int i = 0; i < COLLI_PARAM_COUNT; i++)
    if (strlen(colli_param_table[i].name) == length &&
        memcmp(colli_param_table[i].name, name, length) == 0)
      return i;
  return -1;
}

/* Whether a text is in the storage. If not, it is a default from the table. */
static bool is_stored(const colli_params *params, const char *text) {
  uintptr_t at = (uintptr_t)text, begin = (uintptr_t)params->storage;
  return at >= begin && at < begin + sizeof(params->storage);
}

/* Bytes of the storage that are in use. */
static size_t storage_used(const colli_params *params) {
  size_t used = 0;
  for (int i = 0; i < COLLI_PARAM_COUNT; i++)
    if (is_stored(params, params->text[i])) {
      size_t end = (size_t)(params->text[i] - params->storage) + strlen(params->text[i]) + 1;
      used = end > used ? end : used;
    }
  return used;
}

bool colli_params_set_text(colli_params *params, colli_param_id id, const char *text) {
  size_t used = storage_used(params), bytes = strlen(text) + 1;
  if (bytes > sizeof(params->storage) - used)
    return false;
  params->text[id] = memcpy(params->storage + used, text, bytes);
  return true;
}

/* Whether a setting names code to run or a file, which others may not choose. */
static bool needs_trust(int id, const char *value) {
  return trusted[id] || (id == COLLI_PARAM_LEVELS &&
                         strncmp(value, COLLI_LEVELS_FILE, strlen(COLLI_LEVELS_FILE)) == 0);
}

/* Reads one "NAME=value" of the environment. */
static coll_status load_variable(colli_params *params, const char *entry, coll_error *error) {
  const char *equals = strchr(entry, '=');
  if (strncmp(entry, PREFIX, strlen(PREFIX)) != 0 || !equals)
    return COLL_OK;
  int id = find_setting(entry, (size_t)(equals - entry));
  if (id < 0) {
    char name[64];
    snprintf(name, sizeof(name), "%.*s", (int)(equals - entry), entry);
    return fail_unknown(name, error);
  }
  if (id == COLLI_PARAM_SECRET || !equals[1])
    return COLL_OK; /* an empty value counts as unset */
  if (needs_trust(id, equals + 1) && getauxval(AT_SECURE)) {
    params->ignored[id] = true;
    return COLL_OK;
  }
  if (!colli_params_set_text(params, (colli_param_id)id, equals + 1))
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "%s is too long: all COLL_ settings together must fit %zu bytes",
                           colli_param_table[id].name, sizeof(params->storage));
  params->from_env[id] = true;
  return COLL_OK;
}

coll_status colli_params_load(colli_params *params, coll_error *error) {
  for (int i = 0; i < COLLI_PARAM_COUNT; i++) {
    params->text[i] = colli_param_table[i].fallback;
    params->from_env[i] = params->ignored[i] = false;
  }
  coll_status status = COLL_OK;
  for (char **entry = environ; entry && *entry && status == COLL_OK; entry++)
    status = load_variable(params, *entry, error);
  for (int i = 0; i < COLLI_PARAM_COUNT && status == COLL_OK; i++)
    status = parse_value(params, (colli_param_id)i, error);
  return status;
}

const char *colli_params_text(const colli_params *params, const char *name) {
  int id = find_setting(name, strlen(name));
  return id < 0 ? NULL : params->text[id];
}

void colli_params_copy(colli_params *to, const colli_params *from) {
  memcpy(to, from, offsetof(colli_params, storage) + storage_used(from));
  for (int i = 0; i < COLLI_PARAM_COUNT; i++)
    if (is_stored(from, from->text[i]))
      to->text[i] = to->storage + (from->text[i] - from->storage);
}

void colli_params_write_doc(FILE *out) {
  static const char *const types[] = {"text", "number", "bytes", "word"};
  fputs(
      "# Settings\n\n"
      "Generated from the table in libcoll/base/param.c. All settings are environment variables.\n"
      "A COLL_ variable that is not in this list is an error, and so is a value out of bounds.\n"
      "An empty value counts as unset. Sizes accept the suffixes K, M and G (1024, 1024²,\n"
      "1024³).\n\n"
      "| name | type | default | from | to | meaning |\n"
      "|---|---|---|---|---|---|\n",
      out);
  for (int i = 0; i < COLLI_PARAM_COUNT; i++) {
    const colli_param_info *info = &colli_param_table[i];
    fprintf(out, "| %s | %s | %s |", info->name, types[info->type],
            *info->fallback ? info->fallback : "–");
    if (info->type == COLLI_PARAM_STRING || info->type == COLLI_PARAM_WORD)
      fputs(" – | – |", out);
    else
      fprintf(out, " %lld | %lld |", info->min, info->max);
    fprintf(out, " %s%s |\n", info->help,
            trusted[i] ? " Ignored in programs that have more rights than their caller." : "");
  }
}
