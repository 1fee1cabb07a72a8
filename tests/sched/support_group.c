/* support_group.c: the schedules of all ranks of a shape. */
#include "support_group.h"

#include <stdlib.h>
#include <string.h>

group group_make(const colli_algo *algo, int nranks, int root) {
  group all = {nranks, calloc((size_t)nranks, sizeof(colli_sched *))};
  for (int rank = 0; rank < nranks; rank++) {
    colli_shape shape = {.coll = algo->coll, .nranks = nranks, .rank = rank, .root = root};
    coll_status status = all.sched ? algo->emit(&shape, &all.sched[rank]) : COLL_ERR_NO_MEMORY;
    if (status != COLL_OK) {
      fprintf(stderr, "%s %s: no schedule for rank %d of %d, root %d: status %d\n",
              colli_coll_name(algo->coll), algo->name, rank, nranks, root, status);
      exit(1);
    }
  }
  return all;
}

void group_free(group *all) {
  for (int rank = 0; rank < all->nranks; rank++)
    colli_sched_free(all->sched[rank]);
  free(all->sched);
}

colli_sched *sched_copy(const colli_sched *sched) {
  colli_sched *copy = malloc(colli_sched_bytes(sched));
  if (!copy)
    abort();
  *copy = *sched;
  copy->steps = (colli_step *)(copy + 1);
  memcpy(copy->steps, sched->steps, (size_t)sched->nsteps * sizeof(colli_step));
  return copy;
}

coll_status group_verify(const group *all, int slots, bool in_place, int passes, char *why) {
  colli_verify_options options = {.slots = slots, .in_place = in_place, .passes = passes};
  return colli_verify((const colli_sched *const *)all->sched, all->nranks, &options, why, 256);
}
