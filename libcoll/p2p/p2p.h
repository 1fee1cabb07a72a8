/*
 * p2p.h: messages between two ranks: send, receive, sendrecv, and one-sided put, signal and wait.
 * All of them travel on the channel COLLI_CHANNEL_P2P. A receive takes the first message that fits
 * its source and tag, whatever else came before it.
 *
 * A message of at most a slot is *short*: it goes off at once, is matched with a posted receive
 * when it arrives, or else kept as a *letter* until one is posted. Of a longer one the first slice
 * goes off the same way; the rest waits until the receiver has matched it and says GO.
 *
 * Bounds. A rank keeps at most COLLI_UNEXPECTED_MAX letters, or COLLI_UNEXPECTED_MAX_BYTES of them,
 * of one peer. After that it reads no further message of this peer that no posted receive fits,
 * until receives have taken some; the peer's sends wait then, and so does what comes behind them. A
 * short message that cannot go off for a while (the peer has not connected, or does not read) is
 * copied, within the same bounds, and its send is complete.
 *
 * While anything here is open, every look reads from all peers that the rank has exchanged messages
 * with: a rank that waits for one peer must not hold up another.
 */
#ifndef COLLI_P2P_P2P_H
#define COLLI_P2P_P2P_H

#include <stdbool.h>

#include "coll/coll_transport.h"

#define COLLI_UNEXPECTED_MAX       64
#define COLLI_UNEXPECTED_MAX_BYTES ((size_t)4 << 20)

struct coll_request;
struct colli_exec;

/* The parts that operations are made of. */
typedef enum colli_post_kind {
  COLLI_POST_SEND,
  COLLI_POST_RECV,
  COLLI_POST_PUT,
  COLLI_POST_SIGNAL,
  COLLI_POST_WAIT, /* for signals */
  COLLI_POST_END,  /* tells a peer that this rank writes to its window no more */
  COLLI_POST_ENDS  /* waits until all peers have told so */
} colli_post_kind;

typedef struct colli_post {
  struct coll_request *op; /* NULL: it belongs to a letter that waits to be sent */
  struct colli_post *next; /* in the one list that it is in */
  colli_post_kind kind;
  int peer; /* of a receive from anybody COLL_ANY_SOURCE, until matched */
  int tag;
  int type;
  size_t count;          /* of a receive: the most elements, and at completion those that came */
  bool exact;            /* a receive that takes exactly `count` elements */
  bool over;             /* complete */
  coll_message *message; /* of a receive, or NULL */
  char *buf;
  uint32_t region; /* of coll_mem_alloc(), in which what is sent lies; 0: in none */
  size_t bytes;
  size_t done;
  size_t offset;   /* put: of the next byte in the window */
  uint32_t number; /* of a long message, chosen by its sender */
  uint64_t order;  /* of a receive: how many were posted before */
  uint64_t ticket; /* the connection's message after which it reads `buf` no more; 0: already */
  uint64_t signals;
  coll_window *window;
} colli_post;

typedef struct colli_posts {
  colli_post *head, *tail;
} colli_posts;

/* What a message says of itself. */
typedef struct colli_p2p_header {
  int kind; /* p2p_internal.h */
  int tag;
  int type;
  uint64_t word; /* elements of a message, or an offset in bytes */
  uint32_t number;
} colli_p2p_header;

/* A message that nobody has asked for yet, or that could not go off yet. */
typedef struct colli_unexpected {
  struct colli_unexpected *next, *prev;     /* among the peer's, in order of arrival */
  struct colli_unexpected *later, *earlier; /* among those of all peers */
  int peer;
  int room_class;
  colli_p2p_header head;
  colli_post *from; /* a long message to this rank itself: not copied */
  colli_post post;  /* of one that waits to be sent */
  size_t bytes;
  _Alignas(16) char data[];
} colli_unexpected;

/* What is open with one peer. */
typedef struct colli_p2p_peer {
  struct colli_p2p_peer *next;
  int peer;
  coll_conn *conn;                /* NULL: this rank itself */
  colli_posts out;                /* to be sent, in the order called */
  colli_posts waiting;            /* long messages whose first slice is sent */
  colli_posts data;               /* long messages that the peer said GO to */
  colli_posts flush;              /* all handed over, but the transport still reads the buffer */
  colli_posts recvs;              /* receives from this peer that nothing has fitted yet */
  colli_posts go;                 /* matched receives of long messages; GO is to be sent */
  colli_posts incoming;           /* those after it */
  colli_unexpected *first, *last; /* what came and nobody has asked for */
  int nunexpected;
  size_t unexpected_bytes;
  int noutbox; /* letters in `out` */
  size_t outbox_bytes;
  unsigned stuck; /* looks in vain since something went out */
  uint32_t last_number;
  bool unsent; /* messages up to slot_ticket wait in the transport */
  uint64_t slot_ticket;
  coll_status recv_status; /* why nothing more comes from the peer */
} colli_p2p_peer;

/* Memory of this rank that others write to; the public coll_window. */
struct coll_window {
  coll_window *next;
  coll_comm *comm;
  uint32_t number; /* the same on all ranks */
  int nranks;
  int inflight; /* posts that refer to it */
  char *base;
  size_t bytes;
  uint64_t *sizes;   /* nranks: bytes that each rank gave */
  uint64_t *signals; /* nranks: signals come and not waited for */
  bool *ended;       /* nranks: that rank writes no more */
  int left;          /* ranks that have not ended it */
  colli_post *ends;  /* nranks: what tells them that this rank has */
  colli_post *closing;
};

#define COLLI_UNEXPECTED_CLASSES 48

/* All of a communicator's mail. */
typedef struct colli_p2p {
  colli_p2p_peer *boxes;
  colli_posts any;                /* receives from anybody */
  colli_posts waits;              /* for signals */
  colli_unexpected *first, *last; /* letters of all peers, in order of arrival */
  colli_unexpected *spare[COLLI_UNEXPECTED_CLASSES];
  coll_window *windows;
  uint32_t nwindows; /* made so far */
  uint64_t nposted;  /* receives so far */
  int broken;        /* peers from which nothing more comes */
  int busy;          /* posts, letters to be sent, windows: above 0, looks are worth while */
  int outbox;        /* of them letters and messages on their way out */
} colli_p2p;

/* Starts the posts of an operation. */
void colli_p2p_start(struct colli_exec *exec, struct coll_request *op);

/* Moves everything as far as it goes: 1 if anything moved, 0, negative if the executor failed. */
int colli_p2p_progress(struct colli_exec *exec);

/* Forgets everything that is open; letters are released. */
void colli_p2p_cancel(struct colli_exec *exec);

/* Frees all memory, windows included. */
void colli_p2p_free(struct colli_exec *exec);

/* Adds the peers that an operation waits for to a list of at most max; returns how many it has
 * then. A receive from anybody adds none. */
int colli_p2p_waits(const struct coll_request *op, int *peers, int count, int max);

/* Begins to connect with every other rank: 0, or negative if the executor failed. */
int colli_p2p_connect_all(struct colli_exec *exec, struct coll_request *op);

/* Adds a window whose fields but for `next`, `number` are set; takes it out again. */
void colli_p2p_add_window(struct colli_exec *exec, coll_window *window);
void colli_p2p_remove_window(struct colli_exec *exec, coll_window *window);

/*
 * Fails a receive from anybody if all other ranks are gone. Called when operations have not moved
 * for a while: until then this rank may still send to itself.
 */
void colli_p2p_abandoned(struct colli_exec *exec);

#endif
