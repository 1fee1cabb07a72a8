/*
 * twice.c: a rank of a launcher's job. It makes two communicators from its environment, one after
 * the other, and adds up over each. With the argument "fork", a forked child must be refused a
 * connection to the launcher. Prints "RANK of NRANKS: ok".
 */
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "coll/coll.h"

/* A communicator from the environment gives the right sum. */
static int adds_up(int *rank, int *nranks) {
  coll_comm *comm;
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 0;
  coll_comm_rank(comm, rank);
  coll_comm_nranks(comm, nranks);
  int mine = *rank + 1, sum = 0;
  coll_status status = coll_allreduce(&mine, &sum, 1, COLL_INT32, COLL_SUM, comm);
  return coll_comm_destroy(&comm) == COLL_OK && status == COLL_OK &&
         sum == *nranks * (*nranks + 1) / 2;
}

/* A forked child is refused. */
static int child_refused(void) {
  pid_t child = fork();
  if (child == 0) {
    coll_comm *comm;
    _exit(coll_init_from_env(&comm, NULL) == COLL_ERR_INVALID_USAGE ? 0 : 1);
  }
  int status;
  return child > 0 && waitpid(child, &status, 0) == child && status == 0;
}

int main(int argc, char **argv) {
  int rank = -1, nranks = 0;
  if (!adds_up(&rank, &nranks) || !adds_up(&rank, &nranks))
    return 1;
  if (argc > 1 && strcmp(argv[1], "fork") == 0 && !child_refused())
    return 2;
  printf("%d of %d: ok\n", rank, nranks);
  return 0;
}
