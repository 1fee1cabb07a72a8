/* killed_coll.c: libcoll for tests/chaos/peers/run. Usage: killed_coll FOLDER allreduce|broadcast
 */
#include <stdlib.h>

#include "coll/coll.h"
#include "killed.h"

static float data[KILLED_LONG], sum[KILLED_SHORT];

static coll_status operate(const char *what, coll_comm *comm) {
  if (strcmp(what, "broadcast") == 0)
    return coll_broadcast(data, data, KILLED_LONG, COLL_FLOAT32, 0, comm);
  return coll_allreduce(data, sum, KILLED_SHORT, COLL_FLOAT32, COLL_SUM, comm);
}

/* What a program does to continue after a failure. */
static int go_on(int rank, coll_comm *comm, const char *what) {
  coll_comm *smaller = NULL;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  int nranks;
  coll_status status = coll_comm_shrink(comm, &config, &smaller);
  coll_comm_destroy(&comm);
  for (int i = 0; i < KILLED_MORE && status == COLL_OK; i++)
    status = operate(what, smaller);
  if (status == COLL_OK) {
    coll_comm_nranks(smaller, &nranks);
    printf("on %d %d\n", rank, nranks);
  } else {
    printf("off %d %s\n", rank, error.message);
  }
  coll_comm_destroy(&smaller);
  return status != COLL_OK;
}

int main(int argc, char **argv) {
  coll_comm *comm;
  int rank;
  if (argc != 3 || coll_init_from_env(&comm, NULL) != COLL_OK)
    return 2;
  coll_comm_rank(comm, &rank);
  killed_begin(argv[1], rank);
  for (long round = 0;; round++) {
    double since = killed_now();
    if (operate(argv[2], comm) != COLL_OK) {
      coll_error error = COLL_ERROR_INIT;
      coll_last_error(comm, &error);
      killed_error(rank, since, error.message);
      return go_on(rank, comm, argv[2]);
    }
    if (round == 0)
      printf("round %d\n", rank);
  }
}
