/*
 * coll_comm.h: communicators. Settings; creation from a launcher's environment, from an id, or from
 * other communicators; abort, revoke, shrink and agreement; attributes; candidate
 * algorithms. Included by coll.h.
 */
#ifndef COLL_COLL_COMM_H
#define COLL_COLL_COMM_H

#include <stddef.h>

#include "coll/coll_base.h"
#include "coll/coll_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* ---- settings ------------------------------------------------------------------------------ */

/*
 * What the result of a float reduction may depend on; see docs/reproducibility.md. All ranks always
 * get the same bits.
 */
typedef enum coll_determinism {
  COLL_DETERMINISTIC_DEFAULT = 0, /* what the environment says */
  COLL_DETERMINISTIC_OFF = 1,     /* also on the algorithm, which depends on sizes and machine */
  COLL_DETERMINISTIC_ON = 2,      /* only on the inputs in rank order: one tree over the ranks */
  COLL_DETERMINISTIC_ORDERED = 3  /* it is ((x0 op x1) op x2) op ...: left to right in rank order */
} coll_determinism;

/* The precision in which float16, bfloat16 and float8 are reduced. */
typedef enum coll_accumulate {
  COLL_ACCUMULATE_DEFAULT = 0, /* what the environment says */
  COLL_ACCUMULATE_NATIVE = 1,  /* rounded to the type after each operation */
  COLL_ACCUMULATE_FLOAT32 = 2  /* computed and sent as float32, rounded once at the end */
} coll_accumulate;

/*
 * Who makes progress on nonblocking operations between libcoll calls; see docs/overlap.md. ON: a
 * thread of libcoll, one for a communicator and all that are split from it. It also notices
 * failures and aborts of other ranks between calls, and timeout_ms then counts between calls too.
 * Functions given to coll_op_create() may run on it. Ranks may choose differently.
 */
typedef enum coll_progress {
  COLL_PROGRESS_DEFAULT = 0, /* what the environment says */
  COLL_PROGRESS_OFF = 1,     /* nobody */
  COLL_PROGRESS_ON = 2       /* a thread */
} coll_progress;

/*
 * Who may continue in coll_comm_shrink() while other ranks are silent: neither there nor known to
 * be dead. The same on all ranks.
 */
typedef enum coll_shrink_quorum {
  COLL_SHRINK_QUORUM_DEFAULT = 0,  /* what the environment says */
  COLL_SHRINK_QUORUM_MAJORITY = 1, /* more than half of the ranks, or half of them with rank 0 */
  COLL_SHRINK_QUORUM_REACHABLE = 2 /* whoever meets: both sides of a cut network continue, and no
                                      longer know of each other */
} coll_shrink_quorum;

/*
 * Settings of a communicator. Start from COLL_CONFIG_INIT. A field that you set takes precedence
 * over the environment variable named beside it. Other fields use that variable, or the default.
 */
typedef struct coll_config {
  size_t size;           /* sizeof(coll_config) as the caller compiled it */
  int timeout_ms;        /* longest time without progress; 0: COLL_TIMEOUT_MS, or 60000 */
  int create_timeout_ms; /* deadline of creation; 0: COLL_CREATE_TIMEOUT_MS, or 60000 */
  const char *transport; /* comma-separated list to choose from; NULL: COLL_TRANSPORT, or all */
  coll_error *error;     /* if creation fails, its record is written here; may be NULL */
  const char *algo;      /* forces algorithms (docs/choosing.md); NULL: COLL_ALGO, or none forced */
  coll_determinism deterministic;   /* DEFAULT: COLL_DETERMINISTIC, or off */
  coll_accumulate accumulate;       /* DEFAULT: COLL_ACCUMULATE, or native */
  coll_progress progress;           /* DEFAULT: COLL_PROGRESS, or off */
  coll_shrink_quorum shrink_quorum; /* DEFAULT: COLL_SHRINK_QUORUM, or majority */
  int heartbeat_ms; /* silence of a host that counts, 100 at least; 0: COLL_HEARTBEAT_MS, or 2000 */
} coll_config;
#define COLL_CONFIG_INIT                                                                           \
  {                                                                                                \
    sizeof(coll_config), 0, 0, NULL, NULL, NULL, COLL_DETERMINISTIC_DEFAULT,                       \
        COLL_ACCUMULATE_DEFAULT, COLL_PROGRESS_DEFAULT, COLL_SHRINK_QUORUM_DEFAULT, 0              \
  }

/* ---- creation ------------------------------------------------------------------------------ */

/*
 * Identifies a communicator that is about to be created: the addresses at which its maker listens,
 * and a fresh 256-bit secret. Whoever has these bytes can join, so send them over a trusted
 * channel, and erase them once the communicator is there. There is room for 72 bytes of addresses,
 * at most 6: one of each of the host's networks comes first, the fastest before others, loopback
 * last. COLL_TCP_IFNAME chooses if that leaves out the right one.
 */
#define COLL_UNIQUE_ID_BYTES 128
typedef struct coll_id {
  unsigned char bytes[COLL_UNIQUE_ID_BYTES];
} coll_id;

/*
 * Creates a communicator from the launcher's environment variables, collectively over all ranks.
 *
 * A launcher that speaks PMIx (Open MPI's; Slurm's with --mpi=pmix) or PMI-1 (MPICH's; Slurm's with
 * --mpi=pmi2) provides everything, unless COLL_ROOT, COLL_RANK or RANK is set. Then all ranks must
 * make this call the same number of times, and children that they fork afterwards must not make it;
 * with PMI-1, no rank may use an MPI library. The same holds for srun --mpi=none, where ranks meet
 * on the first node and munge (or COLL_SECRET) protects the secret, and for torchrun, which needs
 * COLL_SECRET to be safe.
 *
 * With other launchers, rank and nranks come from COLL_RANK and COLL_NRANKS (collrun), else
 * SLURM_PROCID and SLURM_NTASKS (outside a step), else OMPI_COMM_WORLD_RANK and _SIZE, else
 * PMI_RANK and PMI_SIZE (MPICH), else RANK and WORLD_SIZE. Where rank 0 listens: COLL_ROOT
 * ("address:port", "[v6]:port" or "name:port"), else MASTER_ADDR and MASTER_PORT. The shared
 * secret: COLL_SECRET_FD, else COLL_SECRET_FILE, else COLL_SECRET (docs/launchers.md); the
 * descriptor is closed, and the first and the last variable are empty afterwards. A single rank
 * needs neither. Without any launcher variable the communicator has one rank.
 *
 * comm: receives the communicator; release it with coll_comm_destroy(). config: may be NULL.
 * Errors: INVALID_ARGUMENT (null or malformed config), INVALID_USAGE (variables missing, malformed
 * or contradictory; unknown COLL_ variable; no PMIx library or munge; an MPI where the launcher
 * speaks PMI-1), SYSTEM (the launcher failed), TIMEOUT (it did not answer in time), and those of
 * coll_comm_create().
 */
COLL_API coll_status coll_init_from_env(coll_comm **comm, const coll_config *config);

/*
 * Makes a fresh id and starts to listen for the other ranks. Call it in a process that will be one
 * of the ranks, whichever, pass the bytes to the others, and call coll_comm_create() on every rank.
 * The listening socket belongs to the id until this process's coll_comm_create() takes it over (the
 * first of its threads, if several are ranks) or coll_unique_id_release() closes it. A child that
 * is forked afterwards does not have it. config: as in coll_comm_create(); may be NULL. Errors:
 * INVALID_ARGUMENT, INVALID_USAGE (COLL_PORT_RANGE or COLL_TCP_IFNAME malformed), SYSTEM (no port
 * available), NO_MEMORY.
 */
COLL_API coll_status coll_unique_id(coll_id *id, const coll_config *config);

/* Closes the listening socket of an id that will not be used. Calling it again is harmless. */
COLL_API coll_status coll_unique_id_release(coll_id *id);

/*
 * Creates a communicator of `nranks` ranks, collectively: each rank passes the same id and nranks
 * and its own rank. One of the ranks must be in the process that called coll_unique_id(): it serves
 * the others meanwhile. Returns when all ranks have joined, or with an error on every rank that
 * did. If the rank that serves dies when all have joined, the others get COLL_OK nevertheless, and
 * PEER_LOST at their first call that waits for another rank; if it dies before, PEER_LOST. Only if
 * another rank dies or stops at the same time may some of them get COLL_OK and others PEER_LOST.
 * Then links between far hosts may be measured: if any rank dies or stops meanwhile, or lacks
 * memory for it, all get COLL_OK, and the error at their first call.
 * Errors: INVALID_ARGUMENT (null, rank not in 0 .. nranks-1, malformed or damaged id),
 * INVALID_USAGE (this process made the id, and has used or released it; a malformed setting),
 * TIMEOUT (missing ranks are named), MISMATCH (two processes claim one rank, or nranks differs:
 * both are named; COLL_LEVELS contradicts itself), AUTH (the secret differs), UNREACHABLE (the rank
 * that serves cannot be reached, or no transport connects a pair), SYSTEM, NO_MEMORY, PROTOCOL.
 */
COLL_API coll_status coll_comm_create(coll_comm **comm, const coll_id *id, int nranks, int rank,
                                      const coll_config *config);

/*
 * Creates `nranks` communicators in this process, one for each of as many threads: comms[r] is rank
 * r's. comms: array of nranks pointers, filled in order; each is destroyed separately. On an error
 * no communicator is left. Errors: INVALID_ARGUMENT, SYSTEM (for example too few file descriptors),
 * NO_MEMORY.
 */
COLL_API coll_status coll_comm_create_local(coll_comm **comms, int nranks,
                                            const coll_config *config);

/*
 * Releases a communicator and sets *comm to NULL. Requests that are still open on it become
 * invalid. Not collective: it notifies the other ranks and waits for them at most one second.
 * Messages whose sends are complete are delivered first. That waits for their receivers, for half
 * of the communicator's timeout_ms but at most ten seconds. What else was sent over TCP goes on its
 * way for at most ten seconds, and two without any of it arriving. A rank that still needs data
 * from this one gets COLL_ERR_PEER_LOST. *comm may be NULL. Errors: INVALID_ARGUMENT (comm is
 * NULL), INVALID_USAGE (another thread is inside, or this process is a forked child; *comm stays as
 * it is), TIMEOUT (messages were not delivered; the communicator is released all the same).
 */
COLL_API coll_status coll_comm_destroy(coll_comm **comm);

/* This rank's number. Errors: INVALID_ARGUMENT, INVALID_USAGE (in a forked child). */
COLL_API coll_status coll_comm_rank(const coll_comm *comm, int *rank);

/* The number of ranks. Errors: INVALID_ARGUMENT, INVALID_USAGE (in a forked child). */
COLL_API coll_status coll_comm_nranks(const coll_comm *comm, int *nranks);

/*
 * Names the communicator in this rank's messages about failures, for example "dp": up to 63
 * characters, copied; longer names are cut. Give it the same name on all ranks. Before, it is
 * "world", or tells how it was made: "world/split 2, color 1", "world/dup 3". A shrink keeps the
 * name. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_set_name(coll_comm *comm, const char *name);

/* The name; valid until the next coll_comm_set_name() or the end of `comm`. Errors:
 * INVALID_ARGUMENT. */
COLL_API coll_status coll_comm_name(const coll_comm *comm, const char **name);

/* ---- communicators made from others -------------------------------------------------------- */

#define COLL_NO_COLOR (-1) /* coll_comm_split: this rank gets no child */

/*
 * Creates new communicators from the ranks of `comm`, collectively over all of them: ranks that
 * pass the same color end up together, ordered by key, and by rank in `comm` where keys are equal.
 * The child shares connections and descriptors with `comm` and may outlive it. The loss of a
 * process revokes all communicators that contain it; every other failure revokes one.
 *
 * color: 0 or more, or COLL_NO_COLOR to be in none (*child is NULL then). config: NULL, or settings
 * for the child, which inherits from `comm` what is not set; `transport` must be NULL or that of
 * `comm`. child: receives the communicator; release it with coll_comm_destroy(), before or after
 * `comm`. Errors: INVALID_ARGUMENT (null, bad color or config), NO_MEMORY, and those of a
 * collective.
 *
 * While this rank waits in one communicator, operations on all communicators of its process make
 * progress too, so ranks may wait for them in different orders. A coll_op_fn may therefore run in
 * another thread than the one that started the operation, and must neither call libcoll nor fork.
 */
COLL_API coll_status coll_comm_split(coll_comm *comm, int color, int key, const coll_config *config,
                                     coll_comm **child);

/* A child with the same ranks in the same order. Otherwise as coll_comm_split(). */
COLL_API coll_status coll_comm_dup(coll_comm *comm, const coll_config *config, coll_comm **child);

/*
 * Start coll_comm_split() and coll_comm_dup(). *child is the communicator once the request is
 * complete (coll_test, coll_wait, coll_wait_any), and NULL before, or if that returns an error. The
 * order of these calls among all collectives on `comm` is the same on all ranks; the blocking form
 * may be used on some. child, and config->error if given, must stay valid until completion; the
 * rest of config is copied. If `comm` is destroyed first, there will be no child. Errors: as of
 * coll_comm_split(); INVALID_ARGUMENT (request is NULL).
 */
COLL_API coll_status coll_comm_isplit(coll_comm *comm, int color, int key,
                                      const coll_config *config, coll_comm **child,
                                      coll_request **request);
COLL_API coll_status coll_comm_idup(coll_comm *comm, const coll_config *config, coll_comm **child,
                                    coll_request **request);

/*
 * A child with the `count` ranks of `comm` in `ranks`, in that order. Collective over all ranks of
 * `comm`, which pass the same list; *child is NULL on those that are not in it. Errors: as
 * coll_comm_split(); INVALID_ARGUMENT also for a rank out of bounds or listed twice, MISMATCH if
 * lists differ.
 */
COLL_API coll_status coll_comm_subset(coll_comm *comm, const int *ranks, int count,
                                      const coll_config *config, coll_comm **child);

/*
 * As coll_comm_subset(), but collective over the `count` listed ranks alone: the others do not call
 * it, and are not disturbed. So parts of a job can make communicators while the rest works.
 *
 * tag: 0 .. INT_MAX - 2, the same on all members. Calls whose members overlap, and which may be
 * under way at the same time, need different tags; those with one tag come in the same order on all
 * ranks that take part in several of them. The tags have nothing to do with those of coll_send(),
 * but the call's messages travel behind messages to the same rank that it has not received
 * (coll_send). ranks: includes this rank. Threads of one rank that make groups at the same time
 * each use a communicator of their own (coll_comm_dup).
 *
 * Errors: as coll_comm_subset(); INVALID_ARGUMENT also for a bad tag, and if this rank is not
 * listed. A member that does not come is named by TIMEOUT, one that died by PEER_LOST. Like
 * MISMATCH (members gave different lists) they revoke `comm`.
 */
COLL_API coll_status coll_comm_create_group(coll_comm *comm, const int *ranks, int count, int tag,
                                            const coll_config *config, coll_comm **child);

/*
 * The rank that `rank` of `comm` had in the communicator that coll_init_from_env, coll_comm_create
 * or coll_comm_create_local made, through splits and shrinks. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_origin_rank(const coll_comm *comm, int rank, int *origin);

/*
 * Whether stream-ordered operations (coll_<name>_on_stream()) have failed: COLL_OK, or the reason.
 * Their results are then undefined, although their streams go on. Does not wait, so it says nothing
 * about operations that their streams have not passed: synchronise first. coll_last_error() has the
 * details. Errors: INVALID_ARGUMENT, INVALID_USAGE, and those of the operations.
 */
COLL_API coll_status coll_comm_async_error(coll_comm *comm);

/*
 * Lets stream-ordered collectives stay in GPU memory: ranks work in each other's, on the GPU that
 * is current in the calling thread, and streams given to this communicator belong to that GPU from
 * then on. coll_comm_create() and the calls that use it do so by themselves if a CUDA context is
 * current on all ranks; other communicators (made by coll_comm_create_local(), dup, split, shrink,
 * ...) stage such calls through host memory unless all their ranks call this. Ranks are on one
 * host, and their GPUs have peer access to each other, or are one; or they form groups of equal
 * size of which this is true, and long calls are divided among the ranks of a group, while others
 * remain staged. A group may be one rank if InfiniBand or RoCE devices read and write the memory
 * of all GPUs. COLL_GPU_SLOT_BYTES says how much memory it takes. coll_comm_destroy() waits for
 * the other ranks' then, a second at the most. Calling it again does nothing. See docs/gpu.md.
 *
 * Collective, between calls in streams. Errors: UNSUPPORTED (it cannot be done: coll_last_error()
 * says which rank says so and why; all ranks get this, and calls remain staged), MISMATCH and those
 * of all collectives.
 */
COLL_API coll_status coll_comm_use_gpu(coll_comm *comm);

/* ---- abort, revoke, shrink, agree ---------------------------------------------------------- */

/*
 * Makes every pending and later operation on this communicator fail with COLL_ERR_ABORTED, here
 * and, as soon as this rank is in a libcoll call or has a progress thread, on all ranks. From any
 * thread; does not block.
 *
 * If this rank is in coll_comm_shrink(), _grow() or _agree() of this communicator, that call fails
 * the same way within a second, on all ranks that are in it or enter it later. Only ranks that were
 * about to return may still get COLL_OK, and the same result as those that already have it. An
 * abort before this rank's call does not end it. Errors: INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_abort(coll_comm *comm);

/*
 * Makes the communicator unusable on all its ranks: their pending and later operations on it fail
 * with COLL_ERR_ABORTED. Unlike coll_comm_abort() it is called by the thread that uses the
 * communicator, and it has notified the other ranks when it returns. Call it before
 * coll_comm_shrink() if this rank gives up an operation that others are still in. Errors:
 * INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_revoke(coll_comm *comm);

/*
 * After a failure: creates a new communicator of the ranks of `comm` that are still alive, in the
 * same order, with new connections. Collective over the survivors; `comm` may be revoked or not.
 * Ranks that die meanwhile, do not join within create_timeout_ms, or have no descriptors or memory
 * left for it, are left out; all survivors agree on who is left. They must be more than half of the
 * ranks, or half of them with rank 0, or all that are not proven dead, unless shrink_quorum says
 * otherwise (docs/failures.md). `comm` itself does not change and must still be destroyed. config:
 * as in coll_comm_split(). Errors: INVALID_ARGUMENT, TIMEOUT (this rank was left out, or did not
 * find the others), ABORTED (meanwhile, on any rank), UNSUPPORTED (in the simulator), and those of
 * coll_comm_create().
 */
COLL_API coll_status coll_comm_shrink(coll_comm *comm, const coll_config *config,
                                      coll_comm **child);

/*
 * Agreement in spite of failures: every rank that gets COLL_OK gets the same *word, whoever dies
 * meanwhile: the bitwise AND of the words of those who took part. So it tells for certain whether
 * something succeeded on all ranks, which the result of a collective does not: that may be COLL_OK
 * on one rank and an error on another. Collective over the ranks of `comm` that are alive, which
 * may be revoked or not, and stays as it is. A word that some rank has got is not replaced by
 * another one after that rank's death, as long as any rank lives that took part in the round which
 * decided on it.
 *
 * Who is waited for and left out, and how many must meet, is as in coll_comm_shrink(). Shrinks and
 * agreements of a communicator must come in the same order on all ranks.
 *
 * word: in: this rank's; out: the common one; unchanged on an error. absent: receives the number of
 * ranks of `comm` that did not take part, because they are dead or did not come; the same on all
 * ranks; 0 if all took part; may be NULL. config: NULL, or error, create_timeout_ms and
 * shrink_quorum of this call. Errors: INVALID_ARGUMENT, TIMEOUT (this rank was left out, or too few
 * met), ABORTED (meanwhile, on any rank), MISMATCH (another rank is in coll_comm_shrink() instead),
 * AUTH (a message was altered on its way), UNSUPPORTED (in the simulator), SYSTEM, NO_MEMORY.
 */
COLL_API coll_status coll_comm_agree(coll_comm *comm, uint64_t *word, int *absent,
                                     const coll_config *config);

/* ---- growing ------------------------------------------------------------------------------- */

/*
 * Like coll_comm_shrink(), and takes in the newcomers that wait at rank 0, at most 64 at a time:
 * their ranks follow those of the members, in order of arrival. There may be no newcomers.
 * Collective over the living ranks of `comm`, whether or not it has failed; a rank that calls
 * coll_comm_shrink() instead gets the same communicator. Which members stay is decided as in
 * coll_comm_shrink(). A newcomer that dies or freezes during the growth is left out, and those that
 * arrived with it may have to wait for the next growth. If rank 0 of `comm` is lost, nobody joins.
 * Errors: as coll_comm_shrink(), and UNSUPPORTED (ranks are threads).
 */
COLL_API coll_status coll_comm_grow(coll_comm *comm, const coll_config *config, coll_comm **child);

/*
 * The id with which newcomers join, to be passed to them over a trusted channel: whoever has it can
 * join. On rank 0, which listens for them from then on. After coll_comm_grow() and
 * coll_comm_shrink() they join the new communicator; the id is valid until its rank 0 is another
 * process or has destroyed it. Errors: INVALID_ARGUMENT, INVALID_USAGE (not rank 0), UNSUPPORTED
 * (ranks are threads or simulated), SYSTEM (no port available), NO_MEMORY.
 */
COLL_API coll_status coll_comm_join_id(coll_comm *comm, coll_id *id);

/*
 * How many newcomers wait; 0 on other ranks than 0. Not collective; takes microseconds, and at most
 * 20 ms while somebody is connecting. Newcomers get in only while rank 0 is in this call or in
 * coll_comm_grow(). So call it from time to time, for example after each step of a training, and
 * tell the others to grow; or revoke the communicator, which they notice wherever they are. Errors:
 * INVALID_ARGUMENT.
 */
COLL_API coll_status coll_comm_joiners(coll_comm *comm, int *count);

/*
 * Joins a running communicator: waits until its ranks call coll_comm_grow(), and receives the new
 * communicator. Its original rank (coll_comm_origin_rank) is a number that no rank has had before,
 * even if this process was a member earlier. id: from coll_comm_join_id(). config: as in
 * coll_comm_create(), and should be the same as the members'; create_timeout_ms is how long to wait
 * for a growth to begin, and then again for it to end. Errors: as coll_comm_create(); TIMEOUT
 * (nobody grew; the message says how far this came), AUTH or MISMATCH (the id is old), PEER_LOST
 * (rank 0 is gone).
 */
COLL_API coll_status coll_comm_join(coll_comm **comm, const coll_id *id, const coll_config *config);

/* How often ranks left or joined: shrinks and growths from the first communicator to this one.
 * Errors: INVALID_ARGUMENT. */
COLL_API coll_status coll_comm_epoch(const coll_comm *comm, uint64_t *epoch);

/* ---- attributes ---------------------------------------------------------------------------- */

/*
 * Stores a value with a communicator under a key. As key use the address of one of your own
 * objects, which no other caller can use. destroy(value) is called when the value is replaced or
 * removed, or when the communicator is destroyed; it may be NULL. value NULL removes the key.
 * Children start without attributes. Errors: INVALID_ARGUMENT, NO_MEMORY.
 */
COLL_API coll_status coll_comm_set_attr(coll_comm *comm, const void *key, void *value,
                                        void (*destroy)(void *value));

/* The value under a key, or NULL. Errors: INVALID_ARGUMENT. */
COLL_API coll_status coll_comm_get_attr(coll_comm *comm, const void *key, void **value);

/* ---- candidate algorithms ------------------------------------------------------------------ */

/* An algorithm that can do an operation, and the time that the cost model predicts. */
typedef struct coll_candidate {
  char name[24];
  double predicted_us;
  int chosen; /* 1: this one runs */
} coll_candidate;

/*
 * The algorithms that can do `collective` ("allreduce", "allgatherv", ...) with `count` elements of
 * `type` (collectives of blocks: for each rank; v-forms: of a typical block) on `comm` with its
 * settings, fastest prediction first. op and root: as in the call, 0 where it has none.
 * candidates: an array of `capacity` entries; *found receives how many algorithms there are, which
 * may be more. None is chosen if COLL_ALGO asks for one that cannot do it. Sends nothing. Errors:
 * INVALID_ARGUMENT.
 */
COLL_API coll_status coll_candidates(coll_comm *comm, const char *collective, size_t count,
                                     coll_type type, coll_op op, int root,
                                     coll_candidate *candidates, int capacity, int *found);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_COMM_H */
