/*
 * mux.h: the connections of communicators that were split from others: many *virtual channels* over
 * one connection for each pair of ranks, which is made when first needed. The mux decorates the
 * transports as the fault injector does, and is itself a transport to the executor.
 *
 * A virtual channel is (communicator, peer, channel). Each rank numbers its communicators by
 * itself, and its peers put its number into what they send: nothing needs to be agreed on, and
 * threads that split several communicators at once do not wait for each other. Number, channel and
 * kind of a message travel in bits of the tag that the executor's tags leave free.
 *
 * A message for another virtual channel than the one that is polled is copied to that one's queue.
 * So is a message that slot_peek() shows: it stays where it is until slot_release(), while the
 * connection goes on for the others. Only recv() takes messages straight from the connection.
 *
 * A virtual channel has credits for as many messages as a connection holds, and for those whose
 * credits are returned together, so queues are bounded. Every rank that is in a call takes in all
 * messages: no virtual channel waits for another.
 *
 * Everything is sent from slots of the connection, never from the caller's memory: a communicator
 * may fail, and give buffers back, while the connection goes on for the others.
 */
#ifndef COLLI_COMM_MUX_MUX_H
#define COLLI_COMM_MUX_MUX_H

#include <stdbool.h>

#include "coll/coll_transport.h"

#define COLLI_MUX_CHANNEL COLLI_CHANNELS /* of the connections: behind the executor's */

typedef struct colli_family colli_family;
typedef struct colli_mux colli_mux;
typedef struct colli_mux_child colli_mux_child; /* one communicator's part; a coll_endpoint */

/* The operations of virtual channels over connections of a transport. The endpoint that connect()
 * takes is a colli_mux_child. */
const coll_transport_ops *colli_mux_ops_over(const coll_transport_ops *below);

/* For a family whose ranks are known; NULL: out of memory. */
colli_mux *colli_mux_create(colli_family *family, size_t slot_bytes, unsigned slot_count);

/* Ends all connections; the communicators were closed before. NULL is fine. */
void colli_mux_destroy(colli_mux *mux);

/* Takes in what has arrived, and sends what was left: 1 if anything moved, also in other calls
 * since the last one. */
int colli_mux_progress(colli_mux *mux);

/* Begins a communicator: gives it a number. NULL: out of memory, or if all numbers are taken. */
colli_mux_child *colli_mux_begin(colli_mux *mux);
int colli_mux_number(const colli_mux_child *child);

/*
 * Completes it: base_ranks[r] is rank r's number in the family, numbers[r] what that rank calls the
 * communicator, ranks_of the way back. The arrays stay the caller's and must live as long.
 */
coll_status colli_mux_complete(colli_mux_child *child, int nranks, const int32_t *base_ranks,
                               const int32_t *ranks_of, const uint16_t *numbers);

/* Ends it, complete or not: tells the peers, and frees it. NULL is fine. */
void colli_mux_close(colli_mux_child *child);

/* It failed: drops what arrives for it from now on. NULL is fine. */
void colli_mux_mute(colli_mux_child *child);

#endif
