/*
 * bootstrap.h: how ranks find each other. Every rank checks in with its record at the rank whose
 * id has a listener, which serves; when all are there, the table of all records goes down a binary
 * tree of control links below rank 0, which stay open.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_H
#define COLLI_WIREUP_BOOTSTRAP_H

#include "coll/coll_transport.h"
#include "libcoll/base/calibration.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/param.h"
#include "libcoll/net/auth.h"
#include "libcoll/net/interfaces.h"
#include "libcoll/wireup/ctrl.h"
#include "libcoll/wireup/id.h"

#define COLLI_MAX_TRANSPORTS 6
#define COLLI_CPU_WORDS      16
#define COLLI_LEVELS_BYTES   96
#define COLLI_HOST_LEVELS    3 /* of groups of hosts */

/* Where colli_rank_info.link_mbit comes from. Later ones are trusted more. */
typedef enum colli_speed_source {
  COLLI_SPEED_UNKNOWN,
  COLLI_SPEED_WANTED,   /* not known, and the rank asks to measure it */
  COLLI_SPEED_MEASURED, /* at creation */
  COLLI_SPEED_DECLARED, /* COLL_LINK_SPEED */
  COLLI_SPEED_SOURCES
} colli_speed_source;

/* Where colli_rank_info.levels comes from. Later ones are trusted more. */
typedef enum colli_level_source {
  COLLI_LEVELS_UNKNOWN,
  COLLI_LEVELS_MEASURED, /* at creation */
  COLLI_LEVELS_SLURM,    /* Slurm's topology */
  COLLI_LEVELS_DECLARED, /* COLL_LEVELS */
  COLLI_LEVEL_SOURCES
} colli_level_source;

/* What every rank knows about every other. It is sent byte for byte, so it has no padding. */
typedef struct colli_rank_info {
  char host[64];
  uint64_t host_id;
  uint64_t clock_id; /* of its CLOCK_MONOTONIC, if it wants the shared time; 0: it does not */
  int32_t pid;
  int32_t core;        /* the processor that it is bound to, or -1 if not exactly one */
  int32_t numa_node;   /* of that processor, or -1 */
  uint32_t slot_bytes; /* as the user set it; 0: not set */
  uint32_t slot_count;
  uint32_t timeout_ms;
  uint32_t transports;              /* bit t: blob[t] is valid; t is an index of transport_names */
  uint8_t deterministic;            /* coll_determinism */
  uint8_t accumulate;               /* coll_accumulate */
  uint8_t data_check;               /* colli_data_check */
  uint8_t gpu;                      /* 1: it uses a GPU, and may share its memory */
  uint8_t nonce[COLLI_NONCE_BYTES]; /* drawn for this communicator, if data is checked */
  uint64_t dev_shm_free;            /* bytes for shared memory: see shm_capacity.h */
  uint64_t tmp_free;
  uint64_t cpus[COLLI_CPU_WORDS];  /* the processors that it may run on */
  uint64_t quota_group;            /* those of one host with the same share ... */
  uint64_t quota_millicores;       /* ... this much processor time; 0: no limit */
  colli_calibration calibration;   /* what it has measured, or typical costs */
  double link_mbit;                /* the speed of its host's link to the network; 0: not known */
  uint64_t link_source;            /* colli_speed_source */
  char levels[COLLI_LEVELS_BYTES]; /* where its host is: "paris/rack 7"; "": not known */
  uint64_t level_source;           /* colli_level_source */
  double level_alpha_ns[COLLI_HOST_LEVELS]; /* what a message costs that leaves each of these; 0:
                                             * not known */
  double level_beta_ns_per_byte[COLLI_HOST_LEVELS];
  uint64_t corrections; /* the digest of those that it has read; 0: none */
  colli_addr control_addrs[COLLI_MAX_ADDRS];
  char transport_names[64]; /* in the order of choice: "shm,verbs,tcp" */
  uint8_t blob[COLLI_MAX_TRANSPORTS][COLL_BLOB_BYTES];
  uint32_t status_port;    /* where other hosts ask for status pages; 0: nowhere */
  uint32_t gpu_slot_bytes; /* COLL_GPU_SLOT_BYTES */
} colli_rank_info;

struct boot_polls;
struct boot_shortage;

/*
 * Lifelines: connections to other ranks that stay silent while all is well. If one brings data or
 * ends, its rank has given up or died, and the bootstrap fails with PEER_LOST at once. A NULL
 * colli_lifelines means that there are none and that the listener is not kept.
 *
 * The caller may do work of its own meanwhile, and end the bootstrap for its own reasons:
 * *interrupt* is called whenever something that *watch* has added is ready, at least every 50 ms,
 * and ends it by returning an error.
 *
 * With *collect*, nobody checks in and the id has no listener, but the caller's own connections
 * bring the records to rank 0, and the caller decides whether all have succeeded.
 */
typedef struct colli_lifelines {
  const int *lifelines;      /* descriptors, which stay the caller's */
  const int *lifeline_ranks; /* to which rank each leads */
  int nlifelines;
  void *ctx; /* of these functions, which may be NULL: */
  coll_status (*interrupt)(void *ctx, coll_error *error);
  void (*watch)(void *ctx, struct boot_polls *polls);
  /* Rank 0 fills in the table; the others send `mine`. COLL_T_DONE: that is done; COLL_T_AGAIN:
   * call again, unless it is `late`; or a coll_status. */
  int (*collect)(void *ctx, const colli_rank_info *mine, colli_rank_info *table, bool late);
  struct boot_shortage *shortage; /* of this rank so far; the bootstrap adds its own; or NULL */
  long long timeout_ms;           /* for colli_create: replaces create_timeout_ms unless it is 0 */
  colli_secret *keep; /* for colli_create: this rank gets a shrink listener with this secret */
  /* In, on the server, and with `collect` on all: its shared time. Out: each rank's, if its record
   * has a clock_id. */
  colli_shared_time time;
  int listen_fd; /* out: the listener behind control_addrs, which the caller then owns; or -1 */
} colli_lifelines;

/*
 * Checks in, waits for all ranks, and returns the table and the control links. Collective; blocks
 * until deadline_ns (colli_now_ns time) at most. The rank with an id->listen_fd serves the others
 * from it, and closes it in every case. `mine` is completed with control_addrs. If any rank fails,
 * every rank that checked in gets an error that names the cause: missing ranks (TIMEOUT), a rank
 * claimed twice or an nranks that differs (MISMATCH, both hosts and pids named), wrong secret
 * (AUTH). *table is malloc'ed: nranks records. `log` gets a line for each rejected connection.
 */
coll_status colli_bootstrap(const colli_id *id, int rank, int nranks, colli_rank_info *mine,
                            const colli_params *params, uint64_t deadline_ns, const colli_log *log,
                            colli_lifelines *lifelines, colli_rank_info **table, colli_ctrl **ctrl,
                            coll_error *error);

#endif
