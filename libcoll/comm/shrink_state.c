/* shrink_state.c: the state that a communicator keeps for a shrink. */
#include "libcoll/comm/shrink_state.h"

#include <stdlib.h>

#include "libcoll/comm/comm.h"

/* Shares the listener or meeting point of `comm`. */
void colli_shrink_share(coll_comm *child, const coll_comm *comm) {
  child->shrink =
      (colli_shrink){.listener = comm->shrink.listener, .meeting = comm->shrink.meeting};
  colli_shrink_listener_acquire(child->shrink.listener);
  if (child->shrink.meeting)
    colli_meeting_acquire(child->shrink.meeting);
}

/* Notes who the ranks were. */
bool colli_shrink_note_origins(coll_comm *child, const coll_comm *comm, const int *members) {
  child->map.origins = malloc((size_t)child->nranks * sizeof(*child->map.origins));
  for (int rank = 0; child->map.origins && rank < child->nranks; rank++) {
    int origin = members[rank];
    coll_comm_origin_rank(comm, members[rank], &origin);
    child->map.origins[rank] = origin;
  }
  return child->map.origins != NULL;
}

/* The communicator is destroyed. */
void colli_shrink_close(coll_comm *comm) {
  colli_shrink_listener_release(comm->shrink.listener);
  if (comm->shrink.meeting)
    colli_meeting_leave(comm->shrink.meeting, comm->comm_id, comm->rank, comm->nranks);
}
