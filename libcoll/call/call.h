/*
 * call.h: the arguments of one public call, whatever its form. The public functions (api/forms.c)
 * fill in a colli_call.
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

/* The arguments of a call; those that do not apply are 0. Filled in for each call, so it is kept
 * small. */
typedef struct colli_call {
  const char *name; /* "allreduce", "gatherv", ... */
  const void *sendbuf;
  void *recvbuf;
  size_t count; /* elements; per rank in block collectives; sent in sendrecv */
  coll_op op;
  int type;
  int root;
  colli_coll coll;    /* v-forms: that of the plain form; point-to-point, one-sided: SENDRECV */
  colli_p2p_kind p2p; /* of SENDRECV */
  bool varying;       /* a v-form, */
  bool known;         /* of which all ranks have the same counts and displacements */
  bool own_tags;      /* of SENDRECV: COLLI_OWN_TAG()s */
  bool on_host;       /* neither buffer is in GPU memory, so nobody need look */
  colli_lent *lent;   /* of SENDRECV: what of GPUs' memory is lent to transports, or NULL */
  union {
    /* v-forms. NULL displs: packed. gatherv and scatterv: `count` is the rank's own block. */
    struct {
      const size_t *in_counts, *in_displs;
      const size_t *out_counts, *out_displs;
    };
    /* SENDRECV: `dest` receives what this rank sends, `source` sends what it receives. */
    struct {
      int dest, send_tag;
      int source, recv_tag;
      union {
        coll_message *message;
        coll_matched *taken; /* coll_mrecv() */
        coll_window *window; /* one-sided */
      };
      union {
        size_t recv_count;
        size_t offset;    /* put: bytes from the window's base */
        uint64_t signals; /* wait_signal: how many */
      };
    };
    /* A part of a plain call (stream/staged_parts.h): the count of the whole call, so many elements
     * are from one block of the caller's buffers to the next. 0: not a part. */
    size_t whole;
  };
} colli_call;

/* Whether a call is a part of another one. */
static inline bool colli_call_is_part(const colli_call *call) {
  return call->coll != COLLI_SENDRECV && !call->varying && call->whole > 0;
}

/* The key of a call's plan; `turn` is the root of this all-reduce, for algorithms that take turns.
 * v-forms have another count. */
static inline colli_plan_key colli_call_key(const colli_call *call, int turn) {
  return (colli_plan_key){
      .count = call->count,
      .op = call->op,
      .type = call->type,
      .root = call->coll == COLLI_ALLREDUCE ? turn : call->root,
      .coll = (uint8_t)call->coll,
      .in_place = call->coll == COLLI_ALLTOALL && call->sendbuf == call->recvbuf,
      .varying = call->varying,
  };
}

/* Whether the buffers of a call are valid at first sight: disjoint, or in place as allowed. */
static inline bool colli_call_plain(const colli_call *call, const colli_plan *plan) {
  uintptr_t in = (uintptr_t)call->sendbuf, out = (uintptr_t)call->recvbuf;
  if ((!in && plan->reads) || (!out && plan->writes))
    return false;
  return in + plan->reads <= out || out + plan->writes <= in || in == out + plan->shift;
}

#endif
