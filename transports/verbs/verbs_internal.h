/*
 * verbs_internal.h: endpoint and connections, as the files of this folder share them.
 *
 * A connection is a reliable-connected queue pair with a ring of receive memory at each end
 * (verbs_ring.h), and a *link*: a connection of the TCP transport for the same peer and channel.
 * Over the link, which both ends have authenticated, go the numbers and keys of queue pairs and
 * memory; after that the end of the link shows that the peer has died, which a queue pair only
 * notices when it sends.
 *
 * Short messages are RDMA writes that the receiver finds in its memory (verbs_ring.h). Long ones
 * carry immediate bits: those consume a request of the endpoint's shared receive queue, and arrive
 * in its completion queue in the order in which they were sent. So does a short message to a rank
 * that has said that it sleeps, as only completions wake.
 */
#ifndef COLLI_TRANSPORTS_VERBS_INTERNAL_H
#define COLLI_TRANSPORTS_VERBS_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "libcoll/base/queue.h"
#include "transports/verbs/verbs_addr.h"
#include "transports/verbs/verbs_event.h"
#include "transports/verbs/verbs_mr.h"
#include "transports/verbs/verbs_ring.h"
#include "transports/verbs/verbs_target.h"

#define VERBS_BLOB_MAGIC     0x36627276u /* "vrb6": changes with all that travels */
#define VERBS_BLOB_RAILS     2
#define VERBS_LINK_BYTES     168    /* of the link's own blob */
#define VERBS_SIGNAL_EVERY   8u     /* one send in so many has a completion */
#define VERBS_REFERENCES     32u    /* how many sends may read the caller's memory at a time */
#define VERBS_REGISTER_BYTES 32768u /* shorter memory is not registered for one operation */

#define VERBS_PEER_CONNS     4u   /* connections to one peer for which the queues have room */
#define VERBS_INLINE_BYTES   512u /* wanted; a device may have less */
#define VERBS_COMPLETIONS    16   /* taken from the completion queue at once */
#define VERBS_RECEIVES_LEAST 256u
#define VERBS_RECEIVES_MOST  8192u
#define VERBS_NUMBERS        256u /* buckets of the table of queue pairs */
#define VERBS_RECEIVE        0u   /* the number of all receive requests; sends count from 1 */
#define VERBS_REPOST         32u  /* receive requests that are given back together, at most */

/* What peers must know of an endpoint. */
typedef struct verbs_blob {
  uint32_t magic;
  uint16_t rails;
  uint16_t slot_kib; /* memory may be locked for such slots */
  verbs_wire_rail rail[VERBS_BLOB_RAILS];
  uint8_t link[VERBS_LINK_BYTES];
} verbs_blob;
_Static_assert(sizeof(verbs_blob) <= COLL_BLOB_BYTES, "travels in a blob");

/* What the ends of a connection send each other over the link. */
typedef struct verbs_offer {
  uint32_t magic;
  uint32_t qp;
  uint32_t psn;
  uint32_t key;
  uint64_t memory; /* address of the receive ring */
  verbs_mark mark; /* of its first message */
  uint32_t units;
  uint32_t slot_bytes;
} verbs_offer;
_Static_assert(sizeof(verbs_offer) == 40, "travels as it is");

/* First words of the tags of the link's messages. */
enum { VERBS_SAYS_OFFER = 1, VERBS_SAYS_READY = 2 };

/* Bits of verbs_conn.gate: why a data call must not simply go ahead. */
#define VERBS_GATE_CONNECTING 1u
#define VERBS_GATE_GONE       2u /* nothing can be sent, and nothing more will arrive */

/* A rail, as connections use it. */
typedef struct verbs_port {
  const verbs_rail *rail;
  verbs_domain domain;
  verbs_cache cache;
  struct ibv_comp_channel *channel;
  struct ibv_cq *cq;
  struct ibv_srq *srq;
  uint32_t inline_bytes; /* that a send carries in its work request */
  unsigned receives;     /* requests of the shared receive queue */
  unsigned spent;        /* of which are still to be given back */
  unsigned repost;       /* ... once they are that many */
  unsigned conns_most;   /* connections whose completions the completion queue has room for */
  unsigned conns;
  bool down; /* an event said so; `fault` describes it */
  verbs_fault fault;
} verbs_port;

struct verbs_endpoint;

/* A message that the device reads from the caller's memory. */
typedef struct verbs_reference {
  uint64_t message, request;
} verbs_reference;

typedef struct verbs_conn {
  coll_conn base;
  uint32_t gate;
  verbs_rx rx;
  verbs_tx tx;
  const uint8_t *rx_memory;
  uint8_t *tx_memory;
  struct ibv_qp *qp;
  verbs_port *port;
  uint64_t posted;          /* work requests */
  uint64_t signalled;       /* the last that will have a completion */
  uint64_t completed;       /* all up to this one are complete */
  struct ibv_send_wr write; /* a message; filled in but for what differs */
  struct ibv_sge part[2];
  uint64_t peer_memory;
  uint32_t short_bytes;     /* messages up to this size are short */
  uint32_t misses;          /* unsuccessful polls of memory */
  uint64_t announced_sleep; /* the last verbs_tx_sleeps() that was sent to the peer */
  uint8_t *acquired;        /* where slot_acquire() has given room */
  verbs_reference references[VERBS_REFERENCES]; /* a ring: refs_done .. refs_posted */
  unsigned refs_posted, refs_done;
  verbs_targets here;    /* where the peer may write its messages */
  verbs_targets there;   /* where this end may write its messages */
  verbs_advert *adverts; /* VERBS_TARGETS from the peer, then as many to send from */
  uint64_t peer_adverts;
  uint64_t promised; /* messages for which targets were offered */
  struct verbs_endpoint *ep;
  verbs_slab slab; /* the receive ring, the memory that sends are copied to, adverts */
  coll_conn *link;
  bool offered, answered, readied; /* sent the offer; got the peer's; sent that we are ready */
  bool reported;                   /* the environment knows of `fault` */
  verbs_path path;
  verbs_wire_rail peer_rail;
  verbs_offer offer, peer_offer;
  verbs_fault fault;
  uint64_t linger_ns;             /* disconnected: when to give up */
  TAILQ_ENTRY(verbs_conn) entry;  /* of conns or lingering */
  struct verbs_conn *next_number; /* in the table of queue pairs' numbers */
} verbs_conn;

TAILQ_HEAD(verbs_conns, verbs_conn);

typedef struct verbs_endpoint {
  const coll_transport_env *env;
  const coll_transport_ops *ops; /* of its connections */
  verbs_lib lib;
  verbs_settings settings;
  verbs_rail rails[VERBS_BLOB_RAILS]; /* as opened */
  verbs_port ports[VERBS_BLOB_RAILS];
  int nports;
  verbs_blob self;
  coll_transport_env link_env;
  coll_endpoint *links; /* endpoint of the TCP transport */
  verbs_fault link_fault;
  int epoll_fd;
  struct verbs_conns conns, lingering;
  verbs_conn *watched; /* the next connection whose link is to be checked; NULL: the first */
  int connecting;
  unsigned calls; /* of progress() since the clock was last read */
  bool poll_now;
  bool happened;            /* something did, in this progress() */
  uint64_t polled_ns;       /* when progress() last polled more than completions */
  uint64_t watched_ns;      /* ... and whether the devices are still there */
  coll_status status;       /* of the endpoint as a whole */
  verbs_fault device_fault; /* why memory of a GPU could not be registered */
  verbs_conn *numbers[VERBS_NUMBERS];
} verbs_endpoint;

/* Memory of a GPU. */
struct coll_device_memory {
  uint64_t address; /* of its first byte, in work requests */
  struct ibv_mr *mr[VERBS_BLOB_RAILS];
};

/* What adverts number: the next message to be sent, to arrive, and to be taken. */
static inline uint64_t verbs_next_sent(const verbs_conn *conn) {
  return conn->there.offered ? conn->tx.placed : conn->tx.sent;
}
static inline uint64_t verbs_next_arrived(const verbs_conn *conn) {
  return conn->here.offered ? conn->rx.targets : conn->rx.arrived;
}
static inline uint64_t verbs_next_taken(const verbs_conn *conn) {
  return conn->here.offered ? conn->rx.targets_taken : conn->rx.taken;
}

/* The registration of memory of a GPU with a connection's device. */
static inline const struct ibv_mr *verbs_device_mr(const verbs_conn *conn,
                                                   const coll_device_memory *memory) {
  return memory->mr[conn->port - conn->ep->ports];
}

/* ---- verbs_failure.c ------------------------------------------------------------------------- */

/* The connection has failed: the first reason is kept, and the next data call reports it. */
void verbs_conn_break(verbs_conn *conn, const verbs_fault *fault);

/*
 * Ends a connection whose peer has sent what libcoll never sends: these bits, rejected as `what`.
 */
void verbs_conn_reject(verbs_conn *conn, const char *what, uint32_t bits);

/* Reports to the environment why a connection has failed; returns the status. */
int verbs_conn_report(verbs_conn *conn);

/* ---- verbs_port.c ---------------------------------------------------------------------------- */

/* Opens a rail's queues for `nranks` ranks. */
coll_status verbs_port_open(verbs_endpoint *ep, verbs_port *port, verbs_fault *fault);
void verbs_port_close(verbs_endpoint *ep, verbs_port *port);

/* Creates a connection's queue pair, and space for its completions; connects it; destroys it. */
coll_status verbs_qp_create(verbs_conn *conn, verbs_fault *fault);
coll_status verbs_qp_connect(verbs_conn *conn, verbs_fault *fault);
void verbs_qp_destroy(verbs_conn *conn);

/* Gives back the receive requests that messages have used up. */
void verbs_port_repost(verbs_port *port);

/* Ends all connections of a port. */
void verbs_port_break(verbs_endpoint *ep, const verbs_port *port, const verbs_fault *fault);

/* Takes the asynchronous events of the device. */
void verbs_port_events(verbs_endpoint *ep, verbs_port *port);

/* Checks whether the device is being removed. */
void verbs_port_check_device(verbs_endpoint *ep, verbs_port *port);

/* After sleeping: takes the notices of completions. */
void verbs_port_disarm(verbs_endpoint *ep, verbs_port *port);

/* ---- verbs_direct.c: messages that are written straight to their target ---------------------- */

int verbs_expect(coll_conn *base, uint64_t ahead, const coll_tag *tag, void *buf, size_t bytes,
                 size_t slice);

/* Sends a message that lies in registered memory to its target: PENDING, AGAIN, an error, or DONE:
 * it has none, nothing was done. */
int verbs_direct_send(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                      const struct ibv_mr *mr);

/* Sends a message that lies in registered memory from there: PENDING or an error. */
int verbs_send_reference(verbs_conn *conn, const coll_tag *tag, const void *buf, size_t bytes,
                         const verbs_place *place, const struct ibv_mr *mr);

/* The calls for memory of GPUs. */
int verbs_send_device(coll_conn *base, const coll_tag *tag, const coll_device_memory *memory,
                      size_t at, size_t bytes, int to_target);
int verbs_send_to_target(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes);
int verbs_offer_device(coll_conn *base, const coll_tag *tag, const coll_device_memory *memory,
                       size_t at, size_t bytes, size_t slice, int copied);

/* ---- verbs_data.c: the data calls of coll_transport_ops -------------------------------------- */

int verbs_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes);
int verbs_send_ref(coll_conn *base, const coll_tag *tag, uint32_t region, const void *buf,
                   size_t bytes);
int verbs_sent(coll_conn *base, uint64_t *count);
int verbs_slot_acquire(coll_conn *base, size_t bytes, void **buf);
int verbs_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes);
int verbs_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
               size_t *got_bytes);
int verbs_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes);
int verbs_slot_release(coll_conn *base);

/* ---- verbs_conn.c ---------------------------------------------------------------------------- */

/* Reads a peer's blob; false if it cannot be used. */
bool verbs_blob_read(const uint8_t raw[COLL_BLOB_BYTES], verbs_blob *blob);

int verbs_connect(coll_endpoint *handle, int peer, const uint8_t raw[COLL_BLOB_BYTES], int channel,
                  coll_conn **result);
void verbs_disconnect(coll_conn *base);

/* coll_transport_ops.paths: "mlx5_0:1 LID 7 to LID 12 (200 Gbit/s)", with addresses for RoCE. */
int verbs_tell_paths(coll_conn *base, char *text, size_t bytes);

/* Advances the handshake of a connection. */
void verbs_conn_handshake(verbs_conn *conn);

/* Checks whether the peer still holds its end of the link; if not, the connection fails. */
void verbs_conn_check_link(verbs_conn *conn);

/* Advances a disconnected connection, and frees it once what was sent has arrived. */
void verbs_conn_linger(verbs_conn *conn, uint64_t now_ns);

/* Frees a connection whose memory nobody uses any more. */
void verbs_conn_free(verbs_conn *conn);

#endif
