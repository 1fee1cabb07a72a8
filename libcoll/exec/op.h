/*
 * op.h: one operation in flight (the public coll_request) and its lanes. Of a point-to-point
 * operation it is the beginning of a longer record (colli_p2p_op), and has no lanes, which would
 * make it twenty times as long.
 */
#ifndef COLLI_EXEC_OP_H
#define COLLI_EXEC_OP_H

#include "coll/coll_request.h"
#include "coll/coll_transport.h"
#include "libcoll/exec/reduce.h"
#include "libcoll/sched/partition.h"
#include "libcoll/sched/sched.h"

struct colli_exec;

/* What to do before the end of an operation is reported: with the result of one that worked on a
 * copy, or whatever its owner has asked for. */
typedef enum colli_stage_out {
  COLLI_STAGE_NONE,
  COLLI_STAGE_COPY,
  COLLI_STAGE_NARROW,
  COLLI_STAGE_OWNER, /* calls `conclude` */
  COLLI_STAGE_DEVICE /* the same, for a call on GPU memory */
} colli_stage_out;

/* The maximum of pending runs of sends per lane, and how many of them may be by reference. The rest
 * is for sends that complete without the peer; otherwise ranks could wait for each other. */
#define COLLI_MAX_PENDING 20
#define COLLI_MAX_BY_REF  16

/* Shorter buffers are not registered with transports. */
#define COLLI_REGISTER_MIN_BYTES 16384

/* A bit beside those of registered buffers: there are rooms, and no such buffer. Both are released
 * when an operation ends. */
#define COLLI_HAS_ROOMS 4u

/* Another: parts of the message are in memory of GPUs that is lent to transports. */
#define COLLI_HAS_LENT 8u

/* Memory of a GPU that a transport has registered for one half of a message. */
typedef struct colli_lent {
  const coll_transport_ops *with; /* NULL: none */
  coll_endpoint *at;
  coll_device_memory *memory;
  const char *address; /* its first byte, which the processor cannot read */
} colli_lent;

/* The halves of a message. */
enum { COLLI_LENT_SENT, COLLI_LENT_RECEIVED, COLLI_LENT_COUNT };

/*
 * Messages that are adjacent in memory and on a connection. Their buffers are in use until the
 * connection has counted them: [begin, end), in slices of `slice` bytes, the last of which may be
 * shorter, up to message number `ticket`. begin is NULL if they were sent from slots.
 */
typedef struct colli_pending {
  coll_conn *conn;
  uint64_t first;
  uint64_t ticket;
  const char *begin;
  const char *end;
  size_t slice;
} colli_pending;

/* The part of a step's chunk that travels in one message. */
typedef struct colli_slice {
  const char *src; /* src_buf[chunk_in], or NULL without */
  char *dst;       /* dst_buf[chunk_out], or NULL without STORE */
  size_t count;
  size_t bytes;
} colli_slice;

/* Where one lane of an operation stands. */
typedef struct colli_lane {
  struct coll_request *op;
  struct colli_lane *next; /* the lane behind it on this channel */
  int index;
  int pass;
  int step;         /* index in sched->steps */
  bool received;    /* the current slice has arrived or was made in place; it only has to be sent */
  bool cut;         /* `slice` and `total` are up to date */
  bool shares_work; /* work on received messages is offered to the senders */
  int offered;      /* the current step's work was offered before the step began */
  colli_slice slice;
  size_t total; /* elements of the current step's chunk */
  size_t done;  /* those of them that are done */
  int npending;
  uint64_t preposted; /* the step, counted over all passes, up to which receives are preposted */
  int waits_for;      /* the peer for which this lane waited when it last stopped, or -1 */
  colli_pending pending[COLLI_MAX_PENDING];
} colli_lane;

/* Runs one step of a lane as far as possible. */
typedef int colli_step_fn(struct colli_exec *exec, colli_lane *lane, const colli_step *step);

struct coll_request {
  coll_comm *comm;
  struct coll_request *next; /* in the free list */

  /* of every operation in flight */
  struct coll_request *newer, *older; /* among them */
  coll_status status;
  bool done;
  bool moved;                /* since the watchdog last checked */
  bool active;               /* a persistent operation runs, or its end is not yet reported */
  colli_stage_out stage_out; /* what to do with the result when all is done */
  int partner;               /* of a message: the first rank that it is about, or COLL_ANY_SOURCE */
  struct colli_call *kept;   /* the arguments of a persistent operation, or NULL */
  colli_lane *lane;          /* COLLI_MAX_LANES of them; NULL: a point-to-point operation */
  uint64_t told_at;    /* the watchdog's time of the last report to other ranks that it is stuck */
  uint64_t told_again; /* after how long it reports again */
  uint64_t moved_at;   /* the watchdog's time when it last moved */
  uint64_t sequence; /* sequence number of the collective on its communicator; 0: point-to-point */
  coll_tag tag;
  colli_coll coll;
  const char *name;            /* of a point-to-point operation: "send", ... */
  uint64_t flight;             /* of such a one: its number in the flight record */
  struct colli_flight *record; /* its place in the flight record, unless reused since */

  /* of a collective: what it runs, on which memory */
  size_t elem_bytes;
  const char *in;
  size_t in_first; /* the vector's element at which `in` starts (all-gather: this rank's block) */
  char *out;
  size_t out_first;    /* the same of `out` (reduce-scatter: this rank's block) */
  uint32_t region[2];  /* the regions in which `in` and `out` lie; 0: in none */
  size_t extent[2];    /* bytes of `in` and `out` that are worth registering, or 0 */
  unsigned registered; /* bits of those buffers that are; COLLI_HAS_ROOMS */
  unsigned by_ref;     /* COLLI_BY_REF, or COLLI_BY_REF_IN_PLACE if they are the same memory */
  char *scratch;       /* belongs to the request and is used again by later operations */
  size_t scratch_bytes;
  struct colli_rooms *rooms; /* of elements that are longer than a slot, or NULL: rooms.h */
  const colli_sched *sched;
  colli_step_fn *step; /* colli_exec_step_of() */
  colli_partition partition;
  colli_reduce_fn reduce;
  int reduce_type, reduce_op; /* where it is among the kernels */
  bool stream;                /* write results that nobody reads soon past the caches */
  colli_average_fn average;   /* NULL unless the operation is COLL_AVG */
  coll_op_fn user_fn;         /* instead of `reduce`, or NULL */
  void *user_context;
  coll_type user_type;
  int nranks;
  int lanes_left;
  const coll_transport_ops *registered_with; /* if any buffer is: with whom */
  coll_endpoint *registered_at;
  colli_lent *lent; /* of a message that has COLLI_HAS_LENT: COLLI_LENT_COUNT of them */

  /* its owner's data, which the executor does not read */
  uint64_t plan;  /* number of the plan from which it was last filled in; 0: none */
  size_t *blocks; /* v-forms: four numbers per rank (colli_blocks); kept like scratch */
  size_t blocks_bytes;
  char *stage; /* a copy of the vector to work on; kept like scratch */
  size_t stage_bytes;
  int stage_type;
  size_t stage_count;
  void *stage_to;
  /* What ends what its owner does with it, which may change `status`. reported: to the caller, who
   * gets the results; otherwise there will be none. */
  void (*conclude)(struct coll_request *op, bool reported);
  void *owner;              /* for `conclude` */
  coll_request_fn callback; /* called at the end, which no caller asks for; or NULL */
  void *callback_context;
  int parts; /* of a group: its operations that have not ended */

  /* coll_request_set_timeout(). Nothing clears these: a later operation has another number. */
  uint64_t limit_of; /* the number of the operation that has a limit */
  uint64_t limit_ns; /* the time by which it must end */
  int limit_ms;      /* as given; 0: none */
};

/* The number of an operation in flight among those of its kind. */
static inline uint64_t colli_op_number(const coll_request *op) {
  return op->coll == COLLI_SENDRECV ? op->flight : op->sequence;
}

/* Whether an operation in flight has a limit of its own. */
static inline bool colli_op_limited(const coll_request *op) {
  return op->limit_ms > 0 && op->limit_of == colli_op_number(op);
}

#endif
