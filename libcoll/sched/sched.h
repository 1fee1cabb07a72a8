/*
 * sched.h: an algorithm as data. A *schedule* is what one rank does in one collective: lanes of
 * steps, with no pointers, counts, types, clocks or sockets in it. One executor runs it, one
 * verifier proves it, one predictor prices it, one printer draws it.
 *
 * The user's vector is cut into `nchunks` chunks (partition.h says where). In block collectives
 * (colli_exact) there are as many chunks as ranks: chunk b of the buffer that holds nranks blocks
 * is block b, and a buffer that holds one block has only that chunk:
 *
 *   all-gather, gather        INPUT: the rank's own chunk    OUTPUT: all (gather: on root only)
 *   reduce-scatter, scatter   INPUT: all (scatter: on root)  OUTPUT: the rank's own chunk
 *   all-to-all                INPUT: chunk d goes to rank d  OUTPUT: chunk s comes from rank s
 *   others                    the whole vector in both; reduce has an OUTPUT on root only,
 *                             broadcast an INPUT on root only, exscan no OUTPUT on rank 0
 *
 * SCRATCH chunk c is as long as chunk c % nchunks; a rank that needs many of one length only may
 * have chunks number rank + k * nchunks alone (scratch_own). A step works on one chunk:
 *
 *   value v   = with RECV: the next message from peer_recv on the step's channel
 *               else     : src_buf[chunk_in]
 *   FOLD      : with RECV   : v = op(src_buf[chunk_in], v), or op(v, src_buf[chunk_in]) with
 *               MSG_LEFT; without RECV: v = op(dst_buf[chunk_out], v)
 *   FINAL     : v is now the reduction over all ranks (AVG divides here, once); never in scans
 *   STORE     : dst_buf[chunk_out] = v
 *   SEND      : v goes to peer_send
 * on the step's channel
 *
 * Steps of a lane run in order; lanes run beside each other, except that a step waits for the steps
 * in `dep` (of other lanes, same pass). Lane l uses channel l. A large vector takes several
 * *passes*: the schedule is run again on further pieces of each chunk, and each lane goes from pass
 * to pass without waiting for the other lanes. SCRATCH is the same memory in every pass.
 */
#ifndef COLLI_SCHED_SCHED_H
#define COLLI_SCHED_SCHED_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "libcoll/sched/collective.h"

#define COLLI_MAX_LANES 8
#define COLLI_MAX_RANKS 65536 /* of a communicator: a tag has 16 bits for the root */
#define COLLI_MODEL_RANKS                                                                          \
  131072 /* of schedules and predictions: coll_explain looks further than communicators go */

enum {
  COLLI_SEND = 1,
  COLLI_RECV = 2,
  COLLI_FOLD = 4,
  COLLI_STORE = 8,
  COLLI_FINAL = 16,
  COLLI_MSG_LEFT = 32,
  /*
   * A SEND with this bit may be by reference, out of place or in place: either no later step of the
   * rank stores there, or waiting for the peer is harmless (by_reference.c). Emitters do not set
   * these bits.
   */
  COLLI_BY_REF = 64,
  COLLI_BY_REF_IN_PLACE = 128
};

typedef enum colli_buf { COLLI_INPUT = 0, COLLI_OUTPUT = 1, COLLI_SCRATCH = 2 } colli_buf;

#define COLLI_NO_DEP (-1)

typedef struct colli_step {
  uint8_t bits;
  uint8_t lane;
  uint8_t src_buf;
  uint8_t dst_buf;
  int32_t peer_recv; /* -1 if none */
  int32_t peer_send; /* -1 if none */
  int32_t chunk_in;
  int32_t chunk_out;
  int32_t dep[2]; /* index of a step in `steps`, or COLLI_NO_DEP */
} colli_step;
_Static_assert(sizeof(colli_step) == 28, "a step stays small");

/*
 * In which order the contributions of the ranks are combined. Every order but ANY keeps them in
 * rank order, as operations that do not commute need it.
 */
typedef enum colli_order {
  COLLI_ORDER_ANY = 0,
  COLLI_ORDER_RANKS = 1, /* any parentheses, but ranks from left to right */
  COLLI_ORDER_TREE = 2,  /* the one tree that order.h defines */
  COLLI_ORDER_LEFT = 3   /* ((x0 op x1) op x2) op ... */
} colli_order;

/* The order in which sums of floats are combined under a setting (COLL_DETERMINISTIC). */
static inline colli_order colli_order_of_sums(coll_determinism setting, colli_coll coll) {
  const bool scan = coll == COLLI_SCAN || coll == COLLI_EXSCAN;
  if (setting <= COLL_DETERMINISTIC_OFF)
    return COLLI_ORDER_ANY;
  return setting == COLL_DETERMINISTIC_ON && !scan ? COLLI_ORDER_TREE : COLLI_ORDER_LEFT;
}

#define COLLI_INNER_LEVELS 8 /* levels of groups inside the widest, at most */

/* The input of an algorithm. Equal shapes give equal schedules. */
typedef struct colli_shape {
  colli_coll coll;
  int nranks;
  int rank;
  int root;             /* 0 where the collective has none */
  colli_order order;    /* ANY where nothing is reduced */
  bool in_place;        /* all-to-all only: INPUT and OUTPUT are the same memory */
  bool varying;         /* block collectives: blocks differ in length, and may be empty */
  int ngroups;          /* 0 or 1: all ranks are equally near; else the number of groups, which are
                         * hosts, or the widest level of hosts that are near each other */
  const int32_t *group; /* the group of each rank, below ngroups without gaps; NULL without */
  int ninner;           /* levels of groups inside those: hosts first, each inside the next */
  const int32_t *inner[COLLI_INNER_LEVELS]; /* of each level, numbers from 0 without gaps */
  const uint8_t *share; /* of each host, how much it combines in a weighted algorithm, in relation
                         * to others of its group; 0: nothing. NULL: all the same. In a part of
                         * hier.h between hosts: of each rank */
  struct colli_layouts *layouts; /* of these groups, kept from rank to rank where schedules of all
                                  * ranks are made (hier_layout.h); NULL: they are not kept */
} colli_shape;

/* The host of each rank, numbered from 0 on: the innermost groups. NULL: there is one. */
static inline const int32_t *colli_shape_hosts(const colli_shape *shape) {
  return shape->ngroups <= 1 ? NULL : shape->ninner ? shape->inner[0] : shape->group;
}

/* Steps are sorted by lane; lane l's are steps[lane_first[l]] .. steps[lane_first[l + 1] - 1]. */
typedef struct colli_sched {
  colli_coll coll;
  const struct colli_algo *algo;
  int nranks;
  int rank;
  int root;          /* 0 where the collective has none */
  colli_shape shape; /* what it was made for; repeats the fields above */
  int nchunks;
  int nscratch;     /* chunks of scratch, at most 2 * nchunks + 32 */
  bool scratch_own; /* SCRATCH has the chunks rank + k * nchunks, k < nscratch, and no others */
  int nlanes;
  int nsteps;
  int lane_first[COLLI_MAX_LANES + 1];
  colli_step *steps;
} colli_sched;

/* The index of a SCRATCH chunk in the scratch memory. */
static inline int colli_sched_place(const colli_sched *sched, int chunk) {
  return __builtin_expect(sched->scratch_own, 0) ? chunk / sched->nchunks : chunk;
}

/* ---- builder: collects steps in any lane order ---------------------------------------------- */

typedef struct colli_builder colli_builder;

/* A new builder, or NULL if out of memory. Freed by finish or discard. */
colli_builder *colli_builder_create(const colli_shape *shape, int nchunks, int nscratch,
                                    int nlanes);
/* Sets the number of chunks of scratch, where it is known only once all steps are. */
void colli_builder_scratch(colli_builder *builder, int nscratch);

/* Declares that all scratch is as long as the rank's own chunk (scratch_own). */
void colli_builder_scratch_own(colli_builder *builder);

void colli_builder_discard(colli_builder *builder);

/* Adds a step with no deps and returns a handle for colli_builder_dep. finish reports errors. */
int colli_builder_add(colli_builder *builder, colli_step step);

/* Makes step `waiter` wait for step `first` (handles). At most two each. */
void colli_builder_dep(colli_builder *builder, int waiter, int first);

/*
 * Sorts by lane, translates deps, checks every field (peers, chunks, lanes, bit combinations) and
 * returns the schedule. Frees the builder. Errors: NO_MEMORY, INTERNAL (the emitter made a bad
 * step).
 */
coll_status colli_builder_finish(colli_builder *builder, colli_sched **sched);

void colli_sched_free(colli_sched *sched);

/* ---- by_reference.c
 * --------------------------------------------------------------------------------- */

/*
 * Sets COLLI_BY_REF and COLLI_BY_REF_IN_PLACE of all steps. harmless: a store may wait until the
 * peer has read what the same lane sent from there, because the peer does not wait for this rank
 * meanwhile. If out of memory, it sets no bits.
 */
void colli_sched_mark_by_reference(colli_sched *sched, bool harmless);

/* Bytes of memory that a schedule takes. */
size_t colli_sched_bytes(const colli_sched *sched);

/* ---- dump ------------------------------------------------------------------------------------ */

/* Prints one rank's schedule, a line a step, as coll_explain shows it. */
void colli_sched_dump(const colli_sched *sched, FILE *out);

#endif
