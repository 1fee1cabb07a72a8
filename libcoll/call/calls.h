/*
 * calls.h: from a call to a request: the state that calls of one communicator share, and the
 * checks, plan and buffers of a collective. Functions that can refuse a call fill in `error`, which
 * their caller records in its communicator.
 */
#ifndef COLLI_CALL_CALLS_H
#define COLLI_CALL_CALLS_H

#include "libcoll/base/param.h"
#include "libcoll/call/call.h"
#include "libcoll/call/memory.h"
#include "libcoll/exec/exec.h"

/* Counts and displacements that libcoll itself made for a call. */
typedef struct colli_tables {
  struct colli_tables *next;
  size_t words[];
} colli_tables;

/* The calls that wait for the end of a group. */
typedef struct colli_group {
  int depth;
  coll_status refused; /* the first call that was refused */
  colli_call *calls;
  coll_request **requests;
  int count, capacity;
  bool has_user_ops;    /* of which its calls have references */
  colli_tables *tables; /* of its calls, where libcoll made them */
} colli_group;

typedef struct colli_calls {
  colli_exec *exec;               /* the communicator's */
  const colli_memories *memories; /* the communicator's */
  colli_plans plans;
  uint64_t sequence; /* of the last collective */
  int turn;          /* 0 or 1: the root of the next all-reduce, for algorithms that take turns */
  coll_request *free_requests; /* for collectives */
  coll_request *free_messages; /* for point-to-point and one-sided operations */
  struct colli_request_block *request_blocks;
  struct colli_message_block *message_blocks;
  coll_request complete; /* what nonblocking messages return that ended at once */
  unsigned unpolled;     /* such messages that advanced nothing else */
  colli_group group;
  coll_determinism deterministic; /* from the settings, as is accumulate */
  coll_accumulate accumulate;
  colli_finite_check check_finite;
  bool found_nonfinite; /* by that check; it is over */
} colli_calls;

/* Counts an operation that starts or was run. */
static inline void colli_calls_count(colli_calls *calls, const colli_plan *plan) {
  calls->sequence++;
  calls->turn ^= plan->turns;
}

/* ---- call_check.c ---------------------------------------------------------------------------- */

/* Checks everything about a collective call that one rank can see. */
coll_status colli_call_check(const colli_calls *calls, const colli_call *call, coll_error *error);

/* The part of this check that concerns type and operation of a reduction. */
coll_status colli_call_check_op(const colli_calls *calls, const colli_call *call,
                                coll_error *error);

/* The part of this check that depends on the buffers. */
coll_status colli_call_check_buffers(const colli_calls *calls, const colli_call *call,
                                     coll_error *error);

/* Elements that `call` reads from sendbuf and writes to recvbuf on this rank. */
void colli_call_extent(const colli_calls *calls, const colli_call *call, size_t *reads,
                       size_t *writes);

/* ---- call_plan.c ----------------------------------------------------------------------------- */

/* The count that is used to choose algorithms of v-forms whose counts no rank knows completely. */
size_t colli_call_assumed_count(int type);

/* Fills in a plan, except for the choices, for a call with valid type and operation. */
void colli_call_resolve(const colli_calls *calls, const colli_call *call, const colli_plan_key *key,
                        colli_plan *plan);

/* Checks a collective call, and finds or makes its plan. */
coll_status colli_call_plan(colli_calls *calls, const colli_call *call, colli_plan **plan,
                            coll_error *error);

/* Begins the connections of a plan when its first operation has started, and decides whether
 * further calls use the fast path. */
void colli_call_connect(const colli_calls *calls, colli_plan *plan, coll_request *op);

/* ---- prepare.c ------------------------------------------------------------------------------- */

/* Fills in a collective's request from its plan, and counts it. Returns NULL, or what there is not
 * enough memory for. */
const char *colli_call_prepare(colli_calls *calls, const colli_call *call, const colli_plan *plan,
                               coll_request *op);

/* A checksum of the tables of counts that all ranks have, so that ranks notice a disagreement. */
size_t colli_call_blocks_number(const colli_calls *calls, const size_t *counts);

/*
 * Copies the tables of a persistent call into memory of its request, and makes the call point to
 * the copies; false if out of memory.
 */
bool colli_call_keep_blocks(const colli_calls *calls, colli_call *call, coll_request *op);

/* Finishes a collective: moves results to where the caller wants them. */
void colli_call_finish(const colli_calls *calls, coll_request *op);

/* ---- group.c --------------------------------------------------------------------------------- */

/* Keeps a checked call for the end of the group. */
coll_status colli_group_add(colli_group *group, const colli_call *call, coll_error *error);

/* Takes tables over: they live until the end of the group. */
void colli_group_own(colli_group *group, colli_tables *tables);

/* Drops all calls, with their tables. */
void colli_group_clear(colli_group *group);

void colli_group_free(colli_group *group);

#endif
