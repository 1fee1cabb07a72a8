/*
 * coll_transport.h: the interface for transports. A transport moves messages between pairs of ranks
 * and knows no collectives.
 *
 * Model. Each rank opens one *endpoint* per transport. A *connection* joins this rank with one peer
 * on one *channel*. It carries messages both ways, in order in each direction. Both ranks call
 * connect() for the pair; the transport decides who dials. A message is a *tag* (24 bytes that
 * the transport carries unchanged) and 0 .. slot_bytes bytes of payload. The k-th message sent is
 * the k-th received.
 *
 * Flow control. In each direction a connection buffers at least slot_count messages of slot_bytes
 * that the receiver has not asked for yet. The only back-pressure is COLL_T_AGAIN.
 *
 * Threads. All calls on an endpoint and its connections come from one thread at a time, except
 * wake(). No call may block, and each does a bounded amount of work; close() and disconnect() may
 * wait for a bounded time.
 *
 * Failures. A call that fails calls env->fail() first, with the peer and the system call, and
 * returns the same coll_status from then on. A peer that closed its side normally is an error only
 * once a receive finds no message left or a send is tried: what was sent before is delivered.
 *
 * Tables begin with their size, so that they can grow. Entries that are NULL, or beyond `size`, are
 * absent.
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

#define COLL_TRANSPORT_ABI 2
#define COLL_BLOB_BYTES    256 /* what a peer must know to connect; the bootstrap carries it */
#define COLL_SECRET_BYTES  32

/* What a data call returns when it is not a coll_status error (those are > 0). */
enum {
  COLL_T_DONE = 0,     /* complete */
  COLL_T_AGAIN = -1,   /* not now; nothing happened, call again later */
  COLL_T_PENDING = -2, /* send only: accepted, the buffer is in use until sent() says so */
};

/* Travels in front of every message, untouched by the transport. */
typedef struct coll_tag {
  uint64_t word[3];
} coll_tag;

/* A transport's report of a failure; strings may be NULL. `peer` is -1 if none is to blame. */
typedef struct coll_transport_failure {
  coll_status status;
  int peer;
  int channel;
  int sys_errno;
  const char *syscall;
  const char *detail; /* what happened and what to do, one sentence; copied */
} coll_transport_failure;

/* What libcoll gives to a transport. Valid from open() to the end of close(). */
typedef struct coll_transport_env {
  size_t size;
  void *ctx; /* first argument of the functions below */
  uint64_t (*now_ns)(void *ctx);
  void (*fail)(void *ctx, const coll_transport_failure *failure);
  const char *(*param)(void *ctx, const char *name); /* value of a COLL_ setting, never NULL */
  int rank;
  int nranks;
  uint64_t host_id; /* equal for ranks that share memory and the network's loopback */
  uint64_t comm_id; /* identifies this communicator */
  /* COLL_SECRET_BYTES of them; no dump of the process shows them, so do not copy them. */
  const uint8_t *secret;
  /* The largest payload of a message, and how many messages a connection holds; the same on all
   * ranks. slot_bytes may still change before the first connect(). */
  size_t slot_bytes;
  unsigned slot_count;
  void *device; /* what the caller made for this transport (sim: its world), else NULL */
  void (*note)(void *ctx, const char *text); /* logs why messages are copied; may be NULL */
  /* The table whose open() is called. A decorator uses it to find the transport that it decorates,
   * which gets the same environment and must not use this field. */
  const struct coll_transport_ops *ops;
  /* How many sockets or the like (rails) the connections to a peer have, all together, and how many
   * of these do not work now: for collctl; may be NULL. */
  void (*rails)(void *ctx, int peer, int rails, int lost);
  uint64_t machine_id; /* equal for ranks on one machine, which may be several hosts (containers) */
  const char *gpu; /* PCI address of the GPU that this rank uses; NULL: none, or not known yet */
} coll_transport_env;

/* What reach() says about a pair. It decides the transport, the costs in the cost model, and the
 * size of slots. */
typedef struct coll_link {
  double alpha_ns;    /* time of an empty message */
  double ns_per_byte; /* of a long message, one way */
  size_t slot_bytes;  /* the slot size for which both have memory; 0: any */
  char reason[96];    /* why the transport can or cannot be used, for coll_topo */
} coll_link;

typedef struct coll_endpoint coll_endpoint;

/* Memory of a GPU that a transport has registered; the transport's own. */
typedef struct coll_device_memory coll_device_memory;

/* The first member of every transport's connection. */
typedef struct coll_conn {
  const struct coll_transport_ops *ops;
  int peer;
  int channel;
} coll_conn;

/*
 * What a receiver is going to do with the payloads of its next messages. `kind` encodes it for the
 * caller; the transport only knows bit 0, which swaps the operands (own, payload) of a reduction.
 * `to` and `own` lie in regions of the receiver and are as long as the payloads.
 */
typedef struct coll_work_offer {
  uint32_t kind;
  uint32_t to_region;
  uint32_t own_region; /* 0: there is no operand `own` */
  unsigned skip;       /* messages that come before these */
  void *to;
  const void *own;
  size_t bytes; /* of all payloads together */
  size_t slice; /* of each but the last */
} coll_work_offer;

/* One payload of offered work, with addresses valid for whoever claims it. */
typedef struct coll_work {
  uint32_t kind;
  void *to;
  void *to2; /* the other end needs the same result here; or NULL */
  const void *own;
  const void *payload;
  size_t bytes;
  void *claim[2]; /* private to the transport */
} coll_work;

/* offer_device(): the most messages of a target that the peer's device fills. */
#define COLL_DEVICE_MESSAGES 16u

/* Properties of a transport (caps). */
#define COLL_CAP_SEND_DIRECT   1u  /* send() reads straight from the caller's buffer */
#define COLL_CAP_SPIN          2u  /* polling costs no system call: ranks may spin */
#define COLL_CAP_DEVICE        4u  /* a device moves the data; no warning if a machine has none */
#define COLL_CAP_SHARED_MEMORY 8u  /* cores copy messages through segments (memfd, /dev/shm) */
#define COLL_CAP_ENCRYPTS      16u /* encrypts all that it sends if the setting COLL_TLS is 1 */
#define COLL_CAP_SEND_COPIES   32u /* send() takes a copy, and needs no further call; see there */

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

  /* Frees the endpoint, after all connections were disconnected. Takes at most one second. */
  void (*close)(coll_endpoint *ep);

  /* Fills in what peers need to reach this endpoint. */
  int (*describe)(coll_endpoint *ep, uint8_t blob[COLL_BLOB_BYTES]);

  /*
   * Whether two endpoints can reach each other: 1 or 0, with *link filled either way. Pure; the
   * same answer for (a, b) and (b, a).
   */
  int (*reach)(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES], coll_link *link);

  /*
   * Makes the connection to `peer` on `channel` (called at most once for each such pair). Returns
   * at once. Data calls on the connection return AGAIN until both sides have called connect() and
   * each has proved that it knows the secret. They also return the errors of connecting.
   */
  int (*connect)(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES], int channel,
                 coll_conn **conn);

  /* Ends a connection. What send() or slot_commit() accepted is still delivered if the peer lives;
   * what is PENDING may be lost. The peer finds the connection closed. After it returns, the
   * caller's memory is neither read nor written (but see unfinished_work()). Waits at most 50 ms,
   * and only for a device that still reads the caller's memory, or for a system call that a thread
   * of this process makes for the other end of the connection. */
  void (*disconnect)(coll_conn *conn);

  /*
   * Sends one message. DONE: it was accepted, and buf may be used again. PENDING: buf stays in use
   * until sent() has counted this message. AGAIN: no credit. buf may be NULL if bytes is 0.
   *
   * With COLL_CAP_SEND_COPIES it never returns PENDING, and DONE means that sent() has counted the
   * message: it arrives even if this rank makes no further call. Then short messages are sent so,
   * without slot_acquire(). A decorator that holds messages back must clear this bit.
   */
  int (*send)(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);

  /*
   * Makes progress on pending sends. Stores in *count how many of the messages that send() or
   * slot_commit() accepted on this connection no longer need the caller: they use none of its
   * memory, and arrive even if it makes no further call. They are counted in order: message k is
   * complete once *count >= k.
   */
  int (*sent)(coll_conn *conn, uint64_t *count);

  /* Gives a slot for a message of `bytes` bytes, 64-byte aligned, for the caller to fill: DONE or
   * AGAIN. */
  int (*slot_acquire)(coll_conn *conn, size_t bytes, void **buf);

  /* Sends the acquired slot. DONE: it was accepted. PENDING: it is complete once sent() has counted
   * it. Never AGAIN. */
  int (*slot_commit)(coll_conn *conn, const coll_tag *tag, size_t bytes);

  /*
   * Receives the next message into buf. It must carry tag *expect and `bytes` bytes. Otherwise
   * returns COLL_ERR_MISMATCH, with what arrived in *got and *got_bytes, and does not call
   * env->fail(); buf is undefined, and this connection receives nothing more. AGAIN: not complete;
   * buf is in use, and the next receiving call on this connection must be the same (or abort).
   */
  int (*recv)(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
              size_t *got_bytes);

  /* Shows the next message in the slot where it arrived, 8-byte aligned or better: DONE or AGAIN.
   * Until slot_release() it stays the next one: it may be shown again or taken by recv(). */
  int (*slot_peek)(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes);

  /* Frees the slot that slot_peek() showed. */
  int (*slot_release)(coll_conn *conn);

  /* Accepts connections, authenticates, flushes, detects dead peers. 1: something happened; 0:
   * nothing did; or an error of the endpoint as a whole. */
  int (*progress)(coll_endpoint *ep);

  /* A descriptor that becomes readable if anything new (a message, credit, a connection, the death
   * of a peer) arrives after arm() returned 0; -1 if the transport has none. What arrived earlier
   * and nobody has asked for yet must not keep it readable. */
  int (*wait_fd)(coll_endpoint *ep);

  /* Called before sleeping: makes wait_fd() work. The caller then tries its data calls once more,
   * and sleeps if nothing moved. 1: do not sleep, progress() has something to do. No wake-up may
   * be missed: whatever a peer does after this rank's last poll makes wait_fd() readable. (The
   * caller polls every 50 ms anyway: for its deadlines, and for shared memory on kernels that
   * refuse membarrier(2), see transports/shm/shm_ring.h.) */
  int (*arm)(coll_endpoint *ep);

  /* Called after sleeping. */
  void (*disarm)(coll_endpoint *ep);

  /* Makes wait_fd() readable. Any thread may call it. */
  void (*wake)(coll_endpoint *ep);

  /*
   * Optional: messages by reference. All three or none.
   *
   * region_add() announces memory that peers may read in place, and write as offer_work() says.
   * `fd` is a memfd of `bytes` bytes, sealed against shrinking and mapped at `memory`. It belongs
   * to the caller and stays open until region_remove(). `region` is the caller's number for it: not
   * 0, and never used again on this endpoint. region_remove() is called when no message refers to
   * the region, or after every connection on which one did was disconnected. Returns COLL_OK or
   * NO_MEMORY.
   */
  int (*region_add)(coll_endpoint *ep, uint32_t region, const void *memory, size_t bytes, int fd);
  void (*region_remove)(coll_endpoint *ep, uint32_t region);

  /*
   * Sends one message as send() does, but may leave it in its region until the peer has read it:
   * PENDING. Then only the peer decides when sent() counts it, so do not wait for that while the
   * peer waits for you. DONE: it was copied.
   */
  int (*send_ref)(coll_conn *conn, const coll_tag *tag, uint32_t region, const void *buf,
                  size_t bytes);

  /*
   * Optional: both ends work on messages by reference, so that neither only waits for the other.
   * All four (unfinished_work() is at the end of the table) or none.
   *
   * offer_work() says what is to be done with the next messages of this connection. 1: accepted.
   * For each of them that comes by reference, recv() and slot_peek() return AGAIN until somebody
   * has done its work; then recv() does not touch its buffer, and slot_peek() shows NULL. 0: not
   * these messages, or not yet. A rank that has offered work calls claim_work() whenever it has
   * nothing else to do.
   */
  int (*offer_work)(coll_conn *conn, const coll_work_offer *offer_work);

  /*
   * Claims the work on one payload that was sent or received on this connection: DONE, or AGAIN if
   * there is none. The caller does it at once and then calls finish_work(), for which the peer
   * waits. If the peer leaves first, it takes its memory away from this rank (unfinished_work()).
   */
  int (*claim_work)(coll_conn *conn, coll_work *work);
  int (*finish_work)(coll_conn *conn, const coll_work *work);

  /*
   * Optional: registers the caller's buffers for the duration of an operation. Both or none.
   *
   * register_buffer() promises that `bytes` bytes at `memory` stay valid until release_buffers() is
   * called with the same `owner`. The transport may register them with a device, and need not copy
   * what is sent from there. `written`: messages are received into them as well. Several owners may
   * register the same memory at once. release_buffers() ends all registrations of an owner; it has
   * no message in flight then, or its connections were disconnected.
   */
  void (*register_buffer)(coll_endpoint *ep, const void *owner, const void *memory, size_t bytes,
                          int written);
  void (*release_buffers)(coll_endpoint *ep, const void *owner);

  /*
   * Optional. Says where messages will be received: after the next `ahead` ones of this connection,
   * `bytes` bytes in messages of `slice` bytes (the last may be shorter) with tag *tag go to `buf`,
   * one after the other. The caller will call recv() for them there, and until then neither reads
   * nor writes that memory, which is registered (written) or in a region. DONE, or AGAIN: too many
   * are announced. The transport may ignore this: messages may then arrive like others.
   */
  int (*expect)(coll_conn *conn, uint64_t ahead, const coll_tag *tag, void *buf, size_t bytes,
                size_t slice);

  /*
   * Belongs to offer_work(), claim_work() and finish_work(): what a peer may still write to after
   * disconnect(). 1: a peer has claimed work and not finished it (it is slow, frozen, or dead). Its
   * results go to the *bytes bytes at *offset of the region. The caller must take these pages away
   * from the peer before anybody uses them. 0: nothing.
   */
  int (*unfinished_work)(coll_endpoint *ep, uint32_t region, size_t *offset, size_t *bytes);

  /*
   * Optional: messages that a device moves from and to memory of a GPU, which the processor cannot
   * read. All five or none.
   *
   * register_device() registers `bytes` bytes of the dma-buf `fd` from `offset` on. `address` is
   * what the program calls the first of them, as far from the beginning of a page as `offset`.
   * `written`: it may be a target. The caller closes `fd` after the call, and releases the memory
   * once no message uses it, or every connection on which one did was disconnected. Returns COLL_OK
   * with *memory; or NO_MEMORY, UNSUPPORTED (the device can do this with no memory) or SYSTEM, with
   * the reason in *why until the next call, and without env->fail(): messages are copied then.
   */
  int (*register_device)(coll_endpoint *ep, int fd, uint64_t offset, const void *address,
                         size_t bytes, int written, coll_device_memory **memory, const char **why);
  void (*release_device)(coll_endpoint *ep, coll_device_memory *memory);

  /*
   * Sends the `bytes` bytes at offset `at` of registered memory, at least one, as send() does, but
   * never copies them: PENDING, AGAIN or an error. to_target: to the first target that the peer has
   * offered and that is not full. The peer has made that offer, perhaps it has not come yet
   * (AGAIN), with this tag, and the message is as long as the target's next one. A message that
   * goes to no target is at most a slot long.
   */
  int (*send_device)(coll_conn *conn, const coll_tag *tag, const coll_device_memory *memory,
                     size_t at, size_t bytes, int to_target);

  /* The same from memory of the host, to a target with `copied`: takes a copy. DONE, AGAIN or an
   * error. */
  int (*send_to_target)(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);

  /*
   * Offers a target: the `bytes` bytes at offset `at` of registered memory (written) are for
   * messages of `slice` bytes (the last may be shorter) that the peer sends there. copied: by
   * send_to_target(), and slices are at most a slot long; else by send_device(), and there are at
   * most COLL_DEVICE_MESSAGES of them. Targets are filled in the order in which they were offered.
   * slot_peek() shows such a message once it lies in its target: *tag, and as *buf its address,
   * which the caller must not read. Other messages arrive as ever. expect() is never called on such
   * a connection. DONE, AGAIN (too many are offered) or an error.
   */
  int (*offer_device)(coll_conn *conn, const coll_tag *tag, const coll_device_memory *memory,
                      size_t at, size_t bytes, size_t slice, int copied);

  /*
   * Optional. Tells people, in coll_topo, which ways through the network a connection has: writes
   * "eth0 10.0.0.1 to 10.0.0.2", with commas between several, into the `bytes` bytes of `text`, cut
   * if it is longer. Returns how many ways it lacks: they are not connected yet, or lost.
   */
  int (*paths)(coll_conn *conn, char *text, size_t bytes);

  /* Optional. The shortest round trip, in ns, that the network itself has had lately on a
   * connection, without the time for which processes wait for a core; 0: unknown. */
  double (*round_trip)(coll_conn *conn);
} coll_transport_ops;

/* Whether a transport sends by reference. */
static inline int coll_transport_sends_by_ref(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, send_ref) + sizeof(ops->send_ref) &&
         ops->send_ref != NULL;
}

/* Whether both ends of a connection can work on messages by reference. */
static inline int coll_transport_shares_work(const coll_transport_ops *ops) {
  return ops->size >=
             offsetof(coll_transport_ops, unfinished_work) + sizeof(ops->unfinished_work) &&
         ops->unfinished_work != NULL;
}

/* Whether a transport wants to know where messages will be received. */
static inline int coll_transport_expects(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, expect) + sizeof(ops->expect) &&
         ops->expect != NULL;
}

/* Whether a transport registers buffers. */
static inline int coll_transport_registers(const coll_transport_ops *ops) {
  return ops->size >=
             offsetof(coll_transport_ops, release_buffers) + sizeof(ops->release_buffers) &&
         ops->register_buffer != NULL;
}

/* Whether a transport's device moves messages from and to memory of a GPU. */
static inline int coll_transport_reaches_devices(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, offer_device) + sizeof(ops->offer_device) &&
         ops->offer_device != NULL;
}

/* Whether a transport tells which ways a connection has. */
static inline int coll_transport_tells_paths(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, paths) + sizeof(ops->paths) &&
         ops->paths != NULL;
}

/* Whether a transport tells how long the network takes. */
static inline int coll_transport_tells_round_trip(const coll_transport_ops *ops) {
  return ops->size >= offsetof(coll_transport_ops, round_trip) + sizeof(ops->round_trip) &&
         ops->round_trip != NULL;
}

/*
 * A plug-in is a shared library that exports this one function, which returns a table that never
 * changes. COLL_TRANSPORT_PATH=/path/to/lib.so[:...] loads it once per process and never unloads
 * it. The table must have all functions from open() to wake(), and a unique name: 1 to 15
 * lower-case letters, digits, '-' or '_'. See docs/transports.md. libcoll itself does not define
 * this function.
 */
extern COLL_API const coll_transport_ops *coll_transport_plugin(void);

#ifdef __cplusplus
}
#endif

#endif /* COLL_COLL_TRANSPORT_H */
