/* shards.c: the parameters cut into shards; who serves them, and who works. */
#include "trainer/strategies/shards.h"

#include <stdlib.h>

int shards_servers(const options *o, int nranks) {
  return o->servers ? (int)o->servers : nranks;
}

bool shards_open(shards *s, worker *w, fail *why) {
  size_t ranks = (size_t)w->nranks;
  s->count = (size_t)shards_servers(w->o, w->nranks);
  return (s->server = worker_memory(w, ranks * sizeof(*s->server), why)) &&
         (s->worker = worker_memory(w, ranks * sizeof(*s->worker), why)) &&
         (s->version = worker_memory(w, s->count * sizeof(*s->version), why)) &&
         (s->kept = worker_memory(w, s->count * sizeof(*s->kept), why)) && shards_assign(s, w, why);
}

shard shards_range(const shards *s, const worker *w, size_t j) {
  return shard_of(w->model.params, (int)j, (int)s->count);
}

int shards_server(const shards *s, size_t j) {
  return s->server[j % (size_t)s->servers];
}

int shards_replica(const shards *s, size_t j) {
  return s->servers > 1 ? s->server[(j + 1) % (size_t)s->servers] : -1;
}

/* Whether rank r, of those that are left, was one of the dedicated servers at the start. */
static bool was_server(const worker *w, int r) {
  int all = 0, origin = -1, mine = -1;
  coll_comm_nranks(w->given, &all);
  coll_comm_origin_rank(w->comm, r, &mine);
  for (int i = all - (int)w->o->servers; i < all; i++)
    if (coll_comm_origin_rank(w->given, i, &origin) == COLL_OK && origin == mine)
      return true;
  return false;
}

/* Puts all ranks on a list that is empty. */
static void list_all(int *list, int *count, int nranks) {
  if (*count > 0)
    return;
  for (int r = 0; r < nranks; r++)
    list[(*count)++] = r;
}

bool shards_assign(shards *s, worker *w, fail *why) {
  s->servers = s->workers = 0;
  for (int r = 0; r < w->nranks; r++)
    if (was_server(w, r))
      s->server[s->servers++] = r;
    else
      s->worker[s->workers++] = r;
  list_all(s->server, &s->servers, w->nranks);
  list_all(s->worker, &s->workers, w->nranks);
  s->seat = -1;
  for (int i = 0; i < s->workers; i++)
    if (s->worker[i] == w->rank)
      s->seat = i;
  for (size_t j = 0; j < s->count; j++)
    s->kept[j] = shards_server(s, j) == w->rank || shards_replica(s, j) == w->rank;
  return worker_fit(w, s->workers, why);
}

/* What a rank tells about a shard after a loss: the larger, the newer its copy; of equally new ones
 * that which has the velocity, too, and of those the first rank's. */
static uint64_t newness(const shards *s, const worker *w, size_t j) {
  return (2 * s->version[j] + s->kept[j]) * (uint64_t)w->nranks +
         (uint64_t)(w->nranks - 1 - w->rank);
}

/* Gives all ranks the newest copies: `news` has the newness of each, and the epochs behind. */
static bool share_shards(shards *s, worker *w, const uint64_t *news, fail *why) {
  uint64_t ranks = (uint64_t)w->nranks, oldest = UINT64_MAX;
  for (size_t j = 0; j < s->count; j++) {
    shard r = shards_range(s, w, j);
    int best = w->nranks - 1 - (int)(news[j] % ranks);
    if (!worker_share_part(w, best, r.first, r.count, why))
      return false;
    s->version[j] = news[j] / ranks / 2;
    s->kept[j] = true;
    oldest = s->version[j] < oldest ? s->version[j] : oldest;
  }
  w->epochs_done = news[s->count];
  w->step = (size_t)(oldest - w->epochs_done * loader_steps(&w->loader));
  w->updates = oldest;
  return true;
}

bool shards_share_newest(shards *s, worker *w, fail *why) {
  uint64_t *news = calloc(s->count + 1, sizeof(*news));
  if (!news)
    return fail_memory(why, "the versions of the shards");
  for (size_t j = 0; j < s->count; j++)
    news[j] = newness(s, w, j);
  news[s->count] = w->epochs_done;
  coll_status status = coll_allreduce(news, news, s->count + 1, COLL_UINT64, COLL_MAX, w->comm);
  bool ok =
      succeeded(why, w->comm, status, "comparing the shards") && share_shards(s, w, news, why);
  free(news);
  return ok;
}
