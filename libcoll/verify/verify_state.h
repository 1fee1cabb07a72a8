/* verify_state.h: the verifier's state while it runs all ranks. */
#ifndef COLLI_VERIFY_VERIFY_STATE_H
#define COLLI_VERIFY_VERIFY_STATE_H

#include "libcoll/sched/check.h"
#include "libcoll/sched/conns.h"
#include "libcoll/verify/expr.h"
#include "libcoll/verify/verify.h"

#define COLLI_UNWRITTEN (-1)

/* A message under way. */
typedef struct colli_vmsg {
  int32_t value;  /* an expression; in a barrier the index of a set of ranks */
  int64_t length; /* identifies its length: equal numbers mean equal lengths */
  int32_t pass;
  int32_t by_ref; /* by reference: its place in the sender's memory; else -1 */
  int32_t next;
} colli_vmsg;

/* The messages of a connection, oldest first. */
typedef struct colli_vconn {
  int32_t head, tail; /* in the pool; -1: none */
  int32_t count;
} colli_vconn;

typedef struct colli_vlane {
  int pass;
  int step;
  int32_t value; /* of a step that has taken its message and still has to send */
  bool received; /* there is such a value */
  bool queued;   /* in the list of lanes to run */
} colli_vlane;

/*
 * The last accesses to each place, and each lane's vector clock; only for ranks with several lanes.
 * A position is 1 + pass * nsteps + step, which grows along a lane.
 */
typedef struct colli_vorder {
  int32_t *clock;    /* [lane][other]: position up to which `other` is known to be done */
  int32_t *snapshot; /* [pass][step][other]: the clock after that step */
  int32_t *wrote;    /* [place]: position of the last write; 0: none */
  int8_t *writer;    /* [place]: its lane */
  int32_t *read;     /* [place][lane]: position of that lane's last read */
} colli_vorder;

/* One rank. Places: OUTPUT pass by pass, then INPUT if it is separate memory, then SCRATCH. */
typedef struct colli_vrank {
  const colli_sched *sched;
  colli_vlane lane[COLLI_MAX_LANES];
  int32_t *place;
  int32_t *by_ref;     /* [place]: messages that lie there */
  int8_t *by_ref_lane; /* [place]: the lane that sent the last one */
  colli_vorder order;
} colli_vrank;

typedef struct colli_verifier {
  const colli_verify_options *options;
  int nranks;
  int nchunks;
  int passes;
  colli_coll coll;
  int root;
  const colli_shape *shape; /* rank 0's; the others differ in `rank` only */
  colli_vrank *ranks;
  colli_exprs exprs;
  colli_conns conns;
  colli_vconn *conn;
  colli_vmsg *msgs;
  int32_t nmsgs, msgs_capacity, free_msg;
  uint64_t *sets; /* barrier: sets of ranks; set r is what rank r knows */
  int32_t nsets, sets_capacity;
  int32_t *todo; /* lanes to run: a ring of rank * COLLI_MAX_LANES + lane */
  size_t todo_first, todo_count, todo_capacity;
  coll_status status;
  char *why;
  size_t why_bytes;
} colli_verifier;

/* ---- verify_state.c -------------------------------------------------------------------------- */

/* Records the first objection: "rank 3, step 5, pass 0: ..."; step -1: none. Returns false. */
bool colli_vobject(colli_verifier *v, int rank, int step, int pass, const char *format, ...)
    __attribute__((format(printf, 5, 6)));

/* Records that memory ran out. Returns false. */
bool colli_vno_memory(colli_verifier *v);

/* ---- verify_place.c: where chunks lie, and how long they are --------------------------------- */

/* The place of a chunk that the rank has. */
int colli_vplace(const colli_verifier *v, int rank, colli_buf buf, int chunk, int pass);

/* A number that is equal for two chunks only if they have the same length in every partition. */
int64_t colli_vlength(const colli_verifier *v, int rank, colli_buf buf, int chunk);

/* ---- verify_promise.c: what outputs must hold ------------------------------------------------ */

/* Checks the promises of the collective on all ranks. */
bool colli_vcheck_promise(colli_verifier *v);

/* ---- verify_order.c: accesses of one rank's lanes -------------------------------------------- */

bool colli_vorder_make(colli_vorder *order, const colli_sched *sched, int passes, int nplaces);
void colli_vorder_free(colli_vorder *order);

/* A step begins (its deps are done) and ends. */
void colli_vorder_begin(colli_vrank *rank, const colli_step *step, int pass);
void colli_vorder_end(colli_vrank *rank, int lane, int pass, int step);

/* Records an access by a lane's current step. Returns -1, or the lane with which it conflicts. */
int colli_vorder_access(colli_vrank *rank, int lane, int place, bool write);

/* ---- verify_step.c: the meaning of a step
 * --------------------------------------------------------- */

/* Runs a lane until it blocks or ends; false after an objection. */
bool colli_vrun_lane(colli_verifier *v, int rank, int lane);

/* Adds a lane to those to run. */
void colli_vwake(colli_verifier *v, int rank, int lane);

/* The words of set `set` of a barrier. */
static inline size_t colli_vset_words(const colli_verifier *v) {
  return ((size_t)v->nranks + 63) / 64;
}

#endif
