/*
 * rooms.h: reductions of elements that are longer than a slot. Such an element is a chunk by itself
 * and travels in several messages. It can be combined only as a whole, so it is collected in a
 * *room* first. A lane has one for each peer that it receives from, and fills them whatever step it
 * is at. That is the chunk of credit with which the verifier proves schedules free of deadlock, and
 * which slots give to shorter elements. Rooms are allocated before an operation starts, and freed
 * when it ends.
 */
#ifndef COLLI_EXEC_ROOMS_H
#define COLLI_EXEC_ROOMS_H

#include "libcoll/exec/exec.h"

/* Makes the rooms of an operation whose fields, except for lanes and list links, are set; false if
 * out of memory. */
bool colli_rooms_make(coll_request *op);

/* Frees an operation's rooms, and its scratch, which may be as large. */
void colli_rooms_free(coll_request *op);

/* Runs one step of a lane as far as possible: as colli_exec_step() does, or COLLI_STEP_MOVED. */
int colli_rooms_step(colli_exec *exec, colli_lane *lane, const colli_step *step);

#endif
