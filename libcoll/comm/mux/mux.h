/*
 * mux.h: the connections of communicators that were split from others: many *virtual channels* over
 * one connection per pair of ranks, created on first use. The mux decorates the transports, as the
 * fault injector does, and looks like a transport to the executor.
 *
 * A virtual channel is (communicator, peer, channel). Each rank numbers its communicators by
 * itself, and its peers put that number into their messages. So ranks need not agree on numbers,
 * and threads that split several communicators at once do not wait for each other. Number, channel
 * and kind of a message use bits that the executor's tags leave free.
 *
 * A message for a virtual channel other than the polled one is copied to that one's queue. So is a
 * message that slot_peek() shows, because it must stay in place until slot_release() while the
 * connection carries messages for others. Only recv() takes messages directly from the connection.
 *
 * A virtual channel has credits for as many messages as a connection holds, plus those whose
 * credits are returned together, so queues are bounded. Every rank inside a call takes in all
 * messages, so no virtual channel waits for another.
 *
 * Everything is sent from slots of the connection, never from the caller's memory, because a
 * communicator may fail and return buffers while others still use the connection.
 */
#ifndef COLLI_COMM_MUX_MUX_H
#define COLLI_COMM_MUX_MUX_H

#include <stdbool.h>

#include "coll/coll_transport.h"

#define COLLI_MUX_CHANNEL COLLI_CHANNELS /* of the connections: behind the executor's */

typedef struct colli_family colli_family;
typedef struct colli_mux colli_mux;
typedef struct colli_mux_child colli_mux_child; /* one communicator's part; a coll_endpoint */

/* The transport operations of virtual channels over a transport's connections. The endpoint of
 * connect() is a colli_mux_child. */
const coll_transport_ops *colli_mux_ops_over(const coll_transport_ops *below);

/* For a family whose ranks are known; NULL: out of memory. */
colli_mux *colli_mux_create(colli_family *family, size_t slot_bytes, unsigned slot_count);

/* Ends all connections; the communicators were closed before. NULL is fine. */
void colli_mux_destroy(colli_mux *mux);

/* Takes in arrived messages, and sends delayed ones: 1 if anything moved, also in other calls since
 * the last one. */
int colli_mux_progress(colli_mux *mux);

/* Begins a communicator and gives it a number. NULL if out of memory, or if all numbers are in
 * use. */
colli_mux_child *colli_mux_begin(colli_mux *mux);
int colli_mux_number(const colli_mux_child *child);

/*
 * Completes it: base_ranks[r] is rank r's number in the family, numbers[r] that rank's number for
 * the communicator, and ranks_of the inverse of base_ranks. The caller keeps the arrays alive.
 */
coll_status colli_mux_complete(colli_mux_child *child, int nranks, const int32_t *base_ranks,
                               const int32_t *ranks_of, const uint16_t *numbers);

/* Closes it, complete or not: tells the peers, and frees it. NULL is fine. */
void colli_mux_close(colli_mux_child *child);

/* It failed: drops further messages for it. NULL is fine. */
void colli_mux_mute(colli_mux_child *child);

#endif
