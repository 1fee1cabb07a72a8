/*
 * survivor.c: a rank that makes all-reduces until one fails, continues with those who are left, and
 * says on standard output what becomes of it: "running" after the first all-reduce, "failed at: S"
 * (seconds since the machine started), then "continues: N ranks" or "ends: STATUS". Run by
 * partition.sh.
 */
#include <stdio.h>
#include <time.h>

#include "coll/coll.h"

/* All-reduces of 1 until one fails, at most `most`; the last sum. */
static int reduce_until_failure(coll_comm *comm, long most) {
  int one = 1, sum = 0, last = 0;
  for (long i = 0; i < most && coll_allreduce(&one, &sum, 1, COLL_INT32, COLL_SUM, comm) == COLL_OK;
       i++) {
    if (last == 0)
      puts("running");
    last = sum;
  }
  return last;
}

int main(void) {
  coll_comm *comm, *left;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 1;
  reduce_until_failure(comm, 1L << 60);
  struct timespec now;
  clock_gettime(CLOCK_BOOTTIME, &now);
  printf("failed at: %lld.%03ld\n", (long long)now.tv_sec, now.tv_nsec / 1000000);
  coll_status status = coll_comm_shrink(comm, NULL, &left);
  coll_comm_destroy(&comm);
  if (status != COLL_OK) {
    printf("ends: %s\n", coll_status_name(status));
    return 0;
  }
  printf("continues: %d ranks\n", reduce_until_failure(left, 100));
  return coll_comm_destroy(&left) != COLL_OK;
}
