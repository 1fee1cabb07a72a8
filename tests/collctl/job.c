/*
 * job.c: a rank of the job that tests/collctl/show.sh looks at. All ranks get far, but the last one
 * then waits in its own code, for a pipe that nobody writes to.
 */
#include <coll/coll.h>
#include <stdio.h>
#include <unistd.h>

#define COUNT 1024

static int fail(const char *what) {
  fprintf(stderr, "%s\n", what);
  return 1;
}

/* Waits until it is killed. */
static int wait_in_own_code(void) {
  int fds[2];
  char byte;
  return pipe(fds) != 0 || read(fds[0], &byte, 1) != 0;
}

int main(void) {
  coll_comm *world, *dp, *half;
  static float numbers[COUNT], sums[COUNT];
  int rank, nranks;
  if (coll_init_from_env(&world, NULL) != COLL_OK)
    return 1;
  coll_comm_rank(world, &rank);
  coll_comm_nranks(world, &nranks);
  if (coll_comm_dup(world, NULL, &dp) != COLL_OK || coll_comm_set_name(dp, "dp") != COLL_OK)
    return fail("no communicator");
  if (coll_comm_split(world, rank % 2, rank, NULL, &half) != COLL_OK ||
      coll_comm_set_name(half, rank % 2 ? "odd \"half\"" : "even half") != COLL_OK)
    return fail("no split");
  if (coll_send(&rank, 1, COLL_INT32, rank ^ 1, 7, world) != COLL_OK ||
      coll_recv(&nranks, 1, COLL_INT32, rank ^ 1, 7, NULL, world) != COLL_OK)
    return fail("no message");
  for (int i = 0; i < 100; i++)
    if (coll_allreduce(numbers, sums, COUNT, COLL_FLOAT32, COLL_SUM, dp) != COLL_OK)
      return fail("no sum");
  if (coll_broadcast(numbers, numbers, COUNT / 4, COLL_INT32, 0, dp) != COLL_OK)
    return fail("no broadcast");
  coll_comm_nranks(world, &nranks);
  if (rank == nranks - 1)
    return wait_in_own_code();
  return coll_allreduce(numbers, sums, COUNT, COLL_FLOAT32, COLL_SUM, dp) != COLL_OK;
}
