/*
 * coll_base.h: version, status codes, handles, and the record of a failure. Included by coll.h.
 */
#ifndef COLL_COLL_BASE_H
#define COLL_COLL_BASE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Marks what libcoll.so exports. */
#if defined(__GNUC__)
#define COLL_API __attribute__((visibility("default")))
#else
#define COLL_API
#endif

#define COLL_VERSION_MAJOR 0
#define COLL_VERSION_MINOR 1
#define COLL_VERSION_PATCH 0
/* One number to compare versions by: 10000 * major + 100 * minor + patch. */
#define COLL_VERSION (COLL_VERSION_MAJOR * 10000 + COLL_VERSION_MINOR * 100 + COLL_VERSION_PATCH)

/* What a call returns: COLL_OK, COLL_IN_PROGRESS, or an error. The numbers never change. */
typedef enum coll_status {
  COLL_OK = 0,
  COLL_IN_PROGRESS = 1,          /* tests and waits: not complete yet */
  COLL_ERR_INVALID_ARGUMENT = 2, /* a bad argument (null, unknown type, ...) */
  COLL_ERR_INVALID_USAGE = 3,    /* the call is not allowed now (too many requests, ...) */
  COLL_ERR_SYSTEM = 4,           /* a system call failed; the record names it */
  COLL_ERR_NO_MEMORY = 5,        /* out of memory */
  COLL_ERR_TIMEOUT = 6,          /* the deadline passed; the record names the missing ranks */
  COLL_ERR_PEER_LOST = 7,        /* a rank died or left while it was still needed */
  COLL_ERR_MISMATCH = 8,         /* ranks made different calls; the record names both */
  COLL_ERR_ABORTED = 9,          /* coll_comm_abort() was called here or on another rank */
  COLL_ERR_AUTH = 10,            /* the other side does not know the communicator's secret */
  COLL_ERR_UNREACHABLE = 11,     /* no transport (or address) reaches a peer */
  COLL_ERR_PROTOCOL = 12,        /* received bytes that no libcoll of this version sends */
  COLL_ERR_UNSUPPORTED = 13,     /* not supported by this build; the message says what is */
  COLL_ERR_INTERNAL = 14         /* a bug in libcoll; please report the record */
} coll_status;

typedef struct coll_comm coll_comm;       /* opaque: one rank's membership in a communicator */
typedef struct coll_request coll_request; /* opaque: an operation, started or persistent */
typedef struct coll_window coll_window;   /* opaque: memory of all ranks that coll_put() writes */
typedef struct coll_matched coll_matched; /* opaque: a message that coll_probe() took */

/*
 * The record of a failure. Strings end with 0. Fields that do not apply are -1, 0 or "".
 * `message` is one line with all that the other fields say, and what to do about it.
 */
typedef struct coll_error {
  size_t size;        /* sizeof(coll_error) as the caller compiled it */
  coll_status status; /* why the call failed; COLL_OK: nothing has failed yet */
  int rank;           /* the rank that made this record first */
  int peer;           /* the rank that is to blame; -1: none, or one outside this communicator */
  int peer_pid;       /* the process id on its host of the one to blame, or 0 */
  int channel;        /* the channel on which it failed, or -1 */
  int step;           /* index of the step in the schedule, or -1 */
  int sys_errno;      /* errno of the failed system call, or 0 */
  uint64_t sequence;  /* number of the operation on this communicator, from 1; 0: none */
  char operation[24]; /* "allreduce", "broadcast", ..., "create" */
  char syscall[24];   /* "connect", "recvmsg", ... */
  char host[64];      /* host of `rank` */
  char peer_host[64]; /* its host */
  char message[640];
} coll_error;
#define COLL_ERROR_INIT                                                                            \
  { sizeof(coll_error), COLL_OK, -1, -1, 0, -1, -1, 0, 0, "", "", "", "", "" }

/* The COLL_VERSION of the library in use (not of the header). Any thread. */
COLL_API int coll_version(void);

/* A short constant name such as "COLL_ERR_TIMEOUT"; never NULL. Any thread. */
COLL_API const char *coll_status_name(coll_status status);

/*
 * Copies the record of the last failure on `comm`: the one that revoked it, or else that of the
 * last call with a bad argument. The caller sets error->size to sizeof(coll_error). A record with
 * status COLL_OK means that nothing has failed. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_last_error(const coll_comm *comm, coll_error *error);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_BASE_H */
