/* shards.c: the parameters cut into shards; who serves them, and who works. */
#include "trainer/strategies/shards.h"

#include <stdlib.h>

int shards_servers(const options *o, int nranks) {
  return o->servers ? (int)o->servers : nranks;
}

bool shards_open(shards *s, worker *w, fail *why) {
  size_t ranks = (size_t)w->nranks;
  *s = (shards){.count = (size_t)shards_servers(w->o, w->nranks)};
  s->server = calloc(ranks, sizeof(*s->server));
  s->worker = calloc(ranks, sizeof(*s->worker));
  s->version = calloc(s->count, sizeof(*s->version));
  s->kept = calloc(s->count, sizeof(*s->kept));
  if (!s->server || !s->worker || !s->version || !s->kept)
    return fail_memory(why, "the list of servers");
  return shards_assign(s, w, why);
}

void shards_close(shards *s) {
  free(s->server);
  free(s->worker);
  free(s->version);
  free(s->kept);
  *s = (shards){.count = 0};
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
static coll_status was_server(const worker *w, int r, bool *yes) {
  int all = 0, origin = -1, mine = -1;
  coll_status status = coll_comm_nranks(w->given, &all);
  *yes = false;
  if (status == COLL_OK)
    status = coll_comm_origin_rank(w->comm, r, &mine);
  for (int i = all - (int)w->o->servers; status == COLL_OK && i < all; i++) {
    status = coll_comm_origin_rank(w->given, i, &origin);
    *yes = *yes || origin == mine;
  }
  return status;
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
  for (int r = 0; r < w->nranks; r++) {
    bool serves;
    coll_status status = was_server(w, r, &serves);
    if (status != COLL_OK)
      return fail_coll(why, w->comm, status, "asking for the first ranks");
    if (serves)
      s->server[s->servers++] = r;
    else
      s->worker[s->workers++] = r;
  }
  list_all(s->server, &s->servers, w->nranks);
  list_all(s->worker, &s->workers, w->nranks);
  s->seat = -1;
  for (int i = 0; i < s->workers; i++)
    if (s->worker[i] == w->rank)
      s->seat = i;
  for (size_t j = 0; j < s->count; j++)
    s->kept[j] = shards_server(s, j) == w->rank || shards_replica(s, j) == w->rank;
  return worker_fit_parts(w, s->workers, why);
}

/* What a rank tells about a shard after a loss: the larger, the newer its copy; of equally new ones
 * that which has the velocity, too. */
static uint64_t newness(const shards *s, size_t j) {
  return 2 * s->version[j] + s->kept[j];
}

/* Gives all ranks the newest copy of shard j; column j of `table` has the newness of everybody's.
 */
static bool share_shard(shards *s, worker *w, size_t j, const uint64_t *table, fail *why) {
  shard r = shards_range(s, w, j);
  size_t columns = s->count + 1;
  int best = 0;
  for (int k = 1; k < w->nranks; k++)
    if (table[(size_t)k * columns + j] > table[(size_t)best * columns + j])
      best = k;
  if (!worker_share_part(w, best, r.first, r.count, why))
    return false;
  s->version[j] = table[(size_t)best * columns + j] / 2;
  s->kept[j] = true;
  return true;
}

/* Compares what the ranks have: a row of `table` for each rank, and one more for this rank's. */
static bool compare_copies(shards *s, worker *w, uint64_t *table, fail *why) {
  size_t columns = s->count + 1;
  uint64_t *mine = table + (size_t)w->nranks * columns;
  for (size_t j = 0; j < s->count; j++)
    mine[j] = newness(s, j);
  mine[s->count] = w->epochs_done;
  coll_status status = coll_allgather(mine, table, columns, COLL_UINT64, w->comm);
  if (status != COLL_OK)
    return fail_coll(why, w->comm, status, "comparing the shards");
  for (size_t j = 0; j < s->count; j++)
    if (!share_shard(s, w, j, table, why))
      return false;
  for (int r = 0; r < w->nranks; r++)
    if (table[(size_t)r * columns + s->count] > w->epochs_done)
      w->epochs_done = table[(size_t)r * columns + s->count];
  return true;
}

bool shards_share_newest(shards *s, worker *w, fail *why) {
  uint64_t *table = calloc((size_t)w->nranks + 1, (s->count + 1) * sizeof(*table));
  if (!table)
    return fail_memory(why, "the versions of the shards");
  bool ok = compare_copies(s, w, table, why);
  free(table);
  if (!ok)
    return false;
  uint64_t oldest = UINT64_MAX;
  for (size_t j = 0; j < s->count; j++)
    oldest = s->version[j] < oldest ? s->version[j] : oldest;
  w->step = (size_t)(oldest - w->epochs_done * loader_steps(&w->loader));
  w->updates = oldest;
  return true;
}
