/*
 * trainer.c: coll_train with an accident, for respawn.sh: after the second epoch, the rank that
 * VICTIM names is killed, as often as it has lives (LIVES). The others then wait after each epoch
 * until a process wants to join. What happens is the same in every run.
 */
#include <signal.h>
#include <stdlib.h>

#include "trainer/program.h"
#include "waits.h"

coll_status __real_coll_comm_joiners(coll_comm *comm, int *count);
coll_status __wrap_coll_comm_joiners(coll_comm *comm, int *count);

static int number_of(const char *name) {
  const char *text = getenv(name);
  return text ? atoi(text) : 0;
}

coll_status __wrap_coll_comm_joiners(coll_comm *comm, int *count) {
  static int epochs;
  int rank, nranks;
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  epochs++;
  if (epochs == 2 && number_of("COLL_RANK") == number_of("VICTIM") &&
      number_of("COLL_RESPAWN") < number_of("LIVES"))
    raise(SIGKILL);
  coll_status status = __real_coll_comm_joiners(comm, count);
  if (rank == 0 && nranks < number_of("COLL_NRANKS"))
    (void)WAIT_UNTIL((status = __real_coll_comm_joiners(comm, count)) != COLL_OK || *count > 0, 60);
  return status;
}

static bool load(dataset *d, const options *o, fail *why) {
  return dataset_load(d, o->data, o->context, why);
}

int main(int argc, char **argv) {
  return program_run(argc, argv, load, model_asked_for);
}
