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
 *   reduce       reduce-scatter within the group -> reduce of this rank's piece to the root's group
 *                -> in that: gather within it
 *   reduce-      for each group, reduce-scatter of the blocks of its ranks within this rank's
 *   scatter      -> reduce-scatter of the ranks with the same place, across groups
 *
 * What goes across is staged, so each rank copies one piece through host memory, or it goes as
 * messages (levels_messages.h). With groups of one rank that is the whole call. In the first
 * three, pieces are in the result's buffer from the beginning. In the other two most ranks have no
 * buffer for them: they are in a room, and calls longer than that are made in rounds.
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
size_t colli_levels_count(const coll_comm *comm, const colli_call *call);

/* What parts use besides the call's buffers. */
typedef struct colli_levels_space {
  size_t *tables; /* COLLI_LEVELS_TABLES numbers for each rank of a part, which points to them */
  char *room;     /* colli_levels.room_bytes, in memory of this rank's GPU */
} colli_levels_space;

/* Describes the i-th part, and the communicator that makes it. */
#define COLLI_LEVELS_TABLES 2
coll_comm *colli_levels_part(const coll_comm *comm, const colli_call *call, size_t i,
                             const colli_levels_space *space, colli_call *part);

#endif
