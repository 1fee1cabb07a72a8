/* support_tcp.h: a connection of the simulated kernel: one end. */
#ifndef TESTS_SIMKERNEL_SUPPORT_TCP_H
#define TESTS_SIMKERNEL_SUPPORT_TCP_H

#include "support_machine.h"

#define SK_SEGMENT_BYTES ((size_t)64 * 1024)

/* Bytes on their way, or the end of the stream. */
typedef struct sk_chunk {
  TAILQ_ENTRY(sk_chunk) link;
  size_t bytes, taken;
  bool fin;
  char data[];
} sk_chunk;

typedef enum tcp_state {
  TCP_FRESH,
  TCP_LISTENS,
  TCP_SYN,      /* connects */
  TCP_ACCEPTED, /* by the kernel; the last packet of the handshake has yet to come */
  TCP_OPEN,
  TCP_DEAD /* reset, or refused */
} tcp_state;

typedef struct sk_tcp {
  sk_file file;
  tcp_state state;
  int family, host;
  uint32_t ip, peer_ip; /* in host order */
  uint16_t port, peer_port;
  struct sk_tcp *peer; /* the other end */
  int error;
  bool in_over, out_over; /* shut down */
  bool fin_read;          /* its end has arrived */
  bool orphan;            /* its process has closed it */
  bool starved;           /* wants to know of space to send */
  /* out */
  TAILQ_HEAD(sk_chunks, sk_chunk) unsent;
  size_t unsent_bytes, unacked_bytes; /* waiting here; on their way, and not acknowledged */
  unsigned unacked_fins;
  bool fin_queued;
  uint64_t arrived_ns; /* when the last packet arrives; the next comes later */
  bool stalled;        /* waits for a retransmission */
  unsigned retries;
  uint64_t acked_ns; /* when something from the other end came last */
  /* in */
  struct sk_chunks input;
  size_t input_bytes, coming_bytes;
  /* a listener */
  TAILQ_HEAD(, sk_tcp) waiting;
  LIST_ENTRY(sk_tcp) link;
  struct sk_tcp *listener; /* of a child that waits, or will */
  int backlog, nwaiting;
  /* keepalive */
  bool keepalive;
  int idle_s, interval_s;
} sk_tcp;

/* The listener at a port of a host; NULL: none. */
sk_tcp *sk_tcp_listener(int host, uint16_t port);

/* Sends what the window allows. */
void sk_tcp_transmit(sk_tcp *t);

/* Resets the other end, now or, if the packet is lost, when its probes find out. */
void sk_tcp_send_reset(sk_tcp *t);

/* Begins to connect. */
void sk_tcp_dial(sk_tcp *t);

/* Discards what waits to be sent, or was received. */
void sk_tcp_purge(sk_tcp *t, bool output, bool input);

/* Whether packets get through in both directions. */
bool sk_tcp_path(const sk_tcp *t);

#endif
