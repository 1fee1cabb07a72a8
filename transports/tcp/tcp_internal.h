/*
 * tcp_internal.h: what the files of the TCP transport share.
 *
 * The lower rank of a pair dials, the higher accepts. An inbound socket is a stranger until the
 * handshake is done; then it is parked until this rank calls connect() for the same peer and
 * channel, and only then answered, so that both sides know of both calls.
 */
#ifndef COLLI_TRANSPORTS_TCP_INTERNAL_H
#define COLLI_TRANSPORTS_TCP_INTERNAL_H

#include <sys/queue.h>

#include "libcoll/base/auth.h"
#include "libcoll/base/net.h"
#include "transports/stream/stream.h"

#define TCP_BLOB_MAGIC     0x70637443u /* "Ctcp" */
#define TCP_MAX_STRANGERS  64
#define TCP_MAX_CANDIDATES 16
#define TCP_DETAIL_BYTES   400
#define TCP_DIAL_NS        5000000000ull /* how long one address may stay silent */
#define TCP_STANDSTILL_NS  500000ull     /* nothing moved for so long: take in what peers send */
#define TCP_LINGER_MS      300           /* how long close() waits for what was sent to arrive */

/* What a peer must know. */
typedef struct tcp_blob {
  uint32_t magic;
  uint32_t count;
  uint64_t host_id;
  colli_addr addrs[COLLI_MAX_ADDRS];
} tcp_blob;
_Static_assert(sizeof(tcp_blob) <= COLL_BLOB_BYTES, "a blob fits in its bytes");

/* A descriptor that epoll looks at. */
typedef struct tcp_source {
  int fd;
  uint32_t watched; /* events that epoll looks for; 0: not in the set */
  uint32_t events;  /* events that came and were not looked at yet */
} tcp_source;

/* An inbound socket: a stranger, or parked. */
typedef struct tcp_inbound {
  tcp_source source;
  LIST_ENTRY(tcp_inbound) link;
  colli_auth auth;
  bool parked;
} tcp_inbound;

/* What a dialing connection needs until it is established. */
typedef struct tcp_dial {
  colli_addr candidate[TCP_MAX_CANDIDATES];
  int count, next;
  int refused, failed; /* addresses that refused; that failed otherwise, after leaving this host */
  bool shaking;        /* connected: the handshake is on */
  uint64_t since_ns;
  coll_status worst; /* a handshake that failed, or COLL_OK */
  int sys_errno;
  char tried[TCP_DETAIL_BYTES - 160];
  colli_auth auth;
} tcp_dial;

typedef enum tcp_conn_state {
  TCP_WAITING, /* for the peer to dial */
  TCP_DIALING,
  TCP_ESTABLISHED,
  TCP_FAILED,
  TCP_LINGERING /* disconnected; what was sent is still under way */
} tcp_conn_state;

typedef struct tcp_endpoint tcp_endpoint;

typedef struct tcp_conn {
  coll_conn base;
  tcp_source source;
  tcp_endpoint *ep;
  LIST_ENTRY(tcp_conn) link; /* in conns or lingering */
  LIST_ENTRY(tcp_conn) blocked_link;
  bool blocked; /* in the list of connections with waiting output */
  bool told;    /* env->fail() was called */
  bool shut;    /* lingering: our side is closed */
  tcp_conn_state state;
  colli_stream stream;
  tcp_dial *dial;
  coll_status status; /* TCP_FAILED: why */
  int sys_errno;
  const char *syscall;
  char detail[TCP_DETAIL_BYTES];
} tcp_conn;

struct tcp_endpoint {
  const coll_transport_env *env;
  int epoll_fd;
  tcp_source listener;
  tcp_source wake;
  tcp_blob blob;
  int strangers;
  int dialing;
  bool input;                       /* something came that was perhaps not asked for */
  uint64_t standstill_ns;           /* when bytes were last seen to have moved; 0: not looked yet */
  uint64_t moved;                   /* how many those were */
  LIST_HEAD(, tcp_inbound) unknown; /* strangers */
  LIST_HEAD(, tcp_inbound) parked;
  LIST_HEAD(, tcp_conn) conns;
  LIST_HEAD(, tcp_conn) blocked;
  LIST_HEAD(, tcp_conn) lingering;
};

/* ---- tcp_addr.c: pure ---- */

int tcp_reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES], coll_link *link);

/* The peer's addresses to dial, best first; how many. */
int tcp_candidates(const tcp_blob *self, const tcp_blob *peer, colli_addr *list, int max);

/* Reads a blob that came from elsewhere: whether it can be used. */
bool tcp_blob_read(const uint8_t bytes[COLL_BLOB_BYTES], tcp_blob *blob);

/* ---- tcp.c ---- */

/* Makes epoll look for `events` on a source (0: for nothing any more): false with errno. */
bool tcp_watch(tcp_endpoint *ep, tcp_source *source, uint32_t events);

/* Closes a source's descriptor, if it has one. */
void tcp_close_source(tcp_endpoint *ep, tcp_source *source);

/* ---- tcp_dial.c ---- */

/* Begins to dial. */
void tcp_dial_start(tcp_conn *conn, const tcp_blob *peer);

/* Moves dialing on: 1 if something happened. */
int tcp_dial_progress(tcp_conn *conn, uint64_t now_ns);

/* Forgets all about dialing; the socket stays. Fine if this connection does not dial. */
void tcp_dial_free(tcp_conn *conn);

/* ---- tcp_accept.c ---- */

/* Accepts, shakes hands, parks: 1 if something happened. */
int tcp_accept_progress(tcp_endpoint *ep);

/* Takes the parked socket of a connection that waits for one, if it has come: 1 or 0. */
int tcp_accept_adopt(tcp_conn *conn);

/* Closes all inbound sockets. */
void tcp_accept_close(tcp_endpoint *ep);

/* ---- tcp_conn.c ---- */

/* Makes a connection fail with what its data calls will report. */
void tcp_conn_fail(tcp_conn *conn, coll_status status, const char *syscall, int sys_errno,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The handshake is done on conn->source.fd: messages may flow. */
void tcp_conn_establish(tcp_conn *conn);

int tcp_connect(coll_endpoint *ep, int peer, const uint8_t blob[COLL_BLOB_BYTES], int channel,
                coll_conn **conn);
void tcp_disconnect(coll_conn *conn);
int tcp_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);
int tcp_sent(coll_conn *conn, uint64_t *count);
int tcp_slot_acquire(coll_conn *conn, size_t bytes, void **buf);
int tcp_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes);
int tcp_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
             size_t *got_bytes);
int tcp_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes);
int tcp_slot_release(coll_conn *conn);

/* ---- tcp_linger.c ---- */

/* Takes over an established connection until what was sent has arrived, and frees it then. */
void tcp_linger_start(tcp_conn *conn);

/* Moves them all on. */
void tcp_linger_progress(tcp_endpoint *ep);

/* Waits for them, at most TCP_LINGER_MS, and closes what is left. */
void tcp_linger_close(tcp_endpoint *ep);

#endif
