/*
 * tcp_rails.h: a connection between hosts that have several network interfaces, or of which each
 * pair of interfaces gets several sockets. Each of these that works is a rail:
 *
 *   pieces 0 1 2 3 4 5 ...  -->  rail A: 0 1 3 5     -->  by number: 0 1 2 3 4 5 ...
 *                           \->  rail B:   2 4  (3)  -/   (3) came twice and is dropped
 *
 * Long messages may be cut into pieces of some quarters of a slot. Each piece carries its number,
 * and how many quarters of its message come behind it; the first one has also what is more than
 * whole quarters. It goes over one rail: short ones over the first, long ones over that on which
 * they arrive first, as far as one can tell (tcp_rails_share.c). The receiver takes the next number
 * from whichever rail has it.
 *
 * Each pair of interfaces has as many rails as COLL_TCP_SOCKETS says, if these are not too many.
 * Rails of different pairs have no interface in common, but for the only one of a host with several
 * others, which all share. Then all messages go over the rail whose pair of interfaces is best, as
 * several would not be faster; the others are in reserve, should it break. Interfaces that are
 * farther away than others make no rail then; the first socket, which may have one, is retired when
 * it is no longer needed.
 *
 * What is sent again may come behind later pieces of the same rail. If the wanted one has been
 * missing for a while, these are read to memory.
 *
 * A copy of each message is kept until the peer's kernel has acknowledged it: what the kernel has
 * will be read, even if the rail then breaks. A rail that does not answer, or is closed, is retired
 * while another one answers: what it has not acknowledged is sent again on the others, and nothing
 * more is sent on it. What the peer had sent there is read to its end. So no rank has to agree with
 * its peer on anything: the number alone decides what is delivered, and a copy too many is dropped.
 *
 * The lower rank dials: at first all addresses, one after the other, as if there were no rails;
 * then pairs of interfaces that have too few rails, again and again, ever later while none answers,
 * but soon again if no rail does. The higher one takes every socket that comes. The last rail is
 * never retired; its end ends the connection.
 */
#ifndef COLLI_TRANSPORTS_TCP_RAILS_H
#define COLLI_TRANSPORTS_TCP_RAILS_H

#include "libcoll/base/log.h"
#include "transports/tcp/tcp_internal.h"

#define TCP_RAILS_SOCKETS    24        /* also retired ones, until the peer has closed them */
#define TCP_RAILS_KEPT       4u        /* messages that are kept, for each slot of the connection */
#define TCP_RAILS_QUARTERS   4u        /* of a message, at most: two bits of a head */
#define TCP_RAILS_LONG       16384     /* such pieces go over all rails that are not in reserve */
#define TCP_RAILS_SAMPLE     131072    /* bytes by which a speed is measured */
#define TCP_RAILS_REAP       4         /* after so many messages, look what was acknowledged */
#define TCP_RAILS_AHEAD      (1 << 24) /* no piece is so far before or behind the wanted one */
#define TCP_RAILS_UNHEARD    2 /* questions or repetitions without an answer: a rail is retired */
#define TCP_RAILS_BEHIND_NS  20000000ull   /* then later pieces are read first */
#define TCP_RAILS_REAP_NS    1000000ull    /* at least so often, look what was acknowledged */
#define TCP_RAILS_FULL_NS    2000000ull    /* so long a rank polls for acknowledgements */
#define TCP_RAILS_SIBLING_NS 5000000000ull /* so much later those of one cut pair notice it */
#define TCP_RAILS_LOOK_NS    100000000ull  /* how often to look for rails that do not answer */
#define TCP_RAILS_GONE_MS    60000         /* a rail that has not answered for so long is closed */
#define TCP_RAILS_DIAL_NS    3000000000ull /* how long a pair of addresses may take to answer */
#define TCP_RAILS_PAUSE_NS   100000000ull  /* between attempts; doubled with each failure, up to: */
#define TCP_RAILS_PAUSES_NS  10000000000ull

/* A piece of a message that the peer's kernel may not have yet. */
typedef struct tcp_kept {
  coll_tag tag;
  uint32_t offset, bytes; /* in its message */
  unsigned behind;        /* so many quarters of the message come behind it */
  int buffer;             /* its message's place in the pool; -1: it was acknowledged */
  tcp_conn *by;           /* the socket that sends it; NULL: it waits for one */
  uint64_t end;           /* it ends behind so many bytes of that socket */
} tcp_kept;

/* A piece that had to be read before the wanted one. */
typedef struct tcp_early {
  LIST_ENTRY(tcp_early) link;
  uint32_t head; /* tcp_rails_head() */
  coll_tag tag;
  size_t bytes;
  _Alignas(64) char payload[];
} tcp_early;

struct tcp_rails {
  coll_conn base;
  tcp_endpoint *ep;
  LIST_ENTRY(tcp_rails) link;
  TAILQ_HEAD(, tcp_conn) sockets; /* oldest first; those that are not established, too */
  int nsockets;
  int wanted; /* how many rails there can be: tcp_count_rails() */
  bool dials, was_up, closing;
  int each;                 /* sockets of a pair of interfaces: tcp_count_sockets() */
  bool one_here, one_there; /* all rails share this host's, or the peer's, only interface */
  tcp_blob peer;
  colli_log log;

  unsigned turn; /* which pair to dial next */
  uint64_t dial_ns, pause_ns, look_ns;
  int told; /* how many rails work, as far as the log says; it is told when that has lasted */
  int seen; /* how many did at the last look */
  int most; /* the largest number that was told */

  /* Why it ended; COLL_OK: it works. */
  coll_status status;
  bool reported;
  int sys_errno;
  const char *syscall;
  char detail[TCP_DETAIL_BYTES];

  /* Sending. Pieces are numbered from 0; [first, next) are kept, at their number modulo nkept. */
  tcp_kept *kept;
  unsigned nkept, nwaiting, nfree;
  uint64_t first, next, written, reaped_ns;
  uint64_t kept_bytes;   /* of those that are kept */
  uint64_t posted, sent; /* messages; those of which all pieces are written */
  char *pool;
  uint8_t *uses; /* of each buffer of the pool: pieces that are not acknowledged */
  int *free;     /* buffers, the last used one last */
  int acquired;  /* the buffer of slot_acquire(); -1: none */

  /* Receiving. */
  uint64_t want;     /* the number of the next piece */
  tcp_conn *current; /* the socket that has it; NULL: not known */
  LIST_HEAD(, tcp_early) early;
  unsigned nearly;
  tcp_early *shown;    /* the wanted one, if it was read early; it is in no list any more */
  uint64_t behind_ns;  /* since when only later pieces have been here; 0: not so */
  coll_tag tag;        /* of the message of which pieces have been received */
  size_t bytes, done;  /* how long it is; so many of its bytes are in pieces that are here */
  bool in_slot, whole; /* slot_peek() puts it together in `slot`; has done so */
  char *slot;
  bool peeked; /* slot_peek() shows what `current` has */
};

/* Whether all rails of a connection share an only interface, so that one of them is used and the
 * others are in reserve. */
static inline bool tcp_rails_share_one(const tcp_rails *rails) {
  return rails->one_here || rails->one_there;
}

/* ---- tcp_rails_socket.c ---- */

/* Bytes that a rail was given and have not arrived. */
static inline uint64_t tcp_rail_load(const tcp_rail *rail) {
  return rail->given - rail->arrived;
}

/* Bytes of what messages are cut into: a quarter of a slot, but not less than is long. */
static inline size_t tcp_rails_quarter(const tcp_rails *rails) {
  const size_t quarter = (rails->ep->env->slot_bytes / TCP_RAILS_QUARTERS + 63) & ~(size_t)63;
  return quarter < TCP_RAILS_LONG ? TCP_RAILS_LONG : quarter;
}

/* What the head of a piece says: its number, and how many quarters come behind it. */
static inline uint32_t tcp_rails_head(uint64_t number, unsigned behind) {
  return (uint32_t)(number * TCP_RAILS_QUARTERS) + behind;
}

/* The kept piece with a number. */
static inline tcp_kept *tcp_kept_at(const tcp_rails *rails, uint64_t number) {
  return &rails->kept[number % rails->nkept];
}

/* Counts what the kernel has got. */
void tcp_rails_count_written(tcp_rails *rails);

/* Looks which pieces have been acknowledged. */
void tcp_rails_reap(tcp_rails *rails);

/* Takes a socket away from the connection and closes it, at once or when all has arrived. */
void tcp_rails_remove(tcp_conn *conn);

/* Whether messages may be sent on a socket. */
static inline bool tcp_rail_is_open(const tcp_conn *conn) {
  return conn->state == TCP_ESTABLISHED && conn->rail.joined && !conn->rail.retired &&
         conn->stream.send_status == COLL_OK;
}

/* Whether a connection (NULL: one without rails) waits, or soon will, for a socket of its peer. */
static inline bool tcp_rails_awaits_more(const tcp_rails *rails) {
  return rails && !rails->dials && !rails->closing && rails->status == COLL_OK &&
         rails->nsockets < TCP_RAILS_SOCKETS;
}

/* How many sockets are open. */
int tcp_rails_open(const tcp_rails *rails);

/* How many rails could be made of the pairs of tcp_pairs() beside those that are open. */
int tcp_rails_missing(const tcp_rails *rails);

/* Sends nothing more on a socket; what it had not delivered goes over the others. */
void tcp_rails_retire(tcp_conn *conn);

/* The end of a socket was read, or it broke: retires and closes it. */
void tcp_rails_end(tcp_conn *conn);

/* Makes the connection fail, with a reason that is copied, or with that of one of its sockets. The
 * first reason is the one that is reported. */
void tcp_rails_fail_here(tcp_rails *rails, coll_status status, const char *syscall, int sys_errno,
                         const char *detail);
void tcp_rails_fail(tcp_rails *rails, coll_status status, const tcp_conn *why);

/* What a data call returns before it does anything: COLL_T_DONE if it may go on, COLL_T_AGAIN
 * before the first socket is established, or why the connection failed, which is reported once. */
int tcp_rails_check(tcp_rails *rails);

/* ---- tcp_rails.c ---- */

/* Makes a connection over rails; NULL: out of memory. */
coll_conn *tcp_rails_connect(tcp_endpoint *ep, const coll_conn *base, const tcp_blob *where);

/* Whether two rails of different pairs of interfaces here and there cannot both be open. */
static inline bool tcp_rails_clash(const tcp_rails *rails, uint32_t here, uint32_t there,
                                   uint32_t other_here, uint32_t other_there) {
  return (here == other_here && !rails->one_here) || (there == other_there && !rails->one_there);
}

/* Whether a pair of interfaces has too few rails and no other open one clashes with it. */
bool tcp_rails_is_free(const tcp_rails *rails, const tcp_pair *pair);

/* Looks after all connections over rails: 1 if something happened. */
int tcp_rails_progress(tcp_endpoint *ep);

/* Advances connections that were disconnected before all that they sent had arrived. */
void tcp_rails_linger(tcp_endpoint *ep);

/* Waits for those as tcp_linger_close() does, and ends them. */
void tcp_rails_close(tcp_endpoint *ep, uint64_t begun_ns);

/* Ends a connection. */
void tcp_rails_disconnect(coll_conn *base);

/* ---- tcp_rails_share.c ---- */

/* The socket for a piece; NULL: none is open. */
tcp_conn *tcp_rails_choose(tcp_rails *rails, size_t bytes, uint64_t now_ns);

/* How many quarters of a slot the pieces of a message have. */
unsigned tcp_rails_piece(const tcp_rails *rails);

/* Looks what has arrived while it is not yet known how fast the interfaces are. */
void tcp_rails_measure(tcp_rails *rails, uint64_t now_ns);

/* Looks how much of what a socket was given has arrived. */
void tcp_rails_look_at_arrivals(tcp_conn *conn, uint64_t now_ns);

/* Counts bytes that a socket was given to send. */
void tcp_rails_count_given(tcp_conn *conn, uint64_t bytes, uint64_t now_ns);

/* Counts bytes of those that have arrived. */
void tcp_rails_count_arrived(tcp_conn *conn, uint64_t bytes, uint64_t now_ns);

/* A socket sends nothing more: what has not arrived is no longer on its way. */
void tcp_rails_count_lost(tcp_conn *conn);

/* ---- tcp_rails_send.c ---- */

/* Sends what waits, as far as the kernel takes it. */
void tcp_rails_flush(tcp_rails *rails);

/* Gives pieces that wait to sockets: 1 if one was given. */
int tcp_rails_give(tcp_rails *rails);

int tcp_rails_send(coll_conn *base, const coll_tag *tag, const void *buf, size_t bytes);
int tcp_rails_sent(coll_conn *base, uint64_t *count);
int tcp_rails_slot_acquire(coll_conn *base, size_t bytes, void **buf);
int tcp_rails_slot_commit(coll_conn *base, const coll_tag *tag, size_t bytes);

/* ---- tcp_rails_recv.c ---- */

/* Reads the head of the next piece of each rail; COLL_T_DONE: `current` has the wanted one. If
 * somebody `receives`, later ones are read to memory once that one has been missing for long.
 */
int tcp_rails_find(tcp_rails *rails, bool receives);

int tcp_rails_recv(coll_conn *base, const coll_tag *expect, void *buf, size_t bytes, coll_tag *got,
                   size_t *got_bytes);
int tcp_rails_slot_peek(coll_conn *base, coll_tag *got, const void **buf, size_t *bytes);
int tcp_rails_slot_release(coll_conn *base);

#endif
