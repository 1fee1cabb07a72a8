/*
 * levels.h: how a long call in a stream is divided among the ranks of a group, where GPUs reach
 * each other but not those of other groups. Its parts follow each other in the stream:
 *
 *   all-reduce   reduce-scatter within the group -> all-reduce of this rank's piece across groups
 *                -> all-gather within the group
 *   broadcast    in the root's group: broadcast within it -> this rank's piece across groups;
 *                elsewhere: this rank's piece across groups -> all-gather within the group
 *   all-gather   of the ranks with the same place, across groups -> for each group, all-gather of
 *                its blocks within this rank's
 *
 * Only what goes across is staged, so each rank copies one piece through host memory. Pieces are in
 * the result's buffer from the beginning, so nothing else is needed.
 */
#ifndef COLLI_STREAM_LEVELS_H
#define COLLI_STREAM_LEVELS_H

#include "libcoll/call/call.h"

/*
 * Whether a checked call is divided: all ranks find the same, wherever their buffers are. It is
 * long enough (each rank's piece is at least as long as a part of a staged call), and its result
 * does not depend on the order of combination where that is promised.
 */
bool colli_levels_takes(const coll_comm *comm, const colli_call *call);

/* How many parts it has on this rank. */
int colli_levels_count(const coll_comm *comm, const colli_call *call);

/* Describes the i-th part, and the communicator that makes it. `tables` has room for
 * COLLI_LEVELS_TABLES numbers for each rank of the part, to which the part points. */
#define COLLI_LEVELS_TABLES 2
coll_comm *colli_levels_part(const coll_comm *comm, const colli_call *call, int i, size_t *tables,
                             colli_call *part);

#endif
