/* shrink_state.c: the state that a communicator keeps for a shrink. */
#include "libcoll/comm/shrink_state.h"

#include <stdlib.h>

#include "libcoll/comm/comm.h"

/* Shares the listener or meeting point of `comm`. */
void colli_shrink_share(coll_comm *child, const coll_comm *comm) {
  child->shrink = (colli_shrink){.listener = comm->shrink.listener,
                                 .meeting = comm->shrink.meeting,
                                 .epoch = comm->shrink.epoch,
                                 .origins_used = comm->shrink.origins_used};
  colli_shrink_listener_acquire(child->shrink.listener);
  if (child->shrink.meeting)
    colli_meeting_acquire(child->shrink.meeting);
}

int32_t colli_shrink_next_origin(const coll_comm *comm) {
  return comm->shrink.origins_used ? comm->shrink.origins_used : comm->family->nranks;
}

bool colli_shrink_inherit(coll_comm *child, const coll_comm *comm, const int *members,
                          int nmembers) {
  int32_t next = colli_shrink_next_origin(comm);
  child->map.origins = malloc((size_t)child->nranks * sizeof(*child->map.origins));
  if (!child->map.origins)
    return false;
  for (int rank = 0; rank < child->nranks; rank++)
    if (rank < nmembers)
      coll_comm_origin_rank(comm, members[rank], &child->map.origins[rank]);
    else
      child->map.origins[rank] = next++;
  child->shrink.origins_used = next;
  child->shrink.epoch = comm->shrink.epoch + 1;
  return true;
}

/* The communicator is destroyed. */
void colli_shrink_close(coll_comm *comm) {
  colli_shrink_listener_release(comm->shrink.listener);
  colli_entrance_close(comm->shrink.entrance);
  if (comm->shrink.meeting)
    colli_meeting_leave(comm->shrink.meeting, comm->comm_id, comm->rank, comm->nranks);
}
