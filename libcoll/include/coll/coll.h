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
 *    milliseconds.
 *  - Buffers belong to the caller. They must not be read (receive) or written (send, receive) by
 *    anybody else between the start and the completion of the operation.
 *  - A communicator is used by one thread at a time. A call that finds another thread inside the
 *    same communicator returns COLL_ERR_INVALID_USAGE and does nothing. coll_comm_abort() alone may
 *    be called from any thread at any moment. Different communicators, also ones that were split
 *    from each other, may be used from different threads at once.
 *  - Nothing waits for ever: an operation that does not move for coll_config.timeout_ms, counted
 *    while the rank, or its progress thread, is at it, fails. Transfers that move are never too
 *    long.
 *  - After COLL_ERR_PEER_LOST, _TIMEOUT, _MISMATCH, _ABORTED, _PROTOCOL or _SYSTEM from an
 *    operation the communicator is *revoked*: each later operation on it returns that first error
 *    again, at once. COLL_ERR_INVALID_ARGUMENT and _INVALID_USAGE are found before anything is sent
 *    and leave the communicator as it was.
 */
#ifndef COLL_COLL_H
#define COLL_COLL_H

#include <stddef.h>
#include <stdint.h>

#include "coll/coll_types.h"

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

typedef struct coll_comm coll_comm;       /* opaque: one rank's membership in a communicator */
typedef struct coll_request coll_request; /* opaque: an operation, started or persistent */
typedef struct coll_window coll_window; /* opaque: memory of all ranks that coll_put() writes to */

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
 * What the result of a reduction of floats may depend on; docs/reproducibility.md. In every case
 * all ranks end with the same bits.
 */
typedef enum coll_determinism {
  COLL_DETERMINISTIC_DEFAULT = 0, /* what the environment says */
  COLL_DETERMINISTIC_OFF = 1,     /* also on the algorithm, which depends on sizes and machine */
  COLL_DETERMINISTIC_ON = 2,      /* on the inputs in rank order alone: one tree over the ranks */
  COLL_DETERMINISTIC_ORDERED = 3  /* it is ((x0 op x1) op x2) op ...: left to right in rank order */
} coll_determinism;

/* In which precision float16, bfloat16 and float8 are reduced. */
typedef enum coll_accumulate {
  COLL_ACCUMULATE_DEFAULT = 0, /* what the environment says */
  COLL_ACCUMULATE_NATIVE = 1,  /* rounded to the type after each single operation */
  COLL_ACCUMULATE_FLOAT32 = 2 /* kept, and sent, as float32; rounded to the type once, at the end */
} coll_accumulate;

/*
 * Who moves nonblocking operations on while the program is in no libcoll call; docs/overlap.md.
 * ON: a thread of libcoll, one for a communicator and all that are split from it. It also notices
 * failures and aborts of other ranks between calls, and the time of an operation that does not move
 * counts then as well. Functions of coll_op_create() may run on it. Ranks may choose differently.
 */
typedef enum coll_progress {
  COLL_PROGRESS_DEFAULT = 0, /* what the environment says */
  COLL_PROGRESS_OFF = 1,     /* nobody */
  COLL_PROGRESS_ON = 2
} coll_progress;

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
  const char *algo;      /* forces algorithms; NULL: COLL_ALGO, or free choice (docs/choosing.md) */
  coll_determinism deterministic; /* DEFAULT: COLL_DETERMINISTIC, or off */
  coll_accumulate accumulate;     /* DEFAULT: COLL_ACCUMULATE, or native */
  coll_progress progress;         /* DEFAULT: COLL_PROGRESS, or off */
} coll_config;
#define COLL_CONFIG_INIT                                                                           \
  {                                                                                                \
    sizeof(coll_config), 0, 0, NULL, NULL, NULL, COLL_DETERMINISTIC_DEFAULT,                       \
        COLL_ACCUMULATE_DEFAULT, COLL_PROGRESS_DEFAULT                                             \
  }

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
 * and, as soon as this rank is in a libcoll call or has a progress thread, on all ranks. From any
 * thread; does not block. Errors: INVALID_ARGUMENT.
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

/* ---- communicators made from others ---------------------------------------------------------- */

/*
 * Makes new communicators from the ranks of `comm`, collectively over all of them: ranks that give
 * the same color end up together, ordered by key, and by rank in `comm` where keys are equal. The
 * child shares connections, descriptors and operations (coll_op_create) with `comm` and outlives
 * it; the loss of a process revokes all communicators that it is in, everything else only the one.
 *
 * color: 0 or more, or COLL_NO_COLOR to be in none (*child is NULL then). config: NULL, or settings
 * for the child; what they leave open is inherited from `comm`, and so is the transport, which
 * must be NULL or what `comm` has. child: receives the communicator, to be released with
 * coll_comm_destroy(), in any order. Errors: INVALID_ARGUMENT (null, bad color or config),
 * NO_MEMORY, and those of a collective.
 *
 * Operations of several communicators that were split from each other move on whenever this rank
 * waits in any of them, so ranks may wait for them in different orders. A coll_op_fn may therefore
 * run in another thread than the one that started the operation, and must not call libcoll on any
 * of them.
 */
#define COLL_NO_COLOR (-1)
COLL_API coll_status coll_comm_split(coll_comm *comm, int color, int key, const coll_config *config,
                                     coll_comm **child);

/* A child of the same ranks in the same order. Otherwise as coll_comm_split(). */
COLL_API coll_status coll_comm_dup(coll_comm *comm, const coll_config *config, coll_comm **child);

/*
 * A child of the `count` ranks of `comm` in `ranks`, in that order. Collective over all ranks of
 * `comm`, which give the same list; *child is NULL on those that are not in it. Errors: as
 * coll_comm_split(); INVALID_ARGUMENT also for a rank out of bounds or named twice, MISMATCH if
 * lists differ.
 */
COLL_API coll_status coll_comm_subset(coll_comm *comm, const int *ranks, int count,
                                      const coll_config *config, coll_comm **child);

/*
 * Makes the communicator unusable on all its ranks: their pending and later operations on it fail
 * with COLL_ERR_ABORTED, here at once. Unlike coll_comm_abort() it is called by the thread that
 * uses the communicator, and has sent the news when it returns. What coll_comm_shrink() needs when
 * a rank gives up an operation in which others still are. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_revoke(coll_comm *comm);

/*
 * After a failure: makes a new communicator of the ranks of `comm` that are still alive, in the
 * same order, with connections of its own. Collective over the survivors, on a revoked communicator
 * or a sound one. Ranks that die meanwhile, or do not come before create_timeout_ms, are left out;
 * all survivors agree on who is left. `comm` stays as it was and is still to be destroyed. config:
 * as in coll_comm_split(). Errors: INVALID_ARGUMENT, TIMEOUT (this rank was left out, or the others
 * could not be met), UNSUPPORTED (in the simulator), and those of coll_comm_create().
 */
COLL_API coll_status coll_comm_shrink(coll_comm *comm, const coll_config *config,
                                      coll_comm **child);

/*
 * The rank that `rank` of `comm` had in the communicator that coll_init_from_env, coll_comm_create
 * or coll_comm_create_local made, through splits and shrinks. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_origin_rank(const coll_comm *comm, int rank, int *origin);

/*
 * Keeps a value with a communicator under a key: the address of any object of the caller's, which
 * so is nobody else's key. Replaces an earlier value, whose `destroy` is called; so it is for all
 * that is left when the communicator is destroyed. destroy may be NULL; value NULL removes the key.
 * Children start without attributes. Errors: INVALID_ARGUMENT, NO_MEMORY.
 */
COLL_API coll_status coll_comm_set_attr(coll_comm *comm, const void *key, void *value,
                                        void (*destroy)(void *value));

/* The value under a key, or NULL. Errors: INVALID_ARGUMENT. */
COLL_API coll_status coll_comm_get_attr(coll_comm *comm, const void *key, void **value);

/* ---- operations of the caller's own -----------------------------------------------------------
 */

/*
 * Combines count elements: result[i] = left[i] op right[i]. `result` may be equal to left or right
 * and overlaps neither otherwise. Must be associative as far as the caller cares, must not call
 * libcoll on the communicator or others split from the same, may run in any thread that is inside
 * one of them, and gives the same bits for the same inputs on all ranks.
 */
typedef void (*coll_op_fn)(const void *left, const void *right, void *result, size_t count,
                           coll_type type, void *context);

/*
 * Makes an operation from a function, for every type. Not collective, but all ranks must create
 * their operations in the same order, as the handle is a number that they must share. commutative:
 * 0 keeps the ranks in order: (x0 op x1) op (x2 op x3) may be formed, x1 op x0 never. context is
 * handed to fn. *op belongs to the communicator and ends with it or coll_op_free(); children made
 * later have it too. Errors: INVALID_ARGUMENT, INVALID_USAGE (COLL_OP_USER_MAX exist).
 */
COLL_API coll_status coll_op_create(coll_comm *comm, coll_op_fn fn, void *context, int commutative,
                                    coll_op *op);

/*
 * Makes the operation that multiplies this rank's elements by *factor (one element of `type`, which
 * may differ between ranks) before they are summed, for integers and floats of `type` only. *factor
 * is copied. Otherwise as coll_op_create().
 */
COLL_API coll_status coll_op_create_premul_sum(coll_comm *comm, const void *factor, coll_type type,
                                               coll_op *op);

/* Ends an operation; no call may be using it. *op becomes -1. Errors: INVALID_ARGUMENT. */
COLL_API coll_status coll_op_free(coll_comm *comm, coll_op *op);

/* ---- groups -----------------------------------------------------------------------------------
 */

/*
 * Between start and end, blocking operations on `comm` only check their arguments and return; end
 * starts all of them at once, in the order in which they were called, and waits until all are
 * complete. So sends and receives need no order among each other, and many small operations share
 * their waits. Buffers and arrays of counts must stay valid until end returns. Groups nest: the
 * outermost end works. Nonblocking operations may be started inside and are not part of the group.
 * If any call in the group was refused, end starts nothing and returns that error. Errors:
 * INVALID_ARGUMENT, INVALID_USAGE (end without start; destroyed inside a group: nothing is
 * started), NO_MEMORY, and those of the operations: the first one.
 */
COLL_API coll_status coll_group_start(coll_comm *comm);
COLL_API coll_status coll_group_end(coll_comm *comm);

/* ---- requests ---------------------------------------------------------------------------------
 */

#define COLL_MAX_REQUESTS 1024 /* in flight and persistent, on a communicator */

/*
 * Starts a persistent operation that coll_<name>_init() made; complete it by coll_test, coll_wait
 * or coll_wait_any, which leave a persistent request as it is, to be started again. Collective
 * where the operation is. Errors: INVALID_ARGUMENT (null, not persistent), INVALID_USAGE (not
 * complete yet), and those of the operation's start.
 */
COLL_API coll_status coll_start(coll_request *request);

/* Releases a persistent request that is not in flight. Errors: INVALID_ARGUMENT, INVALID_USAGE. */
COLL_API coll_status coll_request_free(coll_request **request);

/*
 * Moves the communicator on and looks at a request. COLL_OK or an error: the operation is complete;
 * unless it is persistent the request is released and *request is NULL. A persistent request that
 * was not started, or whose completion was told before, is complete. COLL_IN_PROGRESS: not yet.
 * Errors: those of the operation; INVALID_ARGUMENT (request is NULL or points to NULL).
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
 * Allocates `bytes` bytes for collectives on `comm`: aligned to 64 bytes or better, zeroed, with
 * all pages there at once. Ranks of the same host read such memory where it lies, which saves a
 * copy of every longer message, and where they have a core each also write there, so that a rank
 * that would only wait does part of the work; each buffer counts by itself, and a part of such
 * memory serves as well as all of it. (If a rank freezes in that very moment and the operation
 * fails, it may still write up to a slot of the receive buffer when it goes on.) On other
 * communicators, those made from `comm` included, it is memory like any other. From 16 KiB on it
 * takes a file descriptor. Belongs to the caller until coll_mem_free(); what is not freed goes with
 * the communicator. bytes 0 gives NULL. Errors: INVALID_ARGUMENT, NO_MEMORY, SYSTEM.
 */
COLL_API coll_status coll_mem_alloc(coll_comm *comm, size_t bytes, void **ptr);

/*
 * Releases memory of coll_mem_alloc(); NULL is fine. Errors: INVALID_ARGUMENT (not such memory),
 * INVALID_USAGE (an operation of `comm` that is in flight works on it; it stays as it is).
 */
COLL_API coll_status coll_mem_free(coll_comm *comm, void *ptr);

/* ---- why ---------------------------------------------------------------------------------------
 */

/* An algorithm that could do an operation, and how long the cost model says that it takes. */
typedef struct coll_candidate {
  char name[24];
  double predicted_us;
  int chosen; /* 1: this one runs */
} coll_candidate;

/*
 * The algorithms that may do `collective` ("allreduce", "allgatherv", ...) with `count` elements of
 * `type` (blocks: per rank, v-forms: of a typical block) on `comm`, fastest first as predicted,
 * under the communicator's settings. candidates: room for `room` of them; *found receives how many
 * there are, which may be more. op and root: as in the call, 0 where it has none. None is chosen if
 * COLL_ALGO asks for one that cannot do it. Sends nothing. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_candidates(coll_comm *comm, const char *collective, size_t count,
                                     coll_type type, coll_op op, int root,
                                     coll_candidate *candidates, int room, int *found);

#ifdef __cplusplus
}
#endif

#include "coll/coll_ops.h"

#endif /* COLL_COLL_H */
