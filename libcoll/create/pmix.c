/* pmix.c: rank and id from a launcher that speaks PMIx. */
#include <dlfcn.h>
#include <errno.h>
#include <pmix.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/create/carrier.h"
#include "libcoll/wireup/slow_call.h"

#define LIBRARY "libpmix.so.2"

/* The functions that are used. */
typedef struct pmix_lib {
  __typeof__(&PMIx_Init) init;
  __typeof__(&PMIx_Finalize) finalize;
  __typeof__(&PMIx_Put) put;
  __typeof__(&PMIx_Commit) commit;
  __typeof__(&PMIx_Fence) fence;
  __typeof__(&PMIx_Get) get;
  __typeof__(&PMIx_Error_string) error_string;
} pmix_lib;

/* PMIx lets a process be a client only once, so this state is per process. */
static struct {
  pthread_mutex_t mutex; /* held by the thread of a call, also while PMIx waits */
  pmix_lib lib;
  pmix_proc_t self;
  pid_t pid;       /* the process that joined; 0: none */
  unsigned shared; /* ids that were shared */
} client = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* One exchange with the launcher, made by a thread. */
typedef struct exchange {
  int rank, nranks;
  bool shares;                  /* others check in at this rank */
  char id[COLLI_ID_DIGITS + 1]; /* to share; empty: making it has failed */
  /* Shared by rank 0, and by the rank at which this one checks in. */
  char root[COLLI_ID_DIGITS + 1], parent[COLLI_ID_DIGITS + 1];
  const char *call; /* the function that failed, or NULL */
  char reason[200]; /* why */
  coll_status status;
} exchange;

/* ---- calls, in the thread -------------------------------------------------------------------- */

/* Notes that a function failed. */
static void fail(exchange *e, coll_status status, const char *call, const char *reason) {
  e->status = status;
  e->call = call;
  snprintf(e->reason, sizeof(e->reason), "%s", reason);
}

/* Notes what PMIx said. */
static bool succeeded(exchange *e, const char *call, pmix_status_t result) {
  if (result == PMIX_SUCCESS)
    return true;
  fail(e, COLL_ERR_SYSTEM, call, client.lib.error_string(result));
  return false;
}

/* Loads the library. It stays loaded, because it has threads. Its own plug-ins look for its
 * functions, so they are visible to libraries that are loaded later. */
static bool load(exchange *e) {
  static const struct {
    const char *name;
    size_t offset;
  } functions[] = {
      {"PMIx_Init", offsetof(pmix_lib, init)},
      {"PMIx_Finalize", offsetof(pmix_lib, finalize)},
      {"PMIx_Put", offsetof(pmix_lib, put)},
      {"PMIx_Commit", offsetof(pmix_lib, commit)},
      {"PMIx_Fence", offsetof(pmix_lib, fence)},
      {"PMIx_Get", offsetof(pmix_lib, get)},
      {"PMIx_Error_string", offsetof(pmix_lib, error_string)},
  };
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  for (size_t i = 0; library && i < sizeof(functions) / sizeof(*functions); i++) {
    void *function = dlsym(library, functions[i].name);
    memcpy((char *)&client.lib + functions[i].offset, &function, sizeof(function));
    if (!function)
      library = NULL;
  }
  if (library)
    return true;
  const char *reason = dlerror();
  fail(e, COLL_ERR_INVALID_USAGE, "dlopen", reason ? reason : "unknown reason");
  return false;
}

/* Leaves the launcher's job when the process exits. Leaving earlier would disconnect an MPI in this
 * process as well, and launchers count a client that never leaves as failed. */
static void leave_at_exit(void) {
  if (client.pid == getpid())
    client.lib.finalize(NULL, 0);
}

/* Becomes a client, once in this process. */
static bool become_client(exchange *e) {
  if (client.pid == getpid())
    return true;
  if (client.pid != 0) {
    fail(e, COLL_ERR_INVALID_USAGE, "PMIx_Init",
         "this process was forked from one that uses PMIx, whose connection it cannot use");
    return false;
  }
  if (!load(e) || !succeeded(e, "PMIx_Init", client.lib.init(&client.self, NULL, 0)))
    return false;
  client.pid = getpid();
  atexit(leave_at_exit);
  return true;
}

/* Gets a value of a rank or, with PMIX_RANK_WILDCARD, of the job. NULL: it failed. */
static pmix_value_t *get(exchange *e, pmix_rank_t rank, const char *key, pmix_data_type_t type) {
  pmix_proc_t from = client.self;
  pmix_value_t *value = NULL;
  from.rank = rank;
  if (!succeeded(e, "PMIx_Get", client.lib.get(&from, key, NULL, 0, &value)))
    return NULL;
  if (value->type == type)
    return value;
  fail(e, COLL_ERR_SYSTEM, "PMIx_Get", "the value has an unexpected type");
  free(value);
  return NULL;
}

/* Becomes a client, and asks for its rank and the number of ranks. */
static void join(void *arg) {
  exchange *e = arg;
  pthread_mutex_lock(&client.mutex);
  pmix_value_t *size =
      become_client(e) ? get(e, PMIX_RANK_WILDCARD, PMIX_JOB_SIZE, PMIX_UINT32) : NULL;
  if (size) {
    e->rank = (int)client.self.rank;
    e->nranks = (int)size->data.uint32;
    free(size);
  }
  pthread_mutex_unlock(&client.mutex);
}

/* Passes this rank's id on. */
static bool put_id(exchange *e, const char *key) {
  pmix_value_t value = {.type = PMIX_STRING, .data.string = e->id};
  return succeeded(e, "PMIx_Put", client.lib.put(PMIX_GLOBAL, key, &value)) &&
         succeeded(e, "PMIx_Commit", client.lib.commit());
}

/* Waits for all ranks, and distributes the values that they have put. */
static bool meet(exchange *e) {
  pmix_info_t collect = {.key = PMIX_COLLECT_DATA, .value = {.type = PMIX_BOOL, .data.flag = true}};
  return succeeded(e, "PMIx_Fence", client.lib.fence(NULL, 0, &collect, 1));
}

/* Takes the id that a rank has passed on. */
static bool get_id(exchange *e, int rank, const char *key, char id[COLLI_ID_DIGITS + 1]) {
  pmix_value_t *value = get(e, (pmix_rank_t)rank, key, PMIX_STRING);
  if (!value)
    return false;
  const bool sound = strlen(value->data.string) == COLLI_ID_DIGITS;
  char reason[64];
  snprintf(reason, sizeof(reason),
           *value->data.string ? "rank %d's id has another length"
                               : "rank %d failed; see its error",
           rank);
  if (sound)
    memcpy(id, value->data.string, COLLI_ID_DIGITS + 1);
  else
    fail(e, COLL_ERR_SYSTEM, "PMIx_Get", reason);
  explicit_bzero(value->data.string, strlen(value->data.string));
  free(value->data.string);
  free(value);
  return sound;
}

/* Shares ids. A daemon may ask for a rank's values only once, and may then have only those of an
 * MPI in the same processes: only a fence over all ranks is sure to distribute later ones. */
static void share(void *arg) {
  exchange *e = arg;
  char key[40];
  pthread_mutex_lock(&client.mutex);
  snprintf(key, sizeof(key), "libcoll.id.%u", client.shared++);
  const int parent = colli_carrier_parent(e->rank, e->nranks);
  if ((!e->shares || put_id(e, key)) && meet(e) && e->rank != 0 && get_id(e, 0, key, e->root)) {
    memcpy(e->parent, e->root, sizeof(e->parent));
    if (parent != 0)
      get_id(e, parent, key, e->parent);
  }
  pthread_mutex_unlock(&client.mutex);
}

/* ---- calls with a deadline ------------------------------------------------------------------- */

/* Frees an exchange, which may have the secret in it. */
static void discard(void *arg) {
  explicit_bzero(arg, sizeof(exchange));
  free(arg);
}

static exchange *make_exchange(int rank, coll_error *error) {
  exchange *e = calloc(1, sizeof(*e));
  if (e)
    e->rank = rank;
  else
    colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for an id");
  return e;
}

/* Makes an exchange. Its owner is the caller if COLL_OK is returned, else it is discarded. */
static coll_status run(void (*make)(void *), exchange *e, uint64_t deadline_ns, const char *what,
                       coll_error *error) {
  const char *syscall;
  int failed = colli_slow_call(make, discard, e, deadline_ns, &syscall);
  if (failed == ETIMEDOUT)
    return colli_error_set(
        error, COLL_ERR_TIMEOUT, "create",
        "%s took too long; look whether all ranks were started and the launcher's "
        "daemons answer, or raise COLL_CREATE_TIMEOUT_MS",
        what);
  coll_status status = failed ? COLL_ERR_SYSTEM : e->status;
  if (failed)
    colli_error_sys(error, status, "create", syscall, failed, "%s needs a thread; see ulimit -u",
                    what);
  else if (status != COLL_OK)
    colli_error_set(error, status, "create",
                    "%s failed in %s: %s; without PMIx, export COLL_ROOT and COLL_SECRET_FILE",
                    what, e->call, e->reason);
  if (status != COLL_OK)
    discard(e);
  return status;
}

/* Whether the launcher speaks PMIx. */
static bool offered(const colli_params *params) {
  /* Not in set-uid programs: PMIx has variables of its own that name code. */
  return secure_getenv("PMIX_NAMESPACE") && getenv("PMIX_RANK") && !colli_carrier_overruled(params);
}

/* Joins the launcher's job. The connection to the launcher stays open until the process exits,
 * since other users of PMIx in this process (an MPI) may still need it. */
static coll_status join_job(const colli_params *params, uint64_t deadline_ns, int *rank,
                            int *nranks, coll_error *error) {
  (void)params;
  exchange *e = make_exchange(0, error);
  if (!e)
    return COLL_ERR_NO_MEMORY;
  coll_status status = run(join, e, deadline_ns, "joining the launcher's job by PMIx", error);
  if (status != COLL_OK)
    return status;
  *rank = e->rank;
  *nranks = e->nranks;
  discard(e);
  return COLL_OK;
}

/* Shares ids. */
static coll_status share_id(const colli_params *params, uint64_t deadline_ns, int rank, int nranks,
                            colli_id *id, coll_error *error) {
  (void)params;
  exchange *e = make_exchange(rank, error);
  if (!e)
    return COLL_ERR_NO_MEMORY;
  e->nranks = nranks;
  e->shares = !id || id->listen_fd >= 0;
  if (id && id->listen_fd >= 0)
    colli_id_write(id, e->id);
  coll_status status =
      run(share, e, deadline_ns, "waiting for all ranks of the launcher's job in PMIx", error);
  if (status != COLL_OK)
    return status;
  if (id && rank != 0)
    status = colli_carrier_place(e->root, e->parent, id, error);
  discard(e);
  return status;
}

const colli_carrier colli_carrier_pmix = {
    .fan_out = COLLI_CARRIER_FAN_OUT, .offered = offered, .join = join_job, .share = share_id};
