/* support_shrink.c: what ranks do with a communicator before and after a shrink. */
#include "support_shrink.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/wireup/id.h"

/* All-reduces over a communicator, and checks the result and the order of ranks. */
coll_status go_on(coll_comm *comm, int old_rank, int *mask, bool *right) {
  int rank, nranks, olds[MOST], bit = 1 << old_rank, sum = 0;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  *right = false;
  coll_status status = coll_allgather(&old_rank, olds, 1, COLL_INT32, comm);
  for (int i = 0; i < 20 && status == COLL_OK; i++)
    status = coll_allreduce(&bit, &sum, 1, COLL_INT32, COLL_SUM, comm);
  static float buf[MOST][30000];
  for (size_t i = 0; i < 30000; i++)
    buf[old_rank][i] = (float)bit;
  if (status == COLL_OK)
    status = coll_allreduce(buf[old_rank], buf[old_rank], 30000, COLL_FLOAT32, COLL_SUM, comm);
  if (status != COLL_OK)
    return status;
  int expected = 0;
  *right = olds[rank] == old_rank && buf[old_rank][29999] == (float)sum;
  for (int r = 0; r < nranks; r++) {
    *right = *right && (r == 0 || olds[r] > olds[r - 1]);
    expected |= 1 << olds[r];
  }
  *right = *right && expected == sum;
  *mask = sum;
  return COLL_OK;
}

/* All-reduces until it fails, or `rounds` times. */
coll_status reduce_for(coll_comm *comm, size_t count, int rounds) {
  float *buf = calloc(count, sizeof(*buf));
  coll_status status = COLL_OK;
  for (int i = 0; i < rounds && status == COLL_OK; i++)
    status = coll_allreduce(buf, buf, count, COLL_FLOAT32, COLL_SUM, comm);
  free(buf);
  return status;
}

void change_secret(coll_id *id) {
  id->bytes[40] ^= 1;
  const uint32_t check = colli_id_check(id);
  memcpy(id->bytes + 4, &check, sizeof(check));
}
