/* recover.c: continues after a rank is lost, with those that are left. */
#include "trainer/recover.h"

#include "trainer/strategies/strategy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

/* Makes a communicator of the ranks that are left, and keeps the old one. */
static bool shrink(worker *w, fail *why) {
  coll_comm *rest = NULL, **old = realloc(w->old, (w->olds + 1) * sizeof(*old));
  if (!old)
    return fail_memory(why, "another communicator");
  w->old = old;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  coll_status status = coll_comm_shrink(w->comm, &config, &rest);
  if (status == COLL_ERR_TIMEOUT)
    return fail_set(why,
                    "this rank did not answer in time, and the others continued without it "
                    "(COLL_TIMEOUT_MS, COLL_CREATE_TIMEOUT_MS): %s",
                    error.message);
  if (status != COLL_OK)
    return fail_set(why, "continuing without a lost rank: %s: %s", coll_status_name(status),
                    error.message);
  w->old[w->olds++] = w->comm;
  w->comm = rest;
  status = coll_comm_rank(rest, &w->rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(rest, &w->nranks);
  return status == COLL_OK || fail_coll(why, rest, status, "asking for the rank");
}

void recover_forget(worker *w) {
  for (size_t i = 0; i < w->olds; i++)
    if (w->old[i] != w->given)
      coll_comm_destroy(&w->old[i]);
  free(w->old);
  w->old = NULL;
  w->olds = 0;
}

/* How far a rank has come. */
typedef struct place {
  uint64_t epoch, step, keeper;
} place;

/* Whether `a` is ahead of `b`. */
static bool further(const place *a, const place *b) {
  if (a->epoch != b->epoch)
    return a->epoch > b->epoch;
  return a->step != b->step ? a->step > b->step : a->keeper > b->keeper;
}

/* The first of the ranks that are furthest ahead, and its place. */
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

/* Names the ranks of `before` that are not in w->comm, such as "1, 3". Returns how many they are.
 */
static int name_lost(const worker *w, const coll_comm *before, char *names, size_t size) {
  int all = 0, lost = 0, next = 0, was = 0, is = 0;
  size_t used = 0;
  names[0] = '\0';
  coll_comm_nranks(before, &all);
  for (int r = 0; r < all; r++) { /* a shrink keeps the order */
    coll_comm_origin_rank(before, r, &was);
    bool left = next < w->nranks && coll_comm_origin_rank(w->comm, next, &is) == COLL_OK;
    if (left && was == is) {
      next++;
      continue;
    }
    if (used + 16 < size)
      used += (size_t)snprintf(names + used, size - used, "%s%d", lost ? ", " : "", r);
    lost++;
  }
  return lost;
}

/* Says who is lost and where the others continue. `story`: the first error message of the loss. */
static void report(worker *w, const coll_comm *before, const char *story) {
  char names[200], where[64];
  int lost = name_lost(w, before, names, sizeof(names)), left = w->nranks;
  if (w->step < loader_steps(&w->loader))
    snprintf(where, sizeof(where), "step %zu of epoch %" PRIu64, w->step + 1, w->epochs_done + 1);
  else
    snprintf(where, sizeof(where), "the test after epoch %" PRIu64, w->epochs_done + 1);
  progress_open(&w->progress, w->rank, w->o->quiet || w->o->json, w->o->epochs, w->epochs_done,
                w->data->train.count);
  if (lost == 0)
    progress_say(&w->progress, "no rank is lost, all %d continue from %s: %s", left, where, story);
  else
    progress_say(&w->progress, "rank%s %s of %d %s lost, %d continue%s from %s: %s",
                 lost == 1 ? "" : "s", names, lost + left, lost == 1 ? "is" : "are", left,
                 left == 1 ? "s" : "", where, story);
}

bool recover(worker *w, fail *why) {
  const strategy *s = w->o->strategy;
  const coll_comm *before = w->comm;
  char story[sizeof(why->text)];
  snprintf(story, sizeof(story), "%s", why->text);
  for (bool ok = false; !ok;) {
    if (!why->lost || !(s->bits & STRATEGY_ELASTIC))
      return false;
    *why = (fail){.text = ""};
    ok = shrink(w, why) && (s->recover ? s->recover : recover_restart)(w, why);
  }
  report(w, before, story);
  recover_forget(w);
  return true;
}
