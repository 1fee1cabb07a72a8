/*
 * fault.h: a decorator that makes any transport misbehave within its contract, or break, from a
 * seed. COLL_FAULT says how; without it nothing is wrapped and nothing is paid.
 *
 * COLL_FAULT is a comma-separated list of
 *   seed=N        where chance begins (1)
 *   again=P       P percent of the data calls return AGAIN for no reason
 *   pending=P     P percent of the sends are accepted first and read later; shared work is
 *                 reported late
 *   refuse=P      P percent of what a transport may do without copying is not done: memory is not
 *                 registered, nothing goes by reference or straight to its target, no work is
 *                 shared
 *   delay_us=N    connections are made up to N microseconds late
 *   drop_after=K  each connection breaks after K messages sent and received
 *   cut=A-B@K     the connections between ranks A and B break after K messages
 *   stall=A-B@K   the connections between ranks A and B fall silent after K messages
 *   flip=A-B@K    on connections from rank A to rank B, one bit of message K (from 0) arrives wrong
 *   lose=A-B@K    message K does not arrive
 *   replay=A-B@K  message K arrives twice
 *   swap=A-B@K    message K arrives after the one behind it
 * Those with ranks may be given up to 8 times together. The last four break the contract of
 * transports: COLL_DATA_CHECK notices them.
 */
#ifndef COLLI_TRANSPORTS_HOOK_FAULT_H
#define COLLI_TRANSPORTS_HOOK_FAULT_H

#include <stdbool.h>

#include "coll/coll_transport.h"

#define FAULT_MAX_LINKS 8

typedef enum fault_kind {
  FAULT_CUT,
  FAULT_STALL,
  FAULT_FLIP, /* from here on: what happens to one message */
  FAULT_LOSE,
  FAULT_REPLAY,
  FAULT_SWAP,
  FAULT_KINDS
} fault_kind;

/* What happens between two ranks, and when. */
typedef struct fault_link {
  fault_kind kind;
  int a, b;
  uint64_t at; /* number of messages before it */
} fault_link;

/* COLL_FAULT, taken apart. */
typedef struct fault_plan {
  uint64_t seed;
  unsigned again;
  unsigned pending;
  unsigned refuse;
  uint64_t delay_us;
  uint64_t drop_after; /* UINT64_MAX: never */
  int nlinks;
  fault_link links[FAULT_MAX_LINKS];
} fault_plan;

/* Reads the text; on failure false, with one sentence in `why`. */
bool fault_plan_parse(const char *text, fault_plan *plan, char *why, size_t why_bytes);

/* The table of a decorated transport; `ops` comes first, as open() finds `inner` from env->ops. */
typedef struct fault_table {
  coll_transport_ops ops;
  const coll_transport_ops *inner;
} fault_table;

/*
 * Decorates a transport: fills in *table, which must stay where it is as long as the transport is
 * in use, and returns &table->ops. NULL: `inner` is decorated already.
 */
const coll_transport_ops *colli_fault_over(const coll_transport_ops *inner, fault_table *table);

#endif
