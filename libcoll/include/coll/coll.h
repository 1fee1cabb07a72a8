/*
 * coll.h: the public interface of libcoll, collective communication for C programs.
 *
 * A *communicator* (coll_comm) is one rank's membership in a group of `nranks` ranks, numbered
 * 0 .. nranks-1. A collective is called by every rank of the communicator, in the same order, with
 * the same count, type, operation and root; ranks that disagree get COLL_ERR_MISMATCH, which names
 * both calls, instead of a hang.
 *
 * Rules that hold for every call unless it says otherwise:
 *  - Every call returns a coll_status. On failure coll_last_error() tells the whole story.
 *  - Counts are in elements of `type`; sizes called "bytes" are in bytes; times are in
 * milliseconds.
 *  - Buffers belong to the caller. They must not be read (receive) or written (send, receive) by
 *    anybody else between the start and the completion of the operation.
 *  - A communicator is used by one thread at a time. coll_comm_abort() alone may be called from any
 *    thread at any moment. Different communicators may be used from different threads at once.
 *  - Nothing waits for ever: an operation that does not move for coll_config.timeout_ms, counted
 * while the rank is inside libcoll, fails. Transfers that move are never too long.
 *  - After COLL_ERR_PEER_LOST, _TIMEOUT, _MISMATCH, _ABORTED, _PROTOCOL or _SYSTEM from an
 * operation the communicator is *revoked*: each later operation on it returns that first error
 * again, at once. COLL_ERR_INVALID_ARGUMENT and _INVALID_USAGE are found before anything is sent
 * and leave the communicator as it was.
 */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define COLL_API __attribute__((visibility("default")))
#else
#define COLL_API
#endif

#define COLL_VERSION_MAJOR 0
#define COLL_VERSION_MINOR 1
#define COLL_VERSION_PATCH 0
/* One comparable number: 10000 * major + 100 * minor + patch. */
#define COLL_VERSION (COLL_VERSION_MAJOR * 10000 + COLL_VERSION_MINOR * 100 + COLL_VERSION_PATCH)

/* What a call returns: COLL_OK, COLL_IN_PROGRESS, or an error. The numbers never change. */
typedef enum coll_status {
  COLL_OK = 0,
  COLL_IN_PROGRESS = 1,          /* coll_test, coll_wait, coll_wait_any: not complete yet */
  COLL_ERR_INVALID_ARGUMENT = 2, /* an argument can never be right (null, unknown type, overflow) */
  COLL_ERR_INVALID_USAGE =
      3,                     /* a call out of place (wrong launcher variables, too many requests) */
  COLL_ERR_SYSTEM = 4,       /* a system call failed; the record names it */
  COLL_ERR_NO_MEMORY = 5,    /* memory could not be had */
  COLL_ERR_TIMEOUT = 6,      /* the deadline passed; the record names who did not come */
  COLL_ERR_PEER_LOST = 7,    /* a rank died or left while it was still needed */
  COLL_ERR_MISMATCH = 8,     /* ranks made different calls; the record names both */
  COLL_ERR_ABORTED = 9,      /* coll_comm_abort() was called here or on another rank */
  COLL_ERR_AUTH = 10,        /* the other side does not know the secret */
  COLL_ERR_UNREACHABLE = 11, /* no transport (or address) reaches a peer */
  COLL_ERR_PROTOCOL = 12,    /* bytes that no libcoll of this version sends */
  COLL_ERR_UNSUPPORTED = 13, /* this build or version cannot do it; the message says what can */
  COLL_ERR_INTERNAL = 14     /* a defect of libcoll; please report the record */
} coll_status;

/* Element types. float16 is IEEE binary16, bfloat16 the upper half of binary32. */
typedef enum coll_type {
  COLL_INT8 = 0,
  COLL_UINT8 = 1,
  COLL_INT16 = 2,
  COLL_UINT16 = 3,
  COLL_INT32 = 4,
  COLL_UINT32 = 5,
  COLL_INT64 = 6,
  COLL_UINT64 = 7,
  COLL_FLOAT16 = 8,
  COLL_BFLOAT16 = 9,
  COLL_FLOAT32 = 10,
  COLL_FLOAT64 = 11
} coll_type;
#define COLL_TYPE_COUNT 12

/*
 * Reduction operations.
 *  - Integers wrap around modulo 2^bits in SUM and PROD. AVG is that SUM divided by nranks,
 * truncated toward zero.
 *  - float16 and bfloat16 are widened to float32 for each single operation and rounded to nearest
 *    even after it. AVG of floats is the SUM multiplied by 1/nranks (float64: divided).
 *  - MIN and MAX of floats: a NaN on any rank gives NaN; -0 is smaller than +0.
 */
typedef enum coll_op {
  COLL_SUM = 0,
  COLL_PROD = 1,
  COLL_MIN = 2,
  COLL_MAX = 3,
  COLL_AVG = 4
} coll_op;
#define COLL_OP_COUNT 5

typedef struct coll_comm coll_comm;       /* opaque: one rank's membership in a communicator */
typedef struct coll_request coll_request; /* opaque: a started, not yet completed operation */

/*
 * The record of a failure. Strings end with 0. Fields that do not apply are -1, 0 or "".
 * `message` is one line that holds all that the other fields hold, and what to do.
 */
typedef struct coll_error {
  size_t size;        /* sizeof(coll_error) as the caller compiled it */
  coll_status status; /* why the call failed; COLL_OK: nothing has failed yet */
  int rank;           /* the rank on which this record was made first */
  int peer;           /* the rank that is to blame, or -1 */
  int peer_pid;       /* its process id on its host, or 0 */
  int channel;        /* where it happened, or -1 */
  int step;           /* index in the schedule, or -1 */
  int sys_errno;      /* errno of the failed system call, or 0 */
  uint64_t sequence;  /* number of the operation on this communicator, from 1; 0: none */
  char operation[24]; /* "allreduce", "broadcast", ..., "create" */
  char syscall[24];   /* "connect", "recvmsg", ... */
  char host[64];      /* host of `rank` */
  char peer_host[64]; /* host of `peer` */
  char message[640];
} coll_error;
#define COLL_ERROR_INIT                                                                            \
  { sizeof(coll_error), COLL_OK, -1, -1, 0, -1, -1, 0, 0, "", "", "", "", "" }

/*
 * Settings of a communicator. Start from COLL_CONFIG_INIT; a field left at its initial value takes
 * the environment variable named beside it, and failing that the default. A field that is set wins.
 */
typedef struct coll_config {
  size_t size;    /* sizeof(coll_config) as the caller compiled it */
  int timeout_ms; /* longest time that an operation may not move; 0: COLL_TIMEOUT_MS, or 60000 */
  int create_timeout_ms; /* deadline of creation; 0: COLL_CREATE_TIMEOUT_MS, or 60000 */
  const char *transport; /* comma-separated list to choose from; NULL: COLL_TRANSPORT, or all */
  coll_error *error;     /* if creation fails, its record is written here; may be NULL */
} coll_config;
#define COLL_CONFIG_INIT                                                                           \
  { sizeof(coll_config), 0, 0, NULL, NULL }

/*
 * Names a communicator that is about to be made: the addresses at which rank 0 listens and a fresh
 * 256-bit secret. Whoever holds the bytes can join: pass them over a channel that you trust.
 */
#define COLL_UNIQUE_ID_BYTES 256
typedef struct coll_id {
  unsigned char bytes[COLL_UNIQUE_ID_BYTES];
} coll_id;

/* ---- library ------------------------------------------------------------------------------- */

/* The COLL_VERSION of the library in use (not of the header). Any thread. */
COLL_API int coll_version(void);

/* A short constant name such as "COLL_ERR_TIMEOUT"; never NULL. Any thread. */
COLL_API const char *coll_status_name(coll_status status);

/* Size of one element in bytes; 0 for an unknown type. Any thread. */
COLL_API size_t coll_type_bytes(coll_type type);

/* ---- communicators ------------------------------------------------------------------------- */

/*
 * Makes a communicator from what the launcher set in the environment, collectively over all ranks.
 *
 * Rank and nranks: COLL_RANK and COLL_NRANKS (collrun), else SLURM_PROCID and SLURM_NTASKS, else
 * OMPI_COMM_WORLD_RANK and _SIZE, else PMI_RANK and PMI_SIZE (MPICH), else RANK and WORLD_SIZE
 * (torchrun). Where rank 0 listens: COLL_ROOT ("address:port", "[v6]:port" or "name:port"), else
 * MASTER_ADDR and MASTER_PORT. The shared secret: COLL_SECRET (64 hexadecimal digits). With one
 * rank neither is needed; with no launcher variable at all the result is a communicator of one
 * rank.
 *
 * comm: receives the communicator; release it with coll_comm_destroy(). config: may be NULL.
 * Errors: INVALID_ARGUMENT (null or malformed config), INVALID_USAGE (variables missing, malformed
 * or contradicting; unknown COLL_ variable), and those of coll_comm_create().
 */
COLL_API coll_status coll_init_from_env(coll_comm **comm, const coll_config *config);

/*
 * Makes a fresh id and starts to listen for the other ranks. Call it in the process that will be
 * rank 0, hand the bytes to the others, and let each call coll_comm_create(). The listening socket
 * belongs to the id until rank 0's coll_comm_create() takes it over or coll_unique_id_release()
 * closes it. config: as in coll_comm_create(); may be NULL. Errors: INVALID_ARGUMENT, INVALID_USAGE
 * (COLL_PORT_RANGE or COLL_TCP_IFNAME malformed), SYSTEM (no port to be had).
 */
COLL_API coll_status coll_unique_id(coll_id *id, const coll_config *config);

/* Closes the listener of an id that no communicator was made from. Calls after that do no harm. */
COLL_API coll_status coll_unique_id_release(coll_id *id);

/*
 * Makes a communicator of `nranks` ranks, collectively: each rank calls it with the same id and
 * nranks and its own rank. Rank 0 must be the process that called coll_unique_id(). Returns when
 * all ranks have come and know each other, or with an error on every rank that came. Errors:
 * INVALID_ARGUMENT (null, rank not in 0 .. nranks-1, malformed id), TIMEOUT (missing ranks are
 * named), MISMATCH (two processes claim one rank, or nranks differs: both are named), AUTH (the
 * secret differs), UNREACHABLE (rank 0 cannot be reached, or no transport connects a pair), SYSTEM,
 * NO_MEMORY, PROTOCOL.
 */
COLL_API coll_status coll_comm_create(coll_comm **comm, const coll_id *id, int nranks, int rank,
                                      const coll_config *config);

/*
 * Makes `nranks` communicators in this process, one for each of as many threads: comms[r] is rank
 * r's. comms: array of nranks pointers, filled in order; each is destroyed by itself.
 * Errors: INVALID_ARGUMENT, SYSTEM (for example too few file descriptors), NO_MEMORY. On an error
 * no communicator is left.
 */
COLL_API coll_status coll_comm_create_local(coll_comm **comms, int nranks,
                                            const coll_config *config);

/*
 * Releases a communicator and sets *comm to NULL. Requests that are still open on it become
 * invalid. Not collective: it says goodbye to the other ranks and never waits for them longer than
 * one second; a rank that still needs data from this one gets COLL_ERR_PEER_LOST. Errors:
 * INVALID_ARGUMENT (comm is NULL; a pointer to NULL is fine).
 */
COLL_API coll_status coll_comm_destroy(coll_comm **comm);

/*
 * Makes every pending and later operation on this communicator fail with COLL_ERR_ABORTED, here
 * and, as soon as this rank is in a libcoll call, on all ranks. From any thread; does not block.
 * Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_abort(coll_comm *comm);

/* This rank's number and the number of ranks. Errors: INVALID_ARGUMENT. */
COLL_API coll_status coll_comm_rank(const coll_comm *comm, int *rank);
COLL_API coll_status coll_comm_nranks(const coll_comm *comm, int *nranks);

/*
 * Copies the record of the last failure on `comm`: the one that revoked it, or else that of the
 * last call with a bad argument. error->size says how much of it the caller knows. A record with
 * status COLL_OK means that nothing failed. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_last_error(const coll_comm *comm, coll_error *error);

/* ---- collectives, blocking ------------------------------------------------------------------ */

/*
 * recvbuf[i] = op over all ranks of sendbuf[i], for i < count, on every rank, bit for bit the same.
 * sendbuf, recvbuf: count elements of type; equal (in place) or disjoint; may be NULL if count is
 * 0. Algorithms: docs/architecture.md; `coll_explain allreduce` tells which is used and why.
 * Errors: INVALID_ARGUMENT; TIMEOUT, PEER_LOST, MISMATCH, ABORTED, PROTOCOL, SYSTEM, UNREACHABLE,
 * which revoke the communicator and leave recvbuf undefined.
 */
COLL_API coll_status coll_allreduce(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, coll_op op, coll_comm *comm);

/*
 * recvbuf on every rank = sendbuf of rank `root`. sendbuf: count elements, read on root only (may
 * be NULL elsewhere). recvbuf: count elements; in place on root if sendbuf == recvbuf. Errors: as
 * coll_allreduce().
 */
COLL_API coll_status coll_broadcast(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, int root, coll_comm *comm);

/*
 * recvbuf = the sendbufs of all ranks, one after the other in rank order.
 * count: elements that each rank gives; recvbuf: nranks * count elements. In place if sendbuf ==
 * recvbuf + rank * count elements. Errors: as coll_allreduce().
 */
COLL_API coll_status coll_allgather(const void *sendbuf, void *recvbuf, size_t count,
                                    coll_type type, coll_comm *comm);

/* Returns on no rank before every rank has called it. Errors: as coll_allreduce(). */
COLL_API coll_status coll_barrier(coll_comm *comm);

/*
 * Sends count elements to rank `peer`, which receives them with coll_recv() of the same count and
 * type. Messages between two ranks arrive in the order sent. Returns when sendbuf may be used
 * again. peer must not be this rank. Errors: as coll_allreduce().
 */
COLL_API coll_status coll_send(const void *sendbuf, size_t count, coll_type type, int peer,
                               coll_comm *comm);

/* Receives count elements from rank `peer` into recvbuf. Errors: as coll_send(). */
COLL_API coll_status coll_recv(void *recvbuf, size_t count, coll_type type, int peer,
                               coll_comm *comm);

/* ---- the same, nonblocking ------------------------------------------------------------------ */

/*
 * Each starts the operation and gives a request, to be completed by coll_test, coll_wait or
 * coll_wait_any. Several operations may be in flight on one communicator: they must be started in
 * the same order on every rank, and may be completed in any order. They move on while any thread of
 * the rank is inside a libcoll call on that communicator. request: receives the handle; NULL on
 * error. Errors at the start: INVALID_ARGUMENT, INVALID_USAGE (more than COLL_MAX_REQUESTS in
 * flight), and the communicator's first error once it is revoked.
 */
#define COLL_MAX_REQUESTS 1024
COLL_API coll_status coll_iallreduce(const void *sendbuf, void *recvbuf, size_t count,
                                     coll_type type, coll_op op, coll_comm *comm,
                                     coll_request **request);
COLL_API coll_status coll_ibroadcast(const void *sendbuf, void *recvbuf, size_t count,
                                     coll_type type, int root, coll_comm *comm,
                                     coll_request **request);
COLL_API coll_status coll_iallgather(const void *sendbuf, void *recvbuf, size_t count,
                                     coll_type type, coll_comm *comm, coll_request **request);
COLL_API coll_status coll_ibarrier(coll_comm *comm, coll_request **request);
COLL_API coll_status coll_isend(const void *sendbuf, size_t count, coll_type type, int peer,
                                coll_comm *comm, coll_request **request);
COLL_API coll_status coll_irecv(void *recvbuf, size_t count, coll_type type, int peer,
                                coll_comm *comm, coll_request **request);

/*
 * Moves the communicator on and looks at a request. COLL_OK or an error: the operation is complete,
 * the request is released and *request is NULL. COLL_IN_PROGRESS: not yet. Errors: those of the
 * operation; INVALID_ARGUMENT (request is NULL or points to NULL).
 */
COLL_API coll_status coll_test(coll_request **request);

/*
 * As coll_test(), but waits up to timeout_ms for completion (0: no wait; negative: as long as the
 * operation's own deadline allows). COLL_IN_PROGRESS: timeout_ms passed first; the operation goes
 * on.
 */
COLL_API coll_status coll_wait(coll_request **request, int timeout_ms);

/*
 * Waits until one of `count` requests is complete, whose index goes to *index, and releases it as
 * coll_test() does. Entries that are NULL are passed over; all entries must be of one communicator.
 * COLL_IN_PROGRESS: timeout_ms passed first (meaning as in coll_wait), *index is -1. COLL_OK with
 * *index -1: all entries were NULL. Errors: INVALID_ARGUMENT, and those of the completed operation.
 */
COLL_API coll_status coll_wait_any(coll_request **requests, int count, int *index, int timeout_ms);

/* ---- memory --------------------------------------------------------------------------------- */

/*
 * Allocates `bytes` bytes for collectives on `comm`: aligned to 64 bytes or better, zeroed, backed
 * by pages that are shared with no other process yet but can be. Belongs to the caller until
 * coll_mem_free(); what is not freed goes with the communicator. bytes 0 gives NULL.
 * Errors: INVALID_ARGUMENT, NO_MEMORY, SYSTEM.
 */
COLL_API coll_status coll_mem_alloc(coll_comm *comm, size_t bytes, void **ptr);

/* Releases memory of coll_mem_alloc(); NULL is fine. Errors: INVALID_ARGUMENT (not such memory). */
COLL_API coll_status coll_mem_free(coll_comm *comm, void *ptr);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_H */
