/* recover.c: goes on without a rank that was lost. */
#include "trainer/recover.h"

#include "trainer/strategies/strategy.h"

#include <stdio.h>
#include <stdlib.h>

/* Replaces the communicator by one of the ranks that are left. */
static bool shrink(worker *w, fail *why) {
  coll_comm *rest = NULL;
  coll_status status = coll_comm_shrink(w->comm, NULL, &rest);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "going on without a lost rank");
  if (w->comm != w->given)
    coll_comm_destroy(&w->comm);
  w->comm = rest;
  status = coll_comm_rank(rest, &w->rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(rest, &w->nranks);
  return status == COLL_OK || fail_coll(why, rest, status, "asking for the rank");
}

/* The first rank that came furthest; its place in the run becomes this rank's. */
static bool furthest(worker *w, int *rank, fail *why) {
  typedef struct place {
    uint64_t epoch, step;
  } place;
  place mine = {w->epochs_done, w->step}, *all = calloc((size_t)w->nranks, sizeof(*all));
  if (!all)
    return fail_memory(why, "the ranks' progress");
  coll_status status = coll_allgather(&mine, all, 2, COLL_UINT64, w->comm);
  *rank = 0;
  for (int r = 1; status == COLL_OK && r < w->nranks; r++)
    if (all[r].epoch > all[*rank].epoch ||
        (all[r].epoch == all[*rank].epoch && all[r].step > all[*rank].step))
      *rank = r;
  w->epochs_done = all[*rank].epoch;
  w->step = (size_t)all[*rank].step;
  free(all);
  return status == COLL_OK || fail_coll(why, w->comm, status, "comparing progress");
}

/* Gives all ranks the weights of one of them. */
static bool share(worker *w, int from, fail *why) {
  size_t count = w->model.params;
  coll_status status = coll_broadcast(w->params, w->params, count, COLL_FLOAT32, from, w->comm);
  if (status == COLL_OK)
    status = coll_broadcast(w->velocity, w->velocity, count, COLL_FLOAT32, from, w->comm);
  return status == COLL_OK || fail_coll(why, w->comm, status, "sharing the weights");
}

bool recover(worker *w, fail *why) {
  const strategy *s = w->o->strategy;
  int from = 0, lost = why->lost_rank, before = w->nranks;
  char story[sizeof(why->text)];
  snprintf(story, sizeof(story), "%s", why->text);
  *why = (fail){.text = ""};
  s->close(w);
  if (!shrink(w, why) || !worker_fit(w, why) || !furthest(w, &from, why) || !share(w, from, why) ||
      !s->open(w, why))
    return false;
  progress_open(&w->progress, w->rank, w->o->quiet, w->o->epochs, w->epochs_done,
                w->data->train.count);
  progress_say(&w->progress, "rank %d of %d is lost, %d go%s on from step %zu of epoch %zu: %s",
               lost, before, w->nranks, w->nranks == 1 ? "es" : "", w->step + 1,
               (size_t)w->epochs_done + 1, story);
  return true;
}
