/* ranks.c: checks that all ranks agree, and continues after a rank is lost or one joins. */
#include "trainer/ranks.h"

#include "trainer/strategies/strategy.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- agreement ------------------------------------------------------------------------------ */

/* What every rank tells the others before training. */
typedef struct notice {
  uint64_t ok, asked, data; /* whether it can begin; fingerprints of its options and data */
  char text[488];
} notice;

/* Gathers `bytes` bytes of each rank; the caller frees the result. NULL: see why. */
static void *gather(coll_comm *comm, const void *mine, size_t bytes, int *nranks, fail *why) {
  coll_comm_nranks(comm, nranks);
  void *all = calloc((size_t)*nranks, bytes);
  if (!all)
    fail_memory(why, "the ranks' reports");
  else if (succeeded(why, comm, coll_allgather(mine, all, bytes, COLL_UINT8, comm),
                     "comparing the ranks"))
    return all;
  free(all);
  return NULL;
}

/* Finds the first rank that cannot begin or begins something else. */
static bool compare_reports(const notice *all, int nranks, fail *why) {
  int failed = 0, others = 0;
  while (failed < nranks && all[failed].ok)
    failed++;
  if (failed < nranks) {
    for (int r = 0; r < nranks; r++)
      others += strcmp(all[r].text, all[failed].text) != 0;
    return others ? fail_set(why, "rank %d: %s", failed, all[failed].text)
                  : fail_set(why, "%s", all[failed].text);
  }
  for (int r = 1; r < nranks; r++) {
    if (all[r].asked != all[0].asked)
      return fail_set(why,
                      "rank %d was started with different options than rank 0: give all ranks the "
                      "same",
                      r);
    if (all[r].data != all[0].data)
      return fail_set(why, "rank %d has different data than rank 0: compare the --data files", r);
  }
  return true;
}

bool agree_start(coll_comm *comm, bool ok, uint64_t asked, uint64_t data, fail *why) {
  int nranks = 0;
  notice mine = {.ok = ok, .asked = asked, .data = data};
  if (!ok)
    snprintf(mine.text, sizeof(mine.text), "%.*s", (int)sizeof(mine.text) - 1, why->text);
  notice *all = gather(comm, &mine, sizeof(mine), &nranks, why);
  if (!all)
    return false;
  ok = compare_reports(all, nranks, why);
  why->everywhere = !ok;
  free(all);
  return ok;
}

size_t agree_reference(const uint64_t *values, size_t count) {
  size_t best = 0, most = 0;
  for (size_t i = 0; i < count; i++) {
    size_t same = 0;
    for (size_t j = 0; j < count; j++)
      same += values[j] == values[i];
    if (same > most) {
      most = same;
      best = i;
    }
  }
  return best;
}

bool agree_weights(coll_comm *comm, uint64_t hash, fail *why) {
  int nranks = 0;
  uint64_t *all = gather(comm, &hash, sizeof(hash), &nranks, why);
  if (!all)
    return false;
  size_t reference = agree_reference(all, (size_t)nranks);
  char names[160] = "";
  size_t used = 0;
  for (int r = 0; r < nranks; r++)
    if (all[r] != all[reference] && used + 16 < sizeof(names))
      used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%d", used ? ", " : "", r);
  free(all);
  if (used == 0)
    return true;
  why->everywhere = true;
  return fail_set(why,
                  "the weights of rank %s differ from those of rank %zu, but all must be equal "
                  "bit for bit: suspect the memory of that machine, or a bug in the library",
                  names, reference);
}

bool agree_state(worker *w, fail *why) {
  uint64_t place[] = {w->epochs_done, w->step};
  coll_status status = coll_broadcast(place, place, 2, COLL_UINT64, 0, w->comm);
  w->epochs_done = place[0];
  w->step = (size_t)place[1];
  return succeeded(why, w->comm, status, "sharing the initial weights") &&
         worker_share_model(w, 0, why) &&
         agree_weights(w->comm, hash_bytes(HASH_START, w->params, w->model.params * sizeof(float)),
                       why);
}

/* ---- recovery ------------------------------------------------------------------------------- */

/* Makes a communicator of the ranks that are left and those that join, and keeps the old one. */
static bool replace(worker *w, fail *why) {
  coll_comm *rest = NULL, **old = realloc(w->old, (w->olds + 1) * sizeof(*old));
  if (!old)
    return fail_memory(why, "another communicator");
  w->old = old;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  coll_status status = w->o->join_file ? coll_comm_grow(w->comm, &config, &rest)
                                       : coll_comm_shrink(w->comm, &config, &rest);
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
  coll_comm_rank(rest, &w->rank);
  coll_comm_nranks(rest, &w->nranks);
  return true;
}

void recover_forget(worker *w) {
  for (size_t i = 0; i < w->olds; i++)
    if (w->old[i] != w->given)
      coll_comm_destroy(&w->old[i]);
  free(w->old);
  w->old = NULL;
  w->olds = 0;
}

/* Whether all ranks that are left had begun to train. */
static bool all_ready(worker *w, bool *ready, fail *why) {
  int32_t mine = w->ready, all = 0;
  coll_status status = coll_allreduce(&mine, &all, 1, COLL_INT32, COLL_MIN, w->comm);
  *ready = all;
  return succeeded(why, w->comm, status, "comparing progress");
}

/* The first of the ranks that are furthest ahead, and its place: epochs and steps. */
static bool furthest(worker *w, int *rank, uint64_t *place, fail *why) {
  uint64_t ranks = (uint64_t)w->nranks, last = ranks - 1, most = 0;
  uint64_t here = (2 * (w->epochs_done << 32 | w->step) + w->keeper) * ranks;
  uint64_t mine = here + last - (uint64_t)w->rank;
  coll_status status = coll_allreduce(&mine, &most, 1, COLL_UINT64, COLL_MAX, w->comm);
  *rank = (int)(last - most % ranks);
  *place = most / ranks / 2;
  return succeeded(why, w->comm, status, "comparing progress");
}

bool recover_restart(worker *w, fail *why) {
  const strategy *s = w->o->strategy;
  uint64_t place = 0;
  int from = 0;
  worker_close(w);
  if ((s->check && !s->check(w, why)) || !furthest(w, &from, &place, why) ||
      !worker_share_model(w, from, why))
    return false;
  w->epochs_done = place >> 32;
  w->step = place & UINT32_MAX;
  return worker_fit(w, w->nranks, why) && worker_open(w, why);
}

/* Names the ranks of `before` that are not in w->comm, such as "1, 3". Returns how many. */
static int name_lost(const worker *w, const coll_comm *before, char *names, size_t size) {
  int all = 0, lost = 0, was = 0, is = 0;
  size_t used = 0;
  names[0] = '\0';
  coll_comm_nranks(before, &all);
  for (int r = 0; r < all; r++) {
    coll_comm_origin_rank(before, r, &was);
    int next = r - lost; /* the order stays */
    if (next < w->nranks && coll_comm_origin_rank(w->comm, next, &is) == COLL_OK && was == is)
      continue;
    if (used + 16 < size)
      used += (size_t)snprintf(names + used, size - used, "%s%d", lost ? ", " : "", r);
    lost++;
  }
  return lost;
}

/* Whether this rank has the options and data of rank 0: a process that has just joined may not. */
static bool fits_in(const worker *w, fail *why) {
  const uint64_t mine[] = {w->asked, w->data ? w->data->fingerprint : 0};
  uint64_t first[] = {mine[0], mine[1]};
  coll_status status = coll_broadcast(first, first, 2, COLL_UINT64, 0, w->comm);
  return succeeded(why, w->comm, status, "comparing the options") &&
         (memcmp(first, mine, sizeof(mine)) == 0 ||
          fail_set(why, "the run that this process joins has different %s: give it the same",
                   first[0] == mine[0] ? "data" : "options"));
}

/* In a new communicator: puts all ranks at one place with one model; or finds that not all had
 * begun to train, which is no failure. */
static bool settle_down(worker *w, bool *ready, fail *why) {
  const strategy *s = w->o->strategy;
  return fits_in(w, why) && all_ready(w, ready, why) &&
         (!*ready || (s->recover ? s->recover : recover_restart)(w, why));
}

/* Says who is lost and where the others continue. `story`: the first error message of the loss. */
static void report(worker *w, const coll_comm *before, const char *story) {
  char names[200], where[64];
  int lost = name_lost(w, before, names, sizeof(names)), left = w->nranks, was = 0;
  coll_comm_nranks(before, &was);
  int joined = left + lost - was;
  if (!w->ready)
    snprintf(where, sizeof(where), "the beginning");
  else if (w->step < loader_steps(&w->loader))
    snprintf(where, sizeof(where), "step %zu of epoch %" PRIu64, w->step + 1, w->epochs_done + 1);
  else
    snprintf(where, sizeof(where), "the test after epoch %" PRIu64, w->epochs_done + 1);
  worker_open_progress(w);
  if (joined > 0)
    progress_say(&w->progress, "%d process%s joined", joined, joined == 1 ? "" : "es");
  if (lost == 0 && joined > 0)
    progress_say(&w->progress, "all %d continue from %s", left, where);
  else if (lost == 0)
    progress_say(&w->progress, "no rank is lost, all %d continue from %s: %s", left, where, story);
  else
    progress_say(&w->progress, "rank%s %s of %d %s lost, %d continue%s from %s: %s",
                 lost == 1 ? "" : "s", names, was, lost == 1 ? "is" : "are", left,
                 left == 1 ? "s" : "", where, story);
}

/* The new rank 0 lets others join. If it cannot, the run goes on all the same. */
static void offer_again(worker *w) {
  fail why = {.text = ""};
  if (!join_offer(w, &why))
    progress_say(&w->progress, "nobody can join any more: %s", why.text);
}

bool recover(worker *w, fail *why) {
  const coll_comm *before = w->comm;
  char story[sizeof(why->text)];
  bool ready = false;
  snprintf(story, sizeof(story), "%s", why->text);
  for (bool ok = false; !ok;) {
    if (!why->lost || !(w->o->strategy->bits & STRATEGY_ELASTIC))
      return false;
    *why = (fail){.text = ""};
    ok = replace(w, why) && settle_down(w, &ready, why);
  }
  w->ready = ready;
  if (!ready)
    worker_close(w);
  report(w, before, story);
  offer_again(w);
  recover_forget(w);
  return true;
}

/* ---- joining -------------------------------------------------------------------------------- */

bool join_offer(worker *w, fail *why) {
  const char *path = w->o->join_file;
  char name[PATH_MAX];
  struct stat info;
  coll_id id;
  if (!path || w->rank != 0)
    return true;
  if (!succeeded(why, w->comm, coll_comm_join_id(w->comm, &id), "opening the run to others"))
    return false;
  if (snprintf(name, sizeof(name), "%s.XXXXXX", path) >= (int)sizeof(name))
    return fail_set(why, "%.200s...: the path is too long", path);
  int fd = mkostemp(name, O_CLOEXEC); /* nobody else may read it */
  bool ok = fd >= 0 && write(fd, &id, sizeof(id)) == (ssize_t)sizeof(id) && fstat(fd, &info) == 0;
  ok = fd >= 0 && close(fd) == 0 && ok && rename(name, path) == 0;
  if (ok) {
    w->offer = info;
    return true;
  }
  int error = errno;
  if (fd >= 0)
    unlink(name);
  return fail_set(why, "%s: writing: %s", path, strerror(error));
}

void join_end(const worker *w) {
  struct stat now;
  if (!w->o->join_file || !w->offer.st_ino || stat(w->o->join_file, &now) != 0)
    return;
  /* The others may have gone on without this rank, and then the file is theirs. */
  if (now.st_ino == w->offer.st_ino && now.st_mtim.tv_sec == w->offer.st_mtim.tv_sec &&
      now.st_mtim.tv_nsec == w->offer.st_mtim.tv_nsec)
    unlink(w->o->join_file);
}

bool join_ask(worker *w, fail *why) {
  int32_t waiting = 0;
  if (w->o->join_file && !succeeded(why, w->comm, coll_comm_joiners(w->comm, &waiting), "joining"))
    return false;
  coll_status status = coll_broadcast(&waiting, &waiting, 1, COLL_INT32, 0, w->comm);
  w->waiting = waiting;
  return succeeded(why, w->comm, status, "meeting rank 0");
}

bool join_nobody(worker *w, fail *why) {
  if (w->waiting == 0)
    return true;
  w->waiting = 0;
  fail_set(why, "processes wait to join");
  why->lost = true;
  return false;
}

bool recover_joined(worker *w, fail *why) {
  bool ready = false;
  w->ready = true; /* it does not keep the others from going on */
  if (!settle_down(w, &ready, why))
    return recover(w, why);
  w->ready = ready;
  if (!ready)
    worker_close(w);
  worker_open_progress(w);
  return true;
}
