/*
 * munge.c: messages that only the same user can open, through the daemon munged, which all hosts of
 * a Slurm cluster run. libmunge is loaded at run time, and not the program munge: a rank may have
 * threads and an MPI, which a fork() may hurt, and the secret would be in one more process.
 */
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/create/seal.h"
#include "libcoll/wireup/slow_call.h"

#define LIBRARY "libmunge.so.2"

/* From munge.h of that version. */
enum { SUCCESS = 0, OPT_SOCKET = 8, OPT_UID_RESTRICTION = 9 };
enum { E_BAD_ARG = 2, E_SOCKET = 6 };

typedef struct munge_lib {
  void *(*ctx_create)(void);
  void (*ctx_destroy)(void *ctx);
  int (*ctx_set)(void *ctx, int option, ...);
  int (*encode)(char **credential, void *ctx, const void *data, int bytes);
  int (*decode)(const char *credential, void *ctx, void **data, int *bytes, uid_t *uid, gid_t *gid);
  const char *(*error_text)(int error);
} munge_lib;

/* One request to the daemon, made by a thread: libmunge has no deadline. */
typedef struct request {
  munge_lib lib;
  bool encode;
  char socket[256];
  uint8_t in[COLLI_SEALED_MAX + 1]; /* data, or a credential as a string */
  size_t in_bytes;
  uint8_t out[COLLI_SEALED_MAX];
  size_t out_bytes;
  coll_status status;
  char reason[200];
} request;

/* Frees a request, which has a secret in it. */
static void discard(void *arg) {
  explicit_bzero(arg, sizeof(request));
  free(arg);
}

/* Notes a failure. */
static void fail(request *r, coll_status status, const char *reason) {
  r->status = status;
  snprintf(r->reason, sizeof(r->reason), "%s", reason ? reason : "unknown reason");
}

/* Loads the library. */
static bool load(request *r) {
  static const struct {
    const char *name;
    size_t offset;
  } functions[] = {
      {"munge_ctx_create", offsetof(munge_lib, ctx_create)},
      {"munge_ctx_destroy", offsetof(munge_lib, ctx_destroy)},
      {"munge_ctx_set", offsetof(munge_lib, ctx_set)},
      {"munge_encode", offsetof(munge_lib, encode)},
      {"munge_decode", offsetof(munge_lib, decode)},
      {"munge_strerror", offsetof(munge_lib, error_text)},
  };
  void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  for (size_t i = 0; library && i < sizeof(functions) / sizeof(*functions); i++) {
    void *function = dlsym(library, functions[i].name);
    memcpy((char *)&r->lib + functions[i].offset, &function, sizeof(function));
    if (!function)
      library = NULL;
  }
  if (!library)
    fail(r, COLL_ERR_INVALID_USAGE, dlerror());
  return library != NULL;
}

/* Keeps a result, and erases and frees what libmunge returned. */
static void take(request *r, void *result, size_t bytes) {
  if (bytes > sizeof(r->out)) {
    fail(r, COLL_ERR_AUTH, "its message is too long");
  } else {
    memcpy(r->out, result, bytes);
    r->out_bytes = bytes;
  }
  explicit_bzero(result, bytes);
  free(result);
}

/* Asks for a credential that only this user can decode. */
static int encode(request *r, void *ctx) {
  char *credential = NULL;
  int failed = r->lib.ctx_set(ctx, OPT_UID_RESTRICTION, geteuid());
  if (failed == SUCCESS)
    failed = r->lib.encode(&credential, ctx, r->in, (int)r->in_bytes);
  if (failed == SUCCESS)
    take(r, credential, strlen(credential));
  else
    free(credential);
  return failed;
}

/* Opens a credential, which this user must have made. */
static int decode(request *r, void *ctx) {
  void *data = NULL;
  int bytes = 0;
  uid_t uid = (uid_t)-1;
  gid_t gid;
  int failed = r->lib.decode((const char *)r->in, ctx, &data, &bytes, &uid, &gid);
  if (failed == SUCCESS && uid == geteuid())
    take(r, data, (size_t)bytes);
  else if (failed == SUCCESS)
    fail(r, COLL_ERR_AUTH, "a process of another user answers");
  if (failed != SUCCESS || uid != geteuid())
    free(data);
  return failed;
}

/* The call. */
static void ask(void *arg) {
  request *r = arg;
  if (!load(r))
    return;
  void *ctx = r->lib.ctx_create();
  if (!ctx) {
    fail(r, COLL_ERR_NO_MEMORY, "out of memory");
    return;
  }
  int failed = *r->socket ? r->lib.ctx_set(ctx, OPT_SOCKET, r->socket) : SUCCESS;
  if (failed == SUCCESS)
    failed = r->encode ? encode(r, ctx) : decode(r, ctx);
  if (failed != SUCCESS)
    fail(r,
         r->encode || failed == E_SOCKET || failed == E_BAD_ARG ? COLL_ERR_INVALID_USAGE
                                                                : COLL_ERR_AUTH,
         r->lib.error_text(failed));
  r->lib.ctx_destroy(ctx);
}

/* Makes a request by the deadline. It is the caller's if COLL_OK is returned. */
static coll_status run(request *r, uint64_t deadline_ns, coll_error *error) {
  const char *syscall;
  int failed = colli_slow_call(ask, discard, r, deadline_ns, &syscall);
  if (failed == ETIMEDOUT)
    return colli_error_set(error, COLL_ERR_TIMEOUT, "create",
                           "munged does not answer; look after that daemon, or export COLL_SECRET");
  coll_status status = failed ? COLL_ERR_SYSTEM : r->status;
  if (failed)
    colli_error_sys(error, status, "create", syscall, failed,
                    "munge needs a thread; see ulimit -u");
  else if (status != COLL_OK)
    colli_error_set(error, status, "create",
                    "munge cannot carry the secret (%s): start munged, name its socket in "
                    "COLL_MUNGE_SOCKET, export COLL_SECRET or COLL_SECRET_FILE, or use srun "
                    "--mpi=pmix or --mpi=pmi2",
                    r->reason);
  if (status != COLL_OK)
    discard(r);
  return status;
}

/* Prepares a request. */
static request *prepare(const colli_seal *seal, bool encoding, const void *in, size_t bytes,
                        coll_error *error) {
  request *r = calloc(1, sizeof(*r));
  if (!r) {
    colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for an id");
    return NULL;
  }
  r->encode = encoding;
  snprintf(r->socket, sizeof(r->socket), "%s", seal->socket);
  memcpy(r->in, in, bytes);
  r->in_bytes = bytes;
  return r;
}

/* Seals. */
static coll_status wrap_message(const colli_seal *seal, uint64_t deadline_ns, const void *data,
                                size_t bytes, uint8_t out[COLLI_SEALED_MAX], size_t *used,
                                coll_error *error) {
  request *r = prepare(seal, true, data, bytes, error);
  if (!r)
    return COLL_ERR_NO_MEMORY;
  coll_status status = run(r, deadline_ns, error);
  if (status != COLL_OK)
    return status;
  memcpy(out, r->out, r->out_bytes);
  *used = r->out_bytes;
  discard(r);
  return COLL_OK;
}

/* Opens. */
static coll_status unwrap_message(const colli_seal *seal, uint64_t deadline_ns,
                                  const uint8_t *sealed, size_t sealed_bytes, void *data,
                                  size_t bytes, coll_error *error) {
  request *r = prepare(seal, false, sealed, sealed_bytes, error);
  if (!r)
    return COLL_ERR_NO_MEMORY;
  coll_status status = run(r, deadline_ns, error);
  if (status != COLL_OK)
    return status;
  if (r->out_bytes == bytes)
    memcpy(data, r->out, bytes);
  else
    status =
        colli_error_set(error, COLL_ERR_AUTH, "create", "another program of this user answers");
  discard(r);
  return status;
}

colli_seal colli_seal_munge(const colli_params *params) {
  return (colli_seal){.wrap = wrap_message,
                      .unwrap = unwrap_message,
                      .socket = params->text[COLLI_PARAM_MUNGE_SOCKET]};
}
