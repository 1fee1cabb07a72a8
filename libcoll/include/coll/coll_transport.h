/*
 * coll_transport.h: the seam for transports. A transport moves messages between pairs of ranks and
 * knows no collectives.
 *
 * Model. Each rank opens one *endpoint* per transport. A *connection* joins this rank with one peer
 * on one *channel* and carries messages both ways, in order, each way by itself. Both ranks call
 * connect() for the pair; the transport decides who dials. A message is a *tag* (24 bytes that
 * the transport carries untouched) and 0 .. slot_bytes of payload. The k-th message sent is the
 * k-th received.
 *
 * Flow control. A connection holds at least slot_count messages of slot_bytes each way that the
 * receiver has not asked for yet. The only back-pressure is COLL_T_AGAIN.
 *
 * Threads. All calls on an endpoint and its connections come from one thread at a time, except
 * wake(). No call may block, and none may take longer than a bounded amount of work; close() and
 * disconnect() may wait for a bounded time.
 *
 * Failures. A call that fails has told env->fail() first, with the peer and the system call, and
 * returns the same coll_status from then on. A peer that closed its side in good order is an error
 * only once a receive finds no message left or a send is tried: what was sent before is delivered.
 *
 * Tables begin with their size, so that they can grow; a NULL entry behind `size` is absent.
 *
 * Plug-ins. coll_transport_plugin(), at the end, lets others add transports.
 */
#ifndef COLL_COLL_TRANSPORT_H
#define COLL_COLL_TRANSPORT_H

#include <stddef.h>

#include "coll/coll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define COLL_TRANSPORT_ABI 1
#define COLL_BLOB_BYTES    256 /* what a peer must know to connect; carried by bootstrap */
#define COLL_SECRET_BYTES  32

/* What a data call returns when it is not a coll_status error (those are > 0). */
enum {
  COLL_T_DONE = 0,     /* complete */
  COLL_T_AGAIN = -1,   /* not now; nothing was taken, call again later */
  COLL_T_PENDING = -2, /* send only: accepted, the buffer is in use until sent() says so */
};

/* Travels in front of every message, untouched by the transport. */
typedef struct coll_tag {
  uint64_t word[3];
} coll_tag;

/* What a transport reports of a failure; strings may be NULL. `peer` is -1 if none is to blame. */
typedef struct coll_transport_failure {
  coll_status status;
  int peer;
  int channel;
  int sys_errno;
  const char *syscall;
  const char *detail; /* what happened and what to do, one sentence; copied */
} coll_transport_failure;

/* What a transport gets from its surroundings. Valid from open() to the end of close(). */
typedef struct coll_transport_env {
  size_t size;
  void *ctx; /* first argument of the functions below */
  uint64_t (*now_ns)(void *ctx);
  void (*fail)(void *ctx, const coll_transport_failure *failure);
  const char *(*param)(void *ctx, const char *name); /* value of a COLL_ setting, never NULL */
  int rank;
  int nranks;
  uint64_t host_id; /* equal for ranks that share memory and the network's loopback */
  uint64_t comm_id; /* tells this communicator from others */
  uint8_t secret[COLL_SECRET_BYTES];
  /* The largest payload of a message, and how many messages a connection holds; the same on all
   * ranks. slot_bytes is settled before the first connect(), but may change until then. */
  size_t slot_bytes;
  unsigned slot_count;
  void *device; /* what the embedding program made for this transport (sim: its world), else NULL */
  void (*note)(void *ctx, const char *text); /* for the log: why messages are copied; or NULL */
  /* The table whose open() is called, by which a decorator finds what it decorates. What it
   * decorates gets the same environment, and must not use this. */
  const struct coll_transport_ops *ops;
} coll_transport_env;

/* What reach() says of a pair; the choice between transports uses it, the cost model, and the size
 * of slots. */
typedef struct coll_link {
  double alpha_ns;    /* time of an empty message */
  double ns_per_byte; /* of a long one, one way */
  size_t slot_bytes;  /* slots of this size, for which both have memory; 0: any size */
  char reason[96];    /* why it can or cannot be used, for coll_topo */
} coll_link;

typedef struct coll_endpoint coll_endpoint;

/* The first member of every transport's connection. */
typedef struct coll_conn {
  const struct coll_transport_ops *ops;
  int peer;
  int channel;
} coll_conn;

/*
 * What a receiver is going to do with the payloads of its next messages: `kind` says what, in the
 * caller's words, but that bit 0 tells a fold of (own, payload) from the same one of (payload,
 * own). Both memories lie in regions of the receiver's, and are as long as the payloads.
 */
typedef struct coll_work_offer {
  uint32_t kind;
  uint32_t to_region;
  uint32_t own_region; /* 0: there is no operand of its own */
  unsigned skip;       /* messages that come before these ones */
  void *to;
  const void *own;
  size_t bytes; /* of all payloads together */
  size_t slice; /* of each but the last */
} coll_work_offer;

/* One payload of offered work, as it lies for whoever claims it. */
typedef struct coll_work {
  uint32_t kind;
  void *to;
  void *to2; /* the other end wants the same result here; or NULL */
  const void *own;
  const void *payload;
  size_t bytes;
  void *claim[2]; /* the transport's */
} coll_work;

/* What a transport is like (caps). */
#define COLL_CAP_SEND_DIRECT   1u /* send() reads straight from the caller's buffer */
#define COLL_CAP_SPIN          2u /* polling costs no system call */
#define COLL_CAP_DEVICE        4u /* a device moves the data; machines without it need no warning */
#define COLL_CAP_SHARED_MEMORY 8u /* cores copy messages through segments (memfd, /dev/shm) */

typedef struct coll_transport_ops {
  size_t size;  /* sizeof(coll_transport_ops) as the transport compiled it */
  uint32_t abi; /* COLL_TRANSPORT_ABI */
  uint32_t caps;
  const char *name;

  /*
   * Opens this rank's endpoint and starts to listen. Fails with UNSUPPORTED where the machine has
   * no such device, SYSTEM or NO_MEMORY. `env` stays valid until close(). On failure *ep is NULL.
   */
  int (*open)(const coll_transport_env *env, coll_endpoint **ep);

  /* Frees the endpoint; all connections were disconnected before. Bounded: at most one second. */
  void (*close)(coll_endpoint *ep);

  /* Fills in what peers need to reach this endpoint. */
  int (*describe)(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]);

  /*
   * Whether two endpoints can reach each other: 1 or 0, with *link filled either way. Pure; the
   * same answer for (a, b) and (b, a).
   */
  int (*reach)(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES], coll_link *link);

  /*
   * Makes the connection to `peer` on `channel` (at most once for each pair of them). Returns at
   * once with a connection on which data calls return AGAIN until both sides have called connect()
   * and each knows that the other holds the secret. Errors of establishing it come from the data
   * calls.
   */
  int (*connect)(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES], int channel,
                 coll_conn **conn);

  /* Ends a connection: what send() or slot_commit() took is still delivered if the peer lives. The
   * caller's memory is neither read nor written after it returns (but see unfinished_work()); what
   * is PENDING then may be lost, and the peer finds the connection closed. Waits for at most
   * 50 ms, and only for a device that still reads the caller's memory, or for a system call that a
   * thread of this process makes for the connection's other end. */
  void (*disconnect)(coll_conn *conn);

  /*
   * Sends one message. DONE: it is on its way, buf may be used again. PENDING: buf stays in use
   * until sent() has counted this message. AGAIN: no credit.
   */
  int (*send)(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);

  /*
   * Moves pending sends on, and stores in *count how many of the messages that send() or
   * slot_commit() took on this connection since it was made need the caller no more: they use none
   * of its memory, and travel on if it makes no further call. They are counted in order: message k
   * is through once *count >= k.
   */
  int (*sent)(coll_conn *conn, uint64_t *count);

  /* Gives room for a message of `bytes` bytes, 64-byte aligned, to be filled in place: DONE or
   * AGAIN. */
  int (*slot_acquire)(coll_conn *conn, size_t bytes, void **buf);

  /* Sends the acquired slot. DONE: it is on its way. PENDING: only once sent() has counted it.
   * Never AGAIN. */
  int (*slot_commit)(coll_conn *conn, const coll_tag *tag, size_t bytes);

  /*
   * Receives the next message into buf. It must carry tag *expect and `bytes` bytes: if not,
   * returns COLL_ERR_MISMATCH with what came in *got and *got_bytes, without calling env->fail(),
   * buf is undefined, and this side of the connection receives nothing any more. AGAIN: not
   * complete; buf is in use, and the next call on this side of the connection must be the same one
   * (or abort).
   */
  int (*recv)(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
              size_t *got_bytes);

  /* Shows the next message in the slot where it arrived, 8-byte aligned or better: DONE or AGAIN.
   * It stays the next one, which may be shown again, or taken by recv(), until slot_release(). */
  int (*slot_peek)(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes);

  /* Frees the slot that slot_peek() showed. */
  int (*slot_release)(coll_conn *conn);

  /* Accepts, shakes hands, flushes, notices dead peers. 1: something happened; 0; or an error that
   * concerns the endpoint as a whole. */
  int (*progress)(coll_endpoint *ep);

  /* A descriptor that becomes readable when something new arrives (a message, credit, a connection,
   * the death of a peer) after arm() returned 0; or -1 if the transport has none. What had arrived
   * before that, and nobody asked for yet, must not keep it readable. */
  int (*wait_fd)(coll_endpoint *ep);

  /* Before sleeping: makes wait_fd() work. The caller then tries its data calls once more, and
   * sleeps if nothing moved. 1: do not sleep, progress() has something to do. No wake-up
   * may be missed: what a peer does after this rank's last look makes wait_fd() readable. (The
   * caller polls again after 50 ms all the same: for its deadlines, and for shared memory where the
   * kernel refuses membarrier(2), transports/shm/shm_ring.h.) */
  int (*arm)(coll_endpoint *ep);

  /* After sleeping. */
  void (*disarm)(coll_endpoint *ep);

  /* Makes wait_fd() readable; from any thread. */
  void (*wake)(coll_endpoint *ep);

  /*
   * Messages by reference. All three or none; NULL, or behind `size`, where the transport has none.
   *
   * region_add() tells of memory that peers may read where it lies, and write where offer_work()
   * says: `fd` is a memfd of `bytes` bytes, sealed against shrinking and mapped at `memory`, which
   * stays the caller's and open until region_remove(). `region` is the caller's number for it: not
   * 0, and never used again on this endpoint. region_remove() is called when no message refers to
   * the region, or after every connection on which one did was disconnected. Returns COLL_OK or
   * NO_MEMORY.
   */
  int (*region_add)(coll_endpoint *ep, uint32_t region, const void *memory, size_t bytes, int fd);
  void (*region_remove)(coll_endpoint *ep, uint32_t region);

  /*
   * Sends one message as send() does, but may leave it where it lies, in a region, until the peer
   * has read it: PENDING. Whether sent() ever counts it then depends on the peer alone: whoever
   * waits for that must not be waited for by the peer. DONE: it was copied.
   */
  int (*send_ref)(coll_conn *conn, const coll_tag *tag, uint32_t region, const void *buf,
                  size_t bytes);

  /*
   * Work on messages by reference, which both ends can do: of two ranks one would otherwise only
   * wait for the other. All four (unfinished_work() is at the end of the table) or none; NULL, or
   * behind `size`, where the transport has none.
   *
   * offer_work() says what is to be done with the next messages of this connection. 1: from now on
   * recv() and slot_peek() answer AGAIN to each of them that came by reference until somebody has
   * done its work; then recv() leaves its buffer alone, and slot_peek() shows NULL. 0: not these
   * messages, or not yet. A rank that has offered work calls claim_work() whenever it has nothing
   * else to do.
   */
  int (*offer_work)(coll_conn *conn, const coll_work_offer *offer_work);

  /*
   * Claims the work on one payload that came or went on this connection: DONE, or AGAIN if there is
   * none. Whoever claims it does it at once and then calls finish_work(). The peer waits for that;
   * if it leaves first, it takes its memory away from this rank (unfinished_work()).
   */
  int (*claim_work)(coll_conn *conn, coll_work *work);
  int (*finish_work)(coll_conn *conn, const coll_work *work);

  /*
   * Memory of the caller for as long as an operation takes. Both or none; NULL, or behind `size`,
   * where the transport makes no use of it.
   *
   * register_buffer() tells that `bytes` bytes at `memory` stay where they are until
   * release_buffers() is called with the same `owner`: a device may be told of them meanwhile, and
   * what is sent from there need not be copied. `written`: messages are received into them as well.
   * Owners may register the same memory at the same time. release_buffers() ends all registrations
   * of an owner; no message of it is under way then, or its connections were disconnected.
   */
  void (*register_buffer)(coll_endpoint *ep, const void *owner, const void *memory, size_t bytes,
                          int written);
  void (*release_buffers)(coll_endpoint *ep, const void *owner);

  /*
   * Optional. Tells where messages are to arrive: those behind the next `ahead` ones of this
   * connection, `bytes` bytes together in messages of `slice` bytes (the last may be shorter), with
   * tag *tag, one behind the other from `buf` on. The caller will receive them there by recv(), and
   * until then neither reads nor writes that memory, which is registered (written) or in a region.
   * DONE, or AGAIN: too much was told; the messages come as others do, and so they may after DONE.
   */
  int (*expect)(coll_conn *conn, uint64_t ahead, const coll_tag *tag, void *buf, size_t bytes,
                size_t slice);

  /*
   * The fourth of offer_work(), claim_work() and finish_work(): what a peer may still write to
   * after disconnect(). 1: a peer has claimed work and not said that it is finished (it is slow,
   * frozen, or has ended); its results belong in the *bytes bytes at *offset of the region, of
   * which the caller must take the pages away from the peer before anybody uses them. 0: nothing.
   */
  int (*unfinished_work)(coll_endpoint *ep, uint32_t region, size_t *offset, size_t *bytes);
} coll_transport_ops;

/* Whether a transport sends by reference. */
static inline int coll_transport_sends_by_ref(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, send_ref) + sizeof(ops->send_ref) &&
         ops->send_ref != NULL;
}

/* Whether both ends of its connections can work on messages by reference. */
static inline int coll_transport_shares_work(const coll_transport_ops *ops) {
  return ops->size >=
             offsetof(coll_transport_ops, unfinished_work) + sizeof(ops->unfinished_work) &&
         ops->unfinished_work != NULL;
}

/* Whether a transport wants to know where messages are to arrive. */
static inline int coll_transport_expects(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, expect) + sizeof(ops->expect) &&
         ops->expect != NULL;
}

/* Whether a transport makes use of buffers that are registered with it. */
static inline int coll_transport_registers(const coll_transport_ops *ops) {
  return ops->size >=
             offsetof(coll_transport_ops, release_buffers) + sizeof(ops->release_buffers) &&
         ops->register_buffer != NULL;
}

/*
 * What a transport outside libcoll exports: a shared library with this one function, which gives a
 * table that never changes. COLL_TRANSPORT_PATH=/path/to/lib.so[:...] loads it, once for a process
 * and for good. The table must have all functions from open() to wake(), and a name of its own: 1
 * to 15 lower-case letters, digits, '-' or '_'. See docs/transports.md. libcoll itself does not
 * define this function.
 */
extern COLL_API const coll_transport_ops *coll_transport_plugin(void);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_TRANSPORT_H */
