/*
 * direct_party.h: ranks that are threads and share a GPU reach each other's buffers. So one of them
 * puts the work of all into its stream, which reads and writes each buffer once:
 *
 *   each rank: an event -> all meet -> the first rank that goes on: waits for all events, kernels,
 *   the party's event -> the other ranks: wait for that event
 *
 * Calls that this does not suit go through slots (direct_call.h) after the same meet: buffers on
 * the host, on another device or not aligned for kernels that fold; buffers that overlap otherwise
 * than in place; sums in the order of a tree. More ranks than kernels take as arguments have no
 * party.
 *
 * Only here does a stream write to other ranks' buffers. A rank that fails says so first, under the
 * party's lock: then nobody works for it any more, or its stream waits until that is done; unless
 * the driver holds the rank that works for longer than the reason of a failure is awaited.
 */
#ifndef COLLI_STREAM_DIRECT_PARTY_H
#define COLLI_STREAM_DIRECT_PARTY_H

#include "libcoll/stream/direct_round.h"

/* Makes a party with one user. The device is entered. Errors: NO_MEMORY, SYSTEM. */
coll_status colli_direct_party_make(const colli_cuda *cuda, int device, colli_direct_party **out,
                                    coll_error *error);

/* One user more, or less: the last one frees it. The device is entered. Any thread. */
void colli_direct_party_join(colli_direct_party *party);
void colli_direct_party_leave(colli_direct_party *party, const colli_cuda *cuda);

/*
 * Lets the ranks meet, and puts the work of all into one rank's stream. *served: whether it suits
 * the call; if not, the ranks have met, and nothing else. Errors: those of the communicator, which
 * has failed then; TIMEOUT (the driver holds the rank that does the work), SYSTEM.
 */
coll_status colli_direct_party_put(colli_direct_round *r, bool *served);

#endif
