/* mux_internal.h: links (the one connection to a peer) and the virtual channels over them. */
#ifndef COLLI_COMM_MUX_MUX_INTERNAL_H
#define COLLI_COMM_MUX_MUX_INTERNAL_H

#include "libcoll/comm/mux/mux.h"
#include "libcoll/comm/report.h"
#include "libcoll/exec/exec.h"

#define MUX_NUMBERS 65536
_Static_assert(COLLI_CHANNELS <= 16, "a channel travels in four bits");

typedef enum mux_kind {
  MUX_DATA,
  MUX_CREDIT, /* word 0: the number of messages of this channel that were released */
  MUX_GONE    /* the sender no longer has a communicator with this number (its own) */
} mux_kind;

/* A message in the queue of a virtual channel. */
typedef struct mux_msg {
  struct mux_msg *next;
  coll_tag tag;
  size_t bytes;
  bool is_small; /* has memory for a part of a slot only */
  _Alignas(64) char data[];
} mux_msg;

/* The connection to one peer. */
typedef struct mux_link {
  colli_mux *mux;
  struct mux_link *next;
  coll_conn *conn;
  int peer;                /* rank in the family */
  uint64_t taken;          /* messages that the connection took */
  bool filling;            /* a slot was acquired and not yet committed */
  coll_status send_status; /* why a direction failed; COLL_OK while it works */
  coll_status recv_status;
  coll_error send_error, recv_error;
  coll_tag *notes; /* messages without payload that the connection has not accepted yet */
  int nnotes, notes_capacity;
} mux_link;

/* A virtual channel: a connection between a communicator and a peer on one channel. */
typedef struct mux_vc {
  coll_conn conn;
  struct mux_vc *next_in_bucket, *next_of_child;
  colli_mux_child *child;
  mux_link *link;
  int channel;
  mux_msg *first, *last; /* messages received and not released */
  unsigned queued;
  unsigned credits;  /* messages that may be sent */
  unsigned consumed; /* messages released for which the peer has no credit yet */
  uint64_t taken;    /* messages accepted for sending */
  unsigned npending; /* of these, the unsent ones: a ring of their numbers on the link */
  unsigned pending_first;
  uint64_t pending[];
} mux_vc;

struct colli_mux_child {
  colli_mux *mux;
  colli_mux_child *next; /* among those that are complete */
  int number;
  int nranks; /* 0: not complete */
  bool mute;
  const int32_t *base_ranks, *ranks_of;
  const uint16_t *numbers;
  bool *gone; /* nranks: that rank has ended it */
  mux_vc *vcs;
};

struct colli_mux {
  colli_family *family;
  size_t slot_bytes;
  unsigned batch;     /* messages released before their credits are returned */
  unsigned window;    /* messages that a virtual channel may have in flight */
  mux_link **link_to; /* by rank in the family */
  mux_link *links;
  colli_mux_child *children[MUX_NUMBERS]; /* by number */
  colli_mux_child *complete;
  int last_number;
  mux_vc **buckets;
  unsigned nbuckets, nvcs;
  mux_msg *spare[2]; /* free messages: of slot_bytes, and small ones */
  bool moved;
};

/* ---- mux_vc.c: below links ------------------------------------------------------------------- */

/* The virtual channel of a communicator to a peer on a channel, created if necessary; NULL if out
 * of memory. */
mux_vc *mux_vc_get(colli_mux_child *child, mux_link *link, int channel);

/* Frees a virtual channel that its communicator no longer lists. */
void mux_vc_free(mux_vc *vc);

/* Appends a copy of a message to the queue; false if out of memory. */
bool mux_vc_put(mux_vc *vc, const coll_tag *tag, const void *data, size_t bytes);

/* Drops the first message of the queue, and all. */
void mux_vc_pop(mux_vc *vc);
void mux_vc_empty(mux_vc *vc);

/* ---- mux_link.c ------------------------------------------------------------------------------ */

/* The link to a peer, connected when first needed; NULL after family->reported says why. */
mux_link *mux_link_get(colli_mux *mux, int peer, int *status);
void mux_link_free(mux_link *link);

/* Copies the failure of a direction to family->reported, and returns its status. */
int mux_send_failed(mux_link *link);
int mux_recv_failed(mux_link *link);

/* Moves the next message of the connection to the queue of its virtual channel: DONE, AGAIN or a
 * failure. */
int mux_link_take(mux_link *link);

/* Shows the next message of the connection if it is for `vc`, and moves others to their queues:
 * DONE, AGAIN or a failure. mux_link_release() drops the shown message. */
int mux_link_peek_for(mux_link *link, const mux_vc *vc, coll_tag *tag, const void **data,
                      size_t *bytes);
void mux_link_release(mux_link *link);

/* Takes everything that has arrived. */
void mux_link_drain(mux_link *link);

/* Sends a message without payload, now or later. */
void mux_link_note(mux_link *link, mux_kind kind, int number, int channel, uint64_t word);

/* Sends delayed messages without payload. */
void mux_link_flush(mux_link *link);

/* Acquires a slot of the connection, and sends it. */
int mux_link_acquire(mux_link *link, void **slot);
int mux_link_commit(mux_link *link, const coll_tag *tag, size_t bytes);

/* Whether an executor's tag leaves the bits free that a virtual channel needs. */
bool mux_fits(const coll_tag *tag);

/* The tag of a message as it travels. */
coll_tag mux_wrap(const coll_tag *tag, mux_kind kind, int number, int channel);

#endif
