/*
 * tcp_internal.h: what the files of the TCP transport share.
 *
 * The lower rank of a pair dials, the higher accepts. An inbound connection is a guest at the door
 * until it is authenticated; then it is parked until this rank calls connect() for the same peer
 * and channel, and answered only then: an answer tells the dialer that both ranks have called
 * connect(). With COLL_TLS=1 the TLS handshake follows; on the dialer's side it is part of
 * dialling.
 *
 * Between hosts that have several network interfaces, or with COLL_TCP_SOCKETS, a connection may
 * have several of these sockets: tcp_rails.h.
 *
 * The files, from the bottom: tcp_addr.c and tcp_source.c; tcp_conn.c; tcp_dial.c, tcp_accept.c and
 * tcp_linger.c; tcp_rails_*.c; tcp_paths.c; tcp.c with the table of operations.
 */
#ifndef COLLI_TRANSPORTS_TCP_INTERNAL_H
#define COLLI_TRANSPORTS_TCP_INTERNAL_H

#include "libcoll/base/queue.h"
#include "libcoll/net/door.h"
#include "libcoll/net/heartbeat.h"
#include "libcoll/net/path.h"
#include "transports/stream/stream.h"

#define TCP_BLOB_MAGIC     0x32706374u /* "tcp2"; changes with the blob */
#define TCP_MAX_CANDIDATES 16
#define TCP_DETAIL_BYTES   400
#define TCP_DIAL_NS        5000000000ull /* how long one address may stay silent */
#define TCP_STUCK_NS       500000ull /* after so long without progress, buffer what peers send */
#define TCP_HELLO_NS       1000000000ull /* until the peer's kernel must have a hello */
#define TCP_REDIAL_NS      20000000ull   /* the pause if the peer had no time for a connection */
#define TCP_PAIRS_USED     4             /* pairs of interfaces that a connection uses */
#define TCP_SOCKETS_MAX    4             /* sockets of each */
#define TCP_RAILS_MAX      8             /* sockets of a connection */
#define TCP_LINGER_MS      2000          /* how long close() waits for a peer that reads nothing */
#define TCP_LINGER_MOST_MS 10000         /* ... and for what was sent to arrive at all */

/* What a peer must know. */
typedef struct tcp_blob {
  uint32_t magic;
  uint16_t count;
  uint16_t sockets; /* COLL_TCP_SOCKETS */
  uint64_t host_id;
  uint64_t machine_id;
  colli_addr addrs[COLLI_MAX_ADDRS];
} tcp_blob;
_Static_assert(sizeof(tcp_blob) <= COLL_BLOB_BYTES, "a blob fits in its bytes");

/* A descriptor that epoll watches. */
typedef struct tcp_source {
  int fd;
  uint32_t watched; /* for these events; 0: not at all */
  uint32_t events;  /* events that came and were not handled yet */
} tcp_source;

/* An inbound connection whose peer waits for the answer. */
typedef struct tcp_parked {
  LIST_ENTRY(tcp_parked) link;
  colli_guest guest;
} tcp_parked;

/* What a dialling connection needs until it is established. */
typedef struct tcp_dial {
  colli_addr candidate[TCP_MAX_CANDIDATES];
  int count, next;
  int refused, failed; /* addresses that refused; that failed otherwise, after leaving this host */
  colli_addr from;     /* this host's address to use; family 0: any */
  bool full;           /* the peer may have addresses that it could not offer */
  bool again;          /* an address closed the connection without an answer: try all again */
  uint64_t next_ns;    /* when */
  int short_errno;     /* of descriptors or memory, in this round: try all again */
  uint64_t short_since_ns;
  int shaken_errno; /* the same, of any handshake so far */
  bool handshaking; /* connected: the handshake has begun */
  bool bound;       /* the hello counts from one origin only (auth.h) */
  bool heard;       /* the other end's kernel has taken the hello */
  uint64_t since_ns;
  coll_status handshake_status; /* a handshake that failed, or COLL_OK */
  int sys_errno;
  char tried[TCP_DETAIL_BYTES - 160];
  colli_auth auth;
} tcp_dial;

typedef enum tcp_conn_state {
  TCP_WAITING, /* for the peer to dial */
  TCP_DIALING,
  TCP_SECURING, /* answered; the TLS handshake is in progress */
  TCP_ESTABLISHED,
  TCP_FAILED,
  TCP_LINGERING /* disconnected; what was sent is still under way */
} tcp_conn_state;

typedef struct tcp_endpoint tcp_endpoint;
typedef struct tcp_rails tcp_rails;

/* An interface of this host, as far as rails use it, and how fast what this rank sends arrives
 * (tcp_rails_share.c). */
typedef struct tcp_nic {
  uint32_t scope;      /* its index */
  uint64_t load;       /* bytes that are on their way through it, as far as was seen */
  uint64_t load_apart; /* of these, bytes of connections whose rails share an only interface */
  uint64_t looked_ns;  /* when that was seen, of others */
  bool told;           /* it was logged that it is slow */
  int nsamples;
  uint64_t sample_bytes;          /* of the next sample */
  uint64_t bytes, ns;             /* of all: what arrived, and in what time */
  uint64_t later_bytes, later_ns; /* the same since there are enough samples */
} tcp_nic;

/* What a socket has that is one of several of a connection (tcp_rails.h). */
typedef struct tcp_rail {
  tcp_rails *rails; /* NULL: the connection has this socket alone */
  TAILQ_ENTRY(tcp_conn) link;
  bool joined;                  /* its end of the handshake was noticed */
  bool spare;                   /* the connection does without it */
  bool retired;                 /* nothing more is sent here; what the peer sent is still read */
  uint64_t since_ns;            /* when it began to dial */
  uint64_t silent_ns;           /* since when its other end has not answered; 0: it does */
  uint32_t nic_here, nic_there; /* the interfaces; 0: not known */
  int place;        /* if all rails share one interface: how good this one is, 0 is the best */
  uint64_t given;   /* bytes of messages that it was to send */
  uint64_t arrived; /* so many of them had arrived at the last look */
} tcp_rail;

typedef struct tcp_conn {
  coll_conn base;
  tcp_source source;
  tcp_endpoint *ep;
  LIST_ENTRY(tcp_conn) link; /* in conns or lingering */
  LIST_ENTRY(tcp_conn) blocked_link;
  bool near;        /* the peer is on this machine, perhaps as another host; not for rails */
  bool far;         /* dialling: the peer's kernel takes no hellos of one origin (auth.h) */
  bool blocked;     /* in the list of connections with unsent output */
  bool reported;    /* env->fail() was called */
  bool shut;        /* lingering: our side is shut down */
  uint64_t unacked; /* lingering: bytes that had not arrived at the last look */
  tcp_conn_state state;
  colli_tls *tls; /* NULL: none */
  colli_stream stream;
  colli_heartbeat heartbeat;
  tcp_rail rail;
  tcp_dial *dial;
  coll_status status; /* TCP_FAILED: why */
  int sys_errno;
  const char *syscall;
  char detail[TCP_DETAIL_BYTES];
} tcp_conn;

struct tcp_endpoint {
  const coll_transport_env *env;
  int epoll_fd;
  int listen_fd;
  colli_door door;
  tcp_source door_source; /* watches door.epoll_fd */
  tcp_source wake;
  tcp_blob blob;
  int ndialing, nsecuring;
  bool tls;                       /* COLL_TLS=1 */
  colli_path_marks marks;         /* COLL_TCP_TRAFFIC_CLASS, COLL_TCP_CONGESTION */
  colli_path_marks inside;        /* of connections that do not leave this machine */
  char usual[COLLI_PATH_CONTROL]; /* the control of congestion of others; "": they have theirs */
  uint64_t patience_ns;           /* how long a shortage of descriptors or memory may last */
  uint64_t lacking_since_ns;      /* peers cannot be kept for lack of memory; 0: they can */
  int heartbeat_ms;
  uint64_t look_ns;  /* when to look for silent peers again */
  uint64_t full_ns;  /* when a message first had to wait until others were acknowledged; 0: none */
  bool input;        /* something came that no receive may have asked for */
  uint64_t moved_ns; /* when bytes last moved, as far as was seen; 0: never */
  uint64_t moved;    /* how many those were */
  LIST_HEAD(, tcp_parked) parked;
  LIST_HEAD(, tcp_conn) conns;
  LIST_HEAD(, tcp_conn) blocked;
  LIST_HEAD(, tcp_conn) lingering;
  uint64_t lingered_ns; /* when what one of those has still to deliver was last seen to change */
  tcp_nic nics[COLLI_MAX_ADDRS + 1]; /* the first is for those that are not known */
  uint64_t again_ns;                 /* when to measure them again; 0: no need */
  LIST_HEAD(, tcp_rails) rails, rails_lingering;
};

/* ---- tcp_addr.c: no state ---- */

int tcp_reach(const uint8_t a[COLL_BLOB_BYTES], const uint8_t b[COLL_BLOB_BYTES], coll_link *link);

/* The peer's addresses to dial, best first; how many. */
int tcp_candidates(const tcp_blob *self, const tcp_blob *peer, colli_addr *list, int max);

/* How many network interfaces a rank's host has, as far as it offers their addresses. */
int tcp_count_nics(const tcp_blob *blob);

/* How many sockets each pair of interfaces of two ranks gets at most. Symmetric. */
int tcp_count_sockets(const tcp_blob *a, const tcp_blob *b);

/* How many rails two ranks can have, those in reserve included; 1 on one host. Symmetric. */
int tcp_count_rails(const tcp_blob *a, const tcp_blob *b);

/* A pair of addresses by which this rank may reach a peer. */
typedef struct tcp_pair {
  colli_addr from, to;
  uint32_t nic_there; /* the peer's interface, by its own index */
} tcp_pair;
#define TCP_PAIRS_MAX (COLLI_MAX_ADDRS * COLLI_MAX_ADDRS)

/* All pairs of addresses of network interfaces that rails are made of, best first, in the same
 * order for both ranks; how many. If one host has one interface only, the other's are left out that
 * are farther away than others. */
int tcp_pairs(const tcp_blob *self, const tcp_blob *peer, tcp_pair list[TCP_PAIRS_MAX]);

/* Reads a peer's blob; false if it is not valid. */
bool tcp_blob_read(const uint8_t bytes[COLL_BLOB_BYTES], tcp_blob *blob);

/* ---- tcp_source.c ---- */

/* Has epoll watch a source for `events` (0: for nothing any more): false with errno. */
bool tcp_source_watch(tcp_endpoint *ep, tcp_source *source, uint32_t events);

/* Closes a source's descriptor, if it has one. */
void tcp_source_close(tcp_endpoint *ep, tcp_source *source);

/* ---- tcp_dial.c ---- */

/* Begins to dial the peer: all its addresses, or if `pair` is not NULL only that one. */
void tcp_dial_start(tcp_conn *conn, const tcp_blob *peer, const tcp_pair *pair);

/* Advances dialling: 1 if something happened. */
int tcp_dial_progress(tcp_conn *conn, uint64_t now_ns);

/* Frees what dialling needed; the socket stays. Fine if this connection does not dial. */
void tcp_dial_free(tcp_conn *conn);

/* ---- tcp_accept.c ---- */

/* Opens the door at the listening socket: 0, or an errno. */
int tcp_accept_open(tcp_endpoint *ep);

/* Whether there may be something to do at the door. */
bool tcp_accept_due(const tcp_endpoint *ep);

/* Accepts connections, advances handshakes, parks: 1 if something happened, 0, or a status. */
int tcp_accept_progress(tcp_endpoint *ep);

/* Takes the parked socket of a connection that waits for one, if there is one: 1 or 0. */
int tcp_accept_adopt(tcp_conn *conn);

/* Closes the door, the listening socket and all inbound ones. */
void tcp_accept_close(tcp_endpoint *ep);

/* ---- tcp_conn.c ---- */

/* Makes a connection fail with what its data calls will report. */
void tcp_conn_fail(tcp_conn *conn, coll_status status, const char *syscall, int sys_errno,
                   const char *format, ...) __attribute__((format(printf, 5, 6)));

/* The handshake is done on conn->source.fd: messages may flow, over conn->tls if it is there. */
void tcp_conn_establish(tcp_conn *conn);

/* Like tcp_conn_establish(), for an answered connection; finishes the TLS handshake first. `tls`
 * (may be NULL) is the connection's from now on. */
void tcp_conn_secure(tcp_conn *conn, colli_tls *tls);

/* Advances the TLS handshake of a TCP_SECURING connection: 1 if it is over. */
int tcp_conn_shake(tcp_conn *conn);

/* After a call that may have left output waiting: tells progress() to flush it. */
void tcp_conn_note_output(tcp_conn *conn);

/* Frees a connection that is no longer in any list, and closes its socket. */
void tcp_conn_free(tcp_conn *conn);

/* A connection with no socket yet; NULL: out of memory. */
tcp_conn *tcp_conn_new(tcp_endpoint *ep, const coll_conn *base);

/* The data calls of coll_transport.h. */
int tcp_send(coll_conn *conn, const coll_tag *tag, const void *buf, size_t bytes);
int tcp_sent(coll_conn *conn, uint64_t *count);
int tcp_slot_acquire(coll_conn *conn, size_t bytes, void **buf);
int tcp_slot_commit(coll_conn *conn, const coll_tag *tag, size_t bytes);
int tcp_recv(coll_conn *conn, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
             size_t *got_bytes);
int tcp_slot_peek(coll_conn *conn, coll_tag *got, const void **buf, size_t *bytes);
int tcp_slot_release(coll_conn *conn);

/* ---- tcp_paths.c ---- */

/* coll_transport_ops.paths of connections with one socket, and of those over rails. */
int tcp_paths(coll_conn *base, char *text, size_t bytes);
int tcp_rails_paths(coll_conn *base, char *text, size_t bytes);

/* coll_transport_ops.round_trip of the same. */
double tcp_round_trip(coll_conn *base);
double tcp_rails_round_trip(coll_conn *base);

/* ---- tcp_linger.c ---- */

/* Takes over an established connection until what was sent has arrived, and frees it then. */
void tcp_linger_start(tcp_conn *conn);

/* Closes a connection; an established one lingers until what was sent has arrived. */
void tcp_disconnect(coll_conn *base);

/* Advances all lingering connections. */
void tcp_linger_progress(tcp_endpoint *ep);

/* Whether close(), which began at that time, still waits: as long as something arrives, for
 * TCP_LINGER_MOST_MS at most. A peer that is held up on a busy machine reads nothing for a while.
 */
bool tcp_linger_goes_on(const tcp_endpoint *ep, uint64_t begun_ns);

/* The part of close(), which began at that time, that waits for lingering connections, and closes
 * those that are left. */
void tcp_linger_close(tcp_endpoint *ep, uint64_t begun_ns);

#endif
