/*
 * ring.c: a number travels once around all ranks, and each adds its own. Messages are matched by
 * sender and tag.
 *
 *   collrun -n 4 ./ring
 */
#include <stdio.h>

#include "coll/coll.h"

enum { TAG = 7 };

int main(void) {
  coll_comm *comm;
  int rank, nranks;
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 1; /* libcoll has printed why on standard error */
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  int next = (rank + 1) % nranks, previous = (rank + nranks - 1) % nranks;

  long long number = 0;
  coll_status status = COLL_OK;
  if (rank == 0) { /* starts, and gets the number back at the end; one rank sends to itself */
    status =
        coll_sendrecv(&number, 1, next, TAG, &number, 1, previous, TAG, COLL_INT64, NULL, comm);
  } else {
    status = coll_recv(&number, 1, COLL_INT64, previous, TAG, NULL, comm);
    number += rank;
    if (status == COLL_OK)
      status = coll_send(&number, 1, COLL_INT64, next, TAG, comm);
  }
  if (status != COLL_OK) {
    fprintf(stderr, "rank %d: %s\n", rank, coll_status_name(status));
    return 1;
  }
  if (rank == 0)
    printf("around %d ranks: %lld\n", nranks, number);
  return coll_comm_destroy(&comm) != COLL_OK;
}
