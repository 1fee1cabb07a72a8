/*
 * call.h: one public call, whatever its form: arguments, checks, and how it becomes a request. The
 * public functions (forms.c) fill in a colli_call and hand it to run, launch or keep.
 */
#ifndef COLLI_CALL_CALL_H
#define COLLI_CALL_CALL_H

#include "libcoll/call/plan.h"

/* What a call of COLLI_SENDRECV is. */
typedef enum colli_p2p_kind {
  COLLI_P2P_SEND,
  COLLI_P2P_RECV,
  COLLI_P2P_SENDRECV,
  COLLI_P2P_PUT,
  COLLI_P2P_SIGNAL,
  COLLI_P2P_WAIT_SIGNAL
} colli_p2p_kind;

/* The arguments of a call; what does not apply is 0. Made anew for each call, so it is kept short.
 */
typedef struct colli_call {
  const char *name; /* "allreduce", "gatherv", ... */
  const void *sendbuf;
  void *recvbuf;
  size_t count; /* elements; per rank in block collectives; sent in sendrecv */
  int type;
  int op;
  int root;
  colli_coll coll;    /* v-forms have their plain form's; point to point and one-sided: SENDRECV */
  colli_p2p_kind p2p; /* of SENDRECV */
  bool varying;       /* a v-form */
  union {
    /* v-forms. NULL displs: packed. gatherv and scatterv: `count` is the rank's own block. */
    struct {
      const size_t *in_counts, *in_displs;
      const size_t *out_counts, *out_displs;
    };
    /* SENDRECV: the peer is `dest` for what goes out, `source` for what comes. */
    struct {
      int dest, send_tag;
      int source, recv_tag;
      union {
        coll_message *message;
        coll_window *window; /* one-sided */
      };
      union {
        size_t recv_count;
        size_t offset;    /* put: bytes from the window's base */
        uint64_t signals; /* wait_signal: how many */
      };
    };
  };
} colli_call;

/* ---- run.c -----------------------------------------------------------------------------------
 */

/* Blocking: starts the call and waits for its end; in a group it is kept for the group's end. */
coll_status colli_call_run(coll_comm *comm, const colli_call *call);

/* Nonblocking: starts the call and lets it move once. */
coll_status colli_call_launch(coll_comm *comm, const colli_call *call, coll_request **request);

/* Persistent: checks the call and keeps it in a request that coll_start() runs. */
coll_status colli_call_keep(coll_comm *comm, const colli_call *call, coll_request **request);

/* Stream-ordered: not yet. */
coll_status colli_call_on_stream(coll_comm *comm, const colli_call *call);

/* Checks and starts a call. `limited`: counts against COLL_MAX_REQUESTS. */
coll_status colli_call_start(coll_comm *comm, const colli_call *call, bool limited,
                             coll_request **started);

/* Waits until an operation is complete, and finishes it off; its status. */
coll_status colli_call_wait(coll_comm *comm, coll_request *op);

/* ---- call_check.c -----------------------------------------------------------------------------
 */

/* Checks everything that one rank can see of a collective call. */
coll_status colli_call_check(coll_comm *comm, const colli_call *call);

/* The part of it that is about type and operation of a reduction. */
coll_status colli_call_check_op(coll_comm *comm, const colli_call *call);

/* The part of it that depends on the buffers. */
coll_status colli_call_check_buffers(coll_comm *comm, const colli_call *call);

/* Elements that `call` reads from sendbuf and writes to recvbuf on this rank. */
void colli_call_extent(const coll_comm *comm, const colli_call *call, size_t *reads,
                       size_t *writes);

/* ---- call_plan.c ------------------------------------------------------------------------------
 */

/* The count by which algorithms of v-forms are chosen whose counts no rank knows in full. */
size_t colli_call_assumed_count(int type);

/* Fills in a plan but for what is chosen, for a call whose type and operation are right. */
void colli_call_resolve(const coll_comm *comm, const colli_call *call, const colli_plan_key *key,
                        colli_plan *plan);

/* What a call's plan is made for, if it is `turn`'s turn to lead an all-reduce; v-forms have
 * another count. */
static inline colli_plan_key colli_call_key(const colli_call *call, int turn) {
  return (colli_plan_key){
      .count = call->count,
      .type = call->type,
      .op = call->op,
      .root = call->coll == COLLI_ALLREDUCE ? turn : call->root,
      .coll = (uint8_t)call->coll,
      .in_place = call->coll == COLLI_ALLTOALL && call->sendbuf == call->recvbuf,
      .varying = call->varying,
  };
}

/* Whether the buffers of a call are plainly right: apart, or one memory as they may be. */
static inline bool colli_call_plain(const colli_call *call, const colli_plan *plan) {
  uintptr_t in = (uintptr_t)call->sendbuf, out = (uintptr_t)call->recvbuf;
  if ((!in && plan->reads) || (!out && plan->writes))
    return false;
  return in + plan->reads <= out || out + plan->writes <= in || in == out + plan->shift;
}

/* Checks a collective call, and finds or makes its plan. */
coll_status colli_call_plan(coll_comm *comm, const colli_call *call, colli_plan **plan);

/* Begins the connections of a plan with its first operation, which was started, and decides whether
 * further calls run on the fast path. */
void colli_call_connect(coll_comm *comm, colli_plan *plan, coll_request *op);

/* ---- prepare.c --------------------------------------------------------------------------------
 */

/* Fills in a collective's request from its plan. */
coll_status colli_call_prepare(coll_comm *comm, const colli_call *call, const colli_plan *plan,
                               coll_request *op);

/*
 * Copies the tables of a persistent call into memory of its request, and makes the call point to
 * the copies; false without memory.
 */
bool colli_call_keep_blocks(const coll_comm *comm, colli_call *call, coll_request *op);

/* What is left to do when a collective has ended well: results go where the caller wants them. */
void colli_call_finish(coll_request *op);

/* ---- group.c ----------------------------------------------------------------------------------
 */

/* The calls that wait for the end of a group. */
typedef struct colli_group {
  int depth;
  coll_status refused; /* the first call that was refused */
  colli_call *calls;
  coll_request **requests;
  int count, room;
} colli_group;

/* Keeps a checked call for the end of the group. */
coll_status colli_group_add(coll_comm *comm, const colli_call *call);

void colli_group_free(colli_group *group);

/* ---- p2p_call.c ------------------------------------------------------------------------------
 */

/* Checks the arguments of a point-to-point or one-sided call. */
coll_status colli_p2p_check(coll_comm *comm, const colli_call *call);

/* Fills in its request. */
void colli_p2p_prepare(coll_comm *comm, const colli_call *call, coll_request *op);

#endif
