/* recover.c: goes on without a rank that was lost. */
#include "trainer/recover.h"

#include "trainer/strategies/strategy.h"

#include <stdio.h>
#include <stdlib.h>

/* Makes a communicator of the ranks that are left; the one before it is not destroyed yet. */
static bool shrink(worker *w, fail *why) {
  coll_comm *rest = NULL;
  coll_status status = coll_comm_shrink(w->comm, NULL, &rest);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "going on without a lost rank");
  w->comm = rest;
  status = coll_comm_rank(rest, &w->rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(rest, &w->nranks);
  return status == COLL_OK || fail_coll(why, rest, status, "asking for the rank");
}

/* How far a rank came. */
typedef struct place {
  uint64_t epoch, step, keeper;
} place;

/* Whether `a` came further than `b`. */
static bool further(const place *a, const place *b) {
  if (a->epoch != b->epoch)
    return a->epoch > b->epoch;
  return a->step != b->step ? a->step > b->step : a->keeper > b->keeper;
}

/* The first rank that came furthest, and its place. */
static bool furthest(worker *w, int *rank, place *best, fail *why) {
  place mine = {w->epochs_done, w->step, w->keeper}, *all = calloc((size_t)w->nranks, sizeof(*all));
  if (!all)
    return fail_memory(why, "the ranks' progress");
  coll_status status =
      coll_allgather(&mine, all, sizeof(mine) / sizeof(uint64_t), COLL_UINT64, w->comm);
  *rank = 0;
  for (int r = 1; status == COLL_OK && r < w->nranks; r++)
    if (further(&all[r], &all[*rank]))
      *rank = r;
  *best = all[*rank];
  free(all);
  return status == COLL_OK || fail_coll(why, w->comm, status, "comparing progress");
}

bool recover_restart(worker *w, fail *why) {
  const strategy *s = w->o->strategy;
  place best = {0, 0, 0};
  int from = 0;
  s->close(w);
  if ((s->check && !s->check(w, why)) || !furthest(w, &from, &best, why) ||
      !worker_share_model(w, from, why))
    return false;
  w->epochs_done = best.epoch;
  w->step = (size_t)best.step;
  return worker_fit(w, why) && s->open(w, why);
}

bool recover(worker *w, fail *why) {
  const strategy *s = w->o->strategy;
  coll_comm *old = w->comm;
  int lost = why->lost_rank, before = w->nranks;
  char story[sizeof(why->text)];
  snprintf(story, sizeof(story), "%s", why->text);
  *why = (fail){.text = ""};
  bool ok = shrink(w, why) && (s->recover ? s->recover : recover_restart)(w, why);
  if (old != w->comm && old != w->given)
    coll_comm_destroy(&old);
  if (!ok)
    return false;
  progress_open(&w->progress, w->rank, w->o->quiet || w->o->json, w->o->epochs, w->epochs_done,
                w->data->train.count);
  progress_say(&w->progress, "rank %d of %d is lost, %d go%s on from step %zu of epoch %zu: %s",
               lost, before, w->nranks, w->nranks == 1 ? "es" : "", w->step + 1,
               (size_t)w->epochs_done + 1, story);
  return true;
}
