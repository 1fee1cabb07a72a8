/* shm_internal.h: endpoint, connection and handshake, as the files of this folder share them. */
#ifndef COLLI_TRANSPORTS_SHM_INTERNAL_H
#define COLLI_TRANSPORTS_SHM_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll_transport.h"
#include "libcoll/net/auth.h"
#include "transports/shm/shm_data.h"
#include "transports/shm/shm_region.h"
#include "transports/shm/shm_segment.h"
#include "transports/shm/shm_wire.h"
#include "transports/shm/shm_work.h"

/* A descriptor in the endpoint's epoll; the first member of what it belongs to. */
typedef enum shm_watch_kind {
  SHM_WATCH_LISTENER,
  SHM_WATCH_BELL,
  SHM_WATCH_HANDSHAKE,
  SHM_WATCH_CONN
} shm_watch_kind;

typedef struct shm_watch {
  shm_watch_kind kind;
  int fd; /* -1: none */
} shm_watch;

/* Bits of shm_conn.gate: why a data call must not simply use the rings. */
#define SHM_GATE_CONNECTING 1u
#define SHM_GATE_BROKEN     2u /* failed; `status` says how */
#define SHM_GATE_GONE       4u /* the peer's socket is closed; its messages may still be read */

typedef struct shm_conn {
  coll_conn base;
  uint32_t gate;
  coll_status status; /* the first failure */
  shm_link link;
  struct shm_endpoint *ep;
  struct shm_conn *next;
  shm_watch watch; /* the socket that shows a peer's end; none in the same process */
  shm_segment segment;
  int bell_fd; /* the peer's doorbell; in the same process it is the peer's own descriptor */
  bool local;  /* both ends are in this process */
  shm_peer *shared;
  shm_share *offer; /* the region that is being offered here, or NULL */
  shm_note offer_note;
  bool offer_untold; /* no message has had the note yet */
  uint32_t offers;   /* made on this connection */
  uint32_t answered; /* offers of the peer that were */
  int offered_fd;    /* came before its note; or -1 */
} shm_conn;

typedef enum shm_stage {
  SHM_STAGE_DIAL,   /* dialer: to be tried again, the listener's queue or the process is full */
  SHM_STAGE_AUTH,   /* both: colli_auth */
  SHM_STAGE_OFFER,  /* acceptor: waits for the offer */
  SHM_STAGE_PARKED, /* acceptor: has the segment, waits for its own connect() */
  SHM_STAGE_ANSWER, /* dialer: waits for the answer */
  SHM_STAGE_OVER    /* to be freed */
} shm_stage;

typedef struct shm_handshake {
  shm_watch watch;
  shm_stage stage;
  bool dialer;
  bool local;
  struct shm_endpoint *ep;
  struct shm_handshake *next;
  shm_conn *conn; /* dialer's */
  int peer;       /* -1 while not known */
  int channel;
  uint64_t deadline_ns; /* of the whole, until the dialer has proved that it knows the secret */
  uint64_t redial_ns;   /* dialer: not before */
  colli_auth auth;
  shm_segment segment;
  int bell_fd;
  shm_blob blob; /* dialer: where to */
} shm_handshake;

typedef struct shm_endpoint {
  const coll_transport_env *env;
  shm_watch listener;
  shm_watch bell;
  int epoll_fd;
  shm_blob self;
  shm_conn *conns;
  shm_peer *peers; /* of all connections */
  shm_region *regions;
  shm_handshake *handshakes;
  int connecting; /* connections that are not up and have not failed */
  int redials;    /* handshakes in SHM_STAGE_DIAL */
  unsigned calls; /* of progress() since the last look at the clock */
  bool poll_now;  /* after a sleep: look at the descriptors at the next progress() */
  bool armed;
  bool fenced;   /* this process takes part in fences: shm_ring_fence() */
  bool happened; /* during this progress() */
  uint64_t polled_ns;
  uint64_t patience_ns; /* how long a shortage of descriptors or memory may last */
  uint64_t starved_ns;  /* since when peers cannot be let in for such a shortage; 0: they can */
  int starved_errno;    /* why */
  bool starved_inside;  /* they are accepted, but not kept */
} shm_endpoint;

/* ---- shm_conn.c: the calls of coll_transport_ops that concern one connection ----------------- */

int shm_connect(coll_endpoint *endpoint, int peer, const uint8_t raw[COLL_BLOB_BYTES], int channel,
                coll_conn **result);
void shm_disconnect(coll_conn *base);
int shm_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes);
int shm_sent(coll_conn *base, uint64_t *count);
int shm_slot_acquire(coll_conn *base, size_t bytes, void **buf);
int shm_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes);
int shm_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
             size_t *got_bytes);
int shm_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes);
int shm_slot_release(coll_conn *base);

/* ---- shm_state.c ----------------------------------------------------------------------------- */

/* Records the first failure of a connection, tells the environment, and returns its status. */
int shm_conn_fail(shm_conn *conn, const shm_fault *fault);

/*
 * Makes a connection ready. Takes over segment, doorbell and socket; closes the socket if it is not
 * needed.
 */
void shm_conn_up(shm_conn *conn, shm_handshake *handshake);

/* Wakes a sleeping peer. */
void shm_conn_ring(shm_conn *conn);

/* Reports that the peer is gone; what it has sent can still be received after a send failed. */
int shm_conn_lost(shm_conn *conn, bool receiving);

/* What a data call on a connection returns that is not simply up. */
int shm_conn_stopped(shm_conn *conn);

/* After a data call of the rings: does what it left to do; returns what the caller gets. */
int shm_conn_attend(shm_conn *conn, int result, bool receiving);

/* Most sends end here without a call. */
static inline int shm_conn_finish_send(shm_conn *conn, int result) {
  if (SHM_UNLIKELY(conn->link.attention || result > 0))
    return shm_conn_attend(conn, result, false);
  return result;
}

/* The same for a receive: no message of a peer that is gone will ever come. */
static inline int shm_conn_finish_receive(shm_conn *conn, int result) {
  if (SHM_UNLIKELY(conn->link.attention || result > 0))
    result = shm_conn_attend(conn, result, true);
  if (SHM_UNLIKELY(result == COLL_T_AGAIN && conn->gate))
    return shm_conn_lost(conn, true);
  return result;
}

/* ---- shm_watch.c ----------------------------------------------------------------------------- */

/* Adds a descriptor to the epoll, or changes what it belongs to: 0, or -1 with errno. */
int shm_watch_add(shm_endpoint *ep, shm_watch *watch);
int shm_watch_move(shm_endpoint *ep, shm_watch *watch);

/* Ends and closes a watched socket. */
void shm_watch_close(shm_endpoint *ep, shm_watch *watch);

/* Checks the doorbell that a peer passed. */
coll_status shm_bell_check(const shm_handshake *handshake, shm_fault *fault);

/* Why connect() failed. */
void shm_connect_fault(shm_fault *fault, int error);

/* ---- shm_handshake.c ------------------------------------------------------------------------- */

/* Starts to dial for a connection. */
void shm_handshake_dial(shm_endpoint *ep, shm_conn *conn, const shm_blob *blob);

/* Takes the connections that wait at the listener. */
void shm_handshake_accept(shm_endpoint *ep);

/* Something came on the handshake's socket. */
void shm_handshake_event(shm_handshake *handshake);

/* Completes a connection whose peer has dialled already. */
void shm_handshake_match(shm_endpoint *ep, shm_conn *conn);

/* Tries again what could not be done, ends what took too long, and frees what is over. */
void shm_handshake_tend(shm_endpoint *ep, uint64_t now_ns);

/* Forgets a connection that is being disconnected; conn NULL: ends all handshakes. */
void shm_handshake_forget(shm_endpoint *ep, shm_conn *conn);

/* ---- shm_starve.c ---------------------------------------------------------------------------- */

/* Notes why a peer could not be let in, or (`inside`) was, but could not be kept until it had
 * proved itself. 0: it was kept. */
void shm_starve_note(shm_endpoint *ep, int error, bool inside);

/* COLL_OK, or the error of an endpoint that waits for connections that do not come. */
int shm_starve_check(const shm_endpoint *ep);

#endif
