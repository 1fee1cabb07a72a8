/* mux_internal.h: the insides of shared connections: links (to a peer) and lines (over a link). */
#ifndef COLLI_COMM_MUX_MUX_INTERNAL_H
#define COLLI_COMM_MUX_MUX_INTERNAL_H

#include "libcoll/comm/mux/mux.h"
#include "libcoll/comm/report.h"
#include "libcoll/exec/exec.h"

#define MUX_NUMBERS 65536
_Static_assert(COLLI_CHANNELS <= 16, "a channel travels in four bits");

typedef enum mux_kind {
  MUX_DATA,
  MUX_CREDIT, /* word 0: so many messages of this line were taken */
  MUX_GONE    /* the sender has no communicator of this number (of its own) any more */
} mux_kind;

/* A message that waits in a line's queue, or for its turn to be sent. */
typedef struct mux_msg {
  struct mux_msg *next;
  coll_tag tag;
  size_t bytes;
  size_t room;
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
  struct mux_vc *shown;    /* whose message slot_peek() showed in the connection, or NULL */
  coll_status send_status; /* why a direction failed; COLL_OK while it works */
  coll_status recv_status;
  coll_error send_error, recv_error;
  coll_tag *notes; /* messages without payload that the connection did not take yet */
  int nnotes, notes_room;
} mux_link;

/* One direction each way between a communicator and a peer, on a channel. */
typedef struct mux_vc {
  coll_conn conn;
  struct mux_vc *next_in_bucket, *next_of_child;
  colli_mux_child *child;
  mux_link *link;
  int channel;
  mux_msg *first, *last; /* what came while others asked */
  unsigned queued;
  unsigned credits;  /* messages that may be sent */
  unsigned consumed; /* messages taken and not told the peer */
  uint64_t taken;    /* messages sent */
  unsigned npending; /* of them not through: a ring of their numbers on the link */
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
  unsigned batch;     /* messages taken before the sender is told, at most */
  unsigned window;    /* messages that a line may have under way */
  mux_link **link_to; /* by rank in the family */
  mux_link *links;
  colli_mux_child *children[MUX_NUMBERS]; /* by number */
  colli_mux_child *complete;
  int last_number;
  mux_vc **buckets;
  unsigned nbuckets, nvcs;
  mux_msg *spare; /* messages of slot_bytes */
  bool moved;
};

/* ---- mux_link.c ------------------------------------------------------------------------------ */

/* The link to a peer, connected when first needed; NULL after family->reported says why. */
mux_link *mux_link_get(colli_mux *mux, int peer, int *status);
void mux_link_free(mux_link *link);

/* Tells family->reported why a direction failed, and gives its status. */
int mux_send_failed(mux_link *link);
int mux_recv_failed(mux_link *link);

/* The next message of the connection: DONE, AGAIN or a failure. */
int mux_link_peek(mux_link *link, coll_tag *tag, const void **data, size_t *bytes);
void mux_link_release(mux_link *link);

/* Takes the message that was peeked at to where it belongs, and releases it. */
void mux_link_sort(mux_link *link, const coll_tag *tag, const void *data, size_t bytes);

/* Takes everything in that has come. */
void mux_link_drain(mux_link *link);

/* Sends a message without payload, now or later. */
void mux_link_note(mux_link *link, mux_kind kind, int number, int channel, uint64_t word);

/* Sends notes that wait. */
void mux_link_flush(mux_link *link);

/* A slot of the connection, and sending it. */
int mux_link_acquire(mux_link *link, void **slot);
int mux_link_commit(mux_link *link, const coll_tag *tag, size_t bytes);

/* Whether an executor's tag leaves the bits free that a line needs. */
bool mux_fits(const coll_tag *tag);

/* The tag of a message as it travels, and what is in such a tag. */
coll_tag mux_wrap(const coll_tag *tag, mux_kind kind, int number, int channel);
coll_tag mux_unwrap(const coll_tag *tag, mux_kind *kind, int *number, int *channel);

/* ---- mux.c ----------------------------------------------------------------------------------- */

/* The line of a communicator to a peer on a channel, made if need be; NULL without memory. */
mux_vc *mux_vc_get(colli_mux_child *child, mux_link *link, int channel);

/* Puts a copy of a message at the end of a line's queue; false without memory. */
bool mux_vc_put(mux_vc *vc, const coll_tag *tag, const void *data, size_t bytes);

#endif
