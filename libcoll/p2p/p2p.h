/*
 * p2p.h: messages between two ranks: send, receive, sendrecv, and one-sided put, signal and wait.
 * All of them travel on the channel COLLI_CHANNEL_P2P. A receive takes the first message that
 * matches its source and tag, whatever else arrived before it.
 *
 * A message of at most a slot is *eager*: it is sent at once, and matched with a posted receive
 * when it arrives; an *unexpected* one is kept until its receive is posted. A longer one takes a
 * *rendezvous*: its first slice is sent and matched the same way; the rest waits until the receiver
 * has matched it and says *clear to send*.
 *
 * Memory of a GPU may be lent to the transport of the peer. A message from there is sent by the
 * device alone. Of a message that is received there, the first slice goes to a copy on the host;
 * then the receiver offers the transport a *target* for the rest, and clear to send says so: the
 * sender has to send the rest there, whatever memory it has.
 *
 * Bounds. A rank keeps at most COLLI_UNEXPECTED_MAX unexpected messages, or
 * COLLI_UNEXPECTED_MAX_BYTES of them, of one peer. At this limit it stops at the next message of
 * the peer that matches no posted receive, until receives have taken some. The peer's sends then
 * wait, and so does everything behind them. An eager message that cannot be sent for a while (the
 * peer has not connected or does not read) is *buffered*: copied, within the same limits, so that
 * its send is complete. If the caller waits for the send, it waits longer: for half of the deadline
 * until there is a connection, and COLLI_PATIENCE_NS for a peer that does not read. No other memory
 * is allocated here, and it is reused for later messages.
 *
 * While any operation is open, every poll reads from all peers with which the rank has exchanged
 * messages, because a rank that waits for one peer must not hold up another. Nothing here waits or
 * reads a clock.
 */
#ifndef COLLI_P2P_P2P_H
#define COLLI_P2P_P2P_H

#include <limits.h>
#include <stdbool.h>

#include "libcoll/exec/exec.h"

#define COLLI_UNEXPECTED_MAX       64
#define COLLI_UNEXPECTED_MAX_BYTES ((size_t)4 << 20)
#define COLLI_PATIENCE_NS          100000000ull

/* The tags of libcoll's own messages are negative where they travel, so that no receive of the
 * program takes such a message: 0 .. COLLI_OWN_TAG_MAX for coll_comm_create_group(), and one for
 * the parts of collectives. The macro converts both ways. */
#define COLLI_OWN_TAG_MAX  (INT_MAX - 2)
#define COLLI_PART_TAG     (INT_MAX - 1)
#define COLLI_OWN_TAG(tag) (-2 - (tag))

/* The parts that operations are made of. */
typedef enum colli_post_kind {
  COLLI_POST_SEND,
  COLLI_POST_RECV,
  COLLI_POST_PUT,
  COLLI_POST_SIGNAL,
  COLLI_POST_WAIT, /* for signals */
  COLLI_POST_END,  /* tells a peer that this rank no longer writes to its window */
  COLLI_POST_ENDS, /* waits until all peers have told so */
  COLLI_POST_PROBE /* waits for an unexpected message */
} colli_post_kind;

typedef struct colli_post {
  struct colli_p2p_op *op; /* NULL: a buffered send, whose operation is complete */
  struct colli_post *next; /* in the one list that it is in */
  colli_post_kind kind;
  int peer; /* of a receive from any source COLL_ANY_SOURCE, until matched */
  int tag;
  int type;
  coll_tag expected;     /* of a receive: the tag of the message that fills it */
  size_t count;          /* of a receive: capacity in elements; at completion those received */
  bool exact;            /* a receive of exactly `count` elements */
  bool unfit;            /* a receive: its message has another type or length, and is thrown away */
  bool over;             /* complete */
  bool copied;           /* a send: the transport has a copy, but needs further calls to send it */
  bool to_target;        /* a rendezvous: all but the first slice goes to a target */
  bool from_lent;        /* a matched receive: its message comes from memory that is lent */
  coll_message *message; /* of a receive, or NULL */
  char *buf; /* of a send from lent memory: not to be read; of a receive: for a slot, then */
  const colli_lent *lent; /* or NULL */
  uint32_t region;        /* the region that contains the sent data; 0: none */
  size_t bytes;
  size_t done;
  size_t offset;   /* put: of the next byte in the window */
  uint32_t number; /* of a rendezvous, chosen by its sender */
  uint64_t order;  /* of a receive: its number in the order of posting */
  uint64_t ticket; /* the connection's last message that reads `buf`; 0: already read */
  uint64_t signals;
  coll_window *window;
  struct coll_matched *from; /* of a receive: the taken message that it gets, or NULL */
} colli_post;

typedef struct colli_posts {
  colli_post *head, *tail;
} colli_posts;

/* A point-to-point operation in flight. */
typedef struct colli_p2p_op {
  coll_request request; /* first, see colli_p2p_op_of() */
  int nposts;
  int posts_left;
  bool delivers;      /* the caller waits until its messages are on their way, */
  bool is_patient;    /* but has waited so long that copies will do */
  colli_post post[2]; /* what it is made of */
} colli_p2p_op;

/* The operation that a request is (COLLI_SENDRECV). */
static inline colli_p2p_op *colli_p2p_op_of(const coll_request *request) {
  return (colli_p2p_op *)(uintptr_t)request;
}

/* What the tag of a message says. */
typedef struct colli_p2p_header {
  int kind; /* p2p_internal.h */
  int tag;
  int type;
  uint64_t word; /* elements of a message, or an offset in bytes */
  uint32_t number;
} colli_p2p_header;

/* A kept message: an unexpected one, one that a probe took (the public coll_matched), or a buffered
 * send. */
typedef struct coll_matched colli_p2p_kept;
struct coll_matched {
  coll_comm *comm;                 /* of a taken one */
  colli_p2p_kept *next, *prev;     /* unexpected: among the peer's, in order of arrival; or taken */
  colli_p2p_kept *later, *earlier; /* unexpected: among those of all peers */
  bool taken;
  int peer;
  int size_class;
  colli_p2p_header head;
  colli_post *sender; /* a rendezvous of this rank with itself: not copied */
  colli_post post;    /* of a buffered send */
  size_t bytes;
  _Alignas(16) char data[];
};

/* What is open with one peer. */
typedef struct colli_p2p_peer {
  struct colli_p2p_peer *next;
  int rank;
  coll_conn *conn;              /* NULL: this rank itself */
  colli_posts out;              /* to be sent, in the order called */
  colli_posts awaiting_cts;     /* rendezvous sends whose first slice is sent */
  colli_posts cleared;          /* those whose receiver has sent clear to send */
  colli_posts flush;            /* fully handed over, but the transport still reads the buffer */
  colli_posts recvs;            /* receives from this peer that no message has matched yet */
  colli_posts matched;          /* receives of a rendezvous whose clear to send is not sent yet */
  colli_posts incoming;         /* those after it */
  colli_p2p_kept *first, *last; /* unexpected messages */
  int nunexpected;
  size_t unexpected_bytes;
  int nbuffered; /* buffered sends in `out` */
  size_t buffered_bytes;
  unsigned blocked_polls; /* unsuccessful polls since something was sent */
  uint32_t last_number;
  bool unsent; /* messages up to slot_ticket wait in the transport */
  uint64_t slot_ticket;
  uint64_t knock_ns;       /* when to ask it again for a connection */
  uint64_t knock_again_ns; /* and the time after that; 0: not asked yet */
  coll_status recv_status; /* why nothing more comes from the peer */
} colli_p2p_peer;

/* What is wrong with what a peer sent. */
typedef struct colli_p2p_events {
  /* A receive matched a message of `peer` with another type or number of elements. */
  void (*unfit)(void *ctx, const colli_post *recv, int peer, const colli_p2p_header *head);
  /* An invalid message arrived; `op` is any operation in flight, or NULL. */
  void (*broken)(void *ctx, coll_request *op, int peer, const char *detail);
} colli_p2p_events;

#define COLLI_P2P_SIZE_CLASSES 48

/* All messages of a communicator. */
typedef struct colli_p2p {
  colli_exec *exec;               /* its connections, and the operations in flight */
  const colli_p2p_events *events; /* called with exec->ctx */
  colli_p2p_peer **peers;         /* indexed by rank; NULL: no message to or from it yet */
  colli_p2p_peer *first_peer;     /* the list of those that are */
  colli_posts any;                /* receives from any source */
  colli_posts waits;              /* for signals */
  colli_post *probe;              /* the one under way, or NULL */
  const colli_post *sought;       /* what a look that does not wait is for, or NULL */
  colli_p2p_kept *found;          /* what the last one found, or NULL */
  colli_p2p_kept *taken;          /* messages that probes took */
  colli_p2p_kept *first, *last;   /* unexpected messages of all peers, in order of arrival */
  colli_p2p_kept *spare[COLLI_P2P_SIZE_CLASSES];
  coll_window *windows;
  uint32_t nwindows; /* made so far */
  uint64_t nposted;  /* receives so far */
  int broken;        /* peers from which nothing more comes */
  int busy;          /* posts, outgoing messages and windows; at 0 there is nothing to poll */
  int outgoing;      /* of these, outgoing messages whose sends are complete */
} colli_p2p;

/* Initialises messages between the ranks of `exec`, whose nranks is set; false if out of memory. */
bool colli_p2p_init(colli_p2p *p2p, colli_exec *exec, const colli_p2p_events *events);

/* Starts an operation whose fields, except for list links, are set. */
void colli_p2p_start(colli_p2p *p2p, colli_p2p_op *op);

/* The same for one receive from a rank with which messages have been exchanged. */
void colli_p2p_start_recv(colli_p2p *p2p, colli_p2p_op *op);

/* The arguments of a receive, and the tag of the message that it expects. */
typedef struct colli_p2p_wanted {
  void *buf;
  size_t count;
  coll_message *message; /* or NULL: exactly `count` elements */
  int type;
  int source;
  int tag;
  coll_tag expected; /* p2p_tag_expected() */
} colli_p2p_wanted;

/* The caller waits for an operation: its messages shall be on their way at the end. */
static inline void colli_p2p_deliver(const coll_request *request) {
  if (request->coll == COLLI_SENDRECV && !request->done)
    colli_p2p_op_of(request)->delivers = true;
}

/* It has waited so long without success, of the time after which it fails. */
void colli_p2p_waited(const colli_p2p *p2p, colli_p2p_op *op, uint64_t still_ns,
                      uint64_t timeout_ns);

/* Whether a peer's connection has ever taken a message. */
bool colli_p2p_has_sent(const colli_p2p *p2p, int rank);

/* Whether an operation is one receive that no message has matched; and ends such a one with
 * COLL_ERR_TIMEOUT. */
bool colli_p2p_can_retract(const colli_p2p *p2p, const coll_request *request);
void colli_p2p_retract(colli_p2p *p2p, coll_request *request);

/* Begins to connect with a rank. */
void colli_p2p_connect(colli_p2p *p2p, int rank);

/* Advances everything as far as possible: 1 if anything moved, 0, or COLLI_STEP_FAILED after one of
 * the events. */
int colli_p2p_progress(colli_p2p *p2p);

/* Drops everything that is open, and releases kept messages. */
void colli_p2p_cancel(colli_p2p *p2p);

/* Frees all memory, windows included. */
void colli_p2p_free(colli_p2p *p2p);

/* Adds the peers that an operation waits for to a list of at most max; the new count. A receive
 * from any source adds none. */
int colli_p2p_waits(const colli_p2p_op *op, int *peers, int count, int max);

/* The oldest unexpected message that a receive of `peer` and `tag` would get, or NULL. */
colli_p2p_kept *colli_p2p_look(const colli_p2p *p2p, int peer, int tag);

/* Looks for such a message in all that has arrived. NULL: there is none, or a failure was reported
 * (of a peer from which nothing more comes, too). */
colli_p2p_kept *colli_p2p_poll_for(colli_p2p *p2p, int peer, int tag);

/* Ends the probe under way, which has found nothing. */
void colli_p2p_withdraw(colli_p2p *p2p);

/* Takes an unexpected message out of the queue, for a later receive; or throws it away again. */
void colli_p2p_take(colli_p2p *p2p, colli_p2p_kept *message);
void colli_p2p_drop_taken(colli_p2p *p2p, colli_p2p_kept *message);

/* Begins to connect with every other rank: 0, or COLLI_STEP_FAILED. */
int colli_p2p_connect_all(colli_p2p *p2p, coll_request *op);

/*
 * Fails a receive from any source if all other ranks are gone. Called only when operations have not
 * moved for a while, because this rank may still send to itself.
 */
void colli_p2p_abandoned(colli_p2p *p2p);

#endif
