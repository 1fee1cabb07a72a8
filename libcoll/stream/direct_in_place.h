/*
 * direct_in_place.h: calls whose buffers are registered: ranks read them where they are, without
 * copies into slots and without rounds:
 *
 *   meet -> fold or copy from all buffers -> meet: all have read
 *
 * Which buffers: of all-reduce, reduce, reduce-scatter and all-to-all the inputs; of broadcast and
 * all-gather the results, into which each rank first puts its own part, which belongs there anyway.
 * (A broadcast's input is the root's alone, so that the others do not know it.) An all-gather whose
 * result is not registered reads the inputs. A long all-reduce folds a segment on each rank into
 * its own result, and all copy them from there after another meet; or from slots, if the results
 * are not registered. So no rank ever writes to another's memory, and a failure has nothing to
 * stop.
 *
 * Not the all-gather with blocks of different lengths: ranks may have them at different places (but
 * not in the parts of a call that is divided among groups). Not gather and scatter: whether the
 * root's buffer is registered, or in place, only the root knows. Not scan, exscan and all-to-all in
 * place: there a result would cover input that others read.
 *
 * A rank that fails goes on, and its stream may write to its buffers while others read them. At the
 * end of its part of a call, a stream says on its device if it goes on without the others, before
 * anything else comes; each rank looks there after it has read (colli_direct_is_torn()).
 */
#ifndef COLLI_STREAM_DIRECT_IN_PLACE_H
#define COLLI_STREAM_DIRECT_IN_PLACE_H

#include "libcoll/stream/direct_round.h"

/*
 * Finds out whether a call is done in place, the same on all ranks whose buffers are registered
 * alike, and counts it as a user of them. *meets: how often the ranks meet in slots; now, how often
 * they meet. In place only if that is no more often, which means that it would take two rounds or
 * more in most calls: a meet costs more than the copy of a short message, and in slots one will do.
 */
void colli_direct_settle_places(colli_direct_call *it, unsigned *meets);

/* The call does not use them any more. */
void colli_direct_leave_places(colli_direct_call *it);

/* Puts all parts of such a call into the stream. Errors: those of colli_direct_put_meet(). */
coll_status colli_direct_put_in_place(colli_direct_round *r);

/*
 * When all ranks have come to the end of a call: whether this rank can trust what it has read in
 * place. If not, a rank had gone on without the others before, and will say why, or end.
 */
bool colli_direct_is_torn(const colli_direct_call *it);

#endif
