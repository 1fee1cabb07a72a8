/* rank_table.c: packs the records of ranks, and unpacks them. */
#include "libcoll/wireup/rank_table.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/wireup/rank_runs.h"

#define RECORD_BYTES sizeof(colli_rank_info)

/*
 * A packed table: an entry for each rank, and then what differs, of one rank after the other. What
 * differs is in runs: how many bytes are as in the base, how many are not, and these.
 */
typedef struct entry {
  uint32_t base; /* the first rank on its host, from whose record this one differs; the first
                  * one's own differs from rank 0's, and that from 0 */
  uint32_t end;  /* of what differs, counted from the end of the entries */
} entry;

/* From what a rank's record differs. */
static colli_rank_base base_of(int rank, int host) {
  return rank == 0      ? COLLI_RANK_FROM_NOTHING
         : rank == host ? COLLI_RANK_FROM_FIRST
                        : COLLI_RANK_FROM_HOST;
}

/* An entry of a packed table, which need not be aligned for it. */
static entry entry_of(const colli_rank_table *table, int rank) {
  entry found;
  memcpy(&found, table->packed + (size_t)rank * sizeof(found), sizeof(found));
  return found;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* A rank and its host, to be sorted. */
typedef struct resident {
  uint64_t host_id;
  int rank;
} resident;

static int by_host(const void *a, const void *b) {
  const resident *left = a, *right = b;
  if (left->host_id != right->host_id)
    return left->host_id < right->host_id ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Finds the base of each rank; NULL if out of memory. */
static int *find_bases(const colli_rank_info *records, int nranks) {
  int *base = malloc((size_t)nranks * sizeof(*base));
  resident *all = malloc((size_t)nranks * sizeof(*all));
  for (int rank = 0; all && rank < nranks; rank++)
    all[rank] = (resident){records[rank].host_id, rank};
  if (all)
    qsort(all, (size_t)nranks, sizeof(*all), by_host);
  for (int i = 0, first = 0; base && all && i < nranks; i++) {
    if (all[i].host_id != all[first].host_id)
      first = i;
    base[all[i].rank] = all[first].rank;
  }
  if (!all) {
    free(base);
    return NULL;
  }
  free(all);
  return base;
}

/* A table that is being packed, one rank after the other. */
typedef struct packing {
  size_t head;           /* bytes of entries */
  size_t used, room;     /* bytes */
  unsigned char *packed; /* NULL: out of memory */
  colli_rank_words differ[COLLI_RANK_BASES];
} packing;

/* `room`: bytes that it will take, or fewer. */
static packing begin_packing(int nranks, size_t room) {
  const size_t head = (size_t)nranks * sizeof(entry);
  room = (room > head ? room : head) + COLLI_RANK_RUNS_MOST;
  return (packing){.head = head, .used = head, .room = room, .packed = malloc(room)};
}

/* Frees what is left of a packing that failed. False. */
static bool give_up(packing *p) {
  free(p->packed);
  p->packed = NULL;
  return false;
}

/* Makes room for a rank's runs, which may fail: then nothing is packed any more. */
static void make_room(packing *p, size_t most) {
  if (!p->packed || p->used + most <= p->room)
    return;
  const size_t more = 2 * p->used + most;
  unsigned char *larger = realloc(p->packed, more);
  if (!larger) {
    give_up(p);
    return;
  }
  p->packed = larger;
  p->room = more;
}

/* Begins a rank, for which there is room: its runs are to be written. */
static colli_rank_writer begin_rank(packing *p, int rank, int host) {
  return (colli_rank_writer){.out = p->packed + p->used, .words = &p->differ[base_of(rank, host)]};
}

/* Adds a rank whose runs were written. */
static void end_rank(packing *p, int rank, int host, const colli_rank_writer *w) {
  p->used += w->used;
  const entry at = {(uint32_t)host, (uint32_t)(p->used - p->head)};
  memcpy(p->packed + (size_t)rank * sizeof(at), &at, sizeof(at));
}

/* Adds a rank whose record is to differ from that of the first one on its host, from rank 0's or
 * from nothing: `base`. */
static void pack_record(packing *p, int rank, int host, const colli_rank_info *base,
                        const colli_rank_info *record) {
  make_room(p, COLLI_RANK_RUNS_MOST);
  if (!p->packed)
    return;
  colli_rank_writer w = begin_rank(p, rank, host);
  colli_rank_runs_write(&w, base, record, 0, RECORD_BYTES);
  end_rank(p, rank, host, &w);
}

/* Puts all that was packed into a table, in place of what it had; false if out of memory, now or
 * before. */
static bool finish_packing(packing *p, colli_rank_table *table) {
  unsigned char *fitting = p->packed ? realloc(p->packed, p->used) : NULL;
  if (!fitting)
    return give_up(p);
  free(table->packed);
  table->packed = fitting;
  table->bytes = p->used;
  memcpy(table->differ, p->differ, sizeof(p->differ));
  return true;
}

static const colli_rank_info nothing;

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Where what differs of a rank begins, and its length. */
static const uint8_t *runs_of(const colli_rank_table *table, int rank, size_t *bytes) {
  const size_t begin = rank ? entry_of(table, rank - 1).end : 0;
  *bytes = entry_of(table, rank).end - begin;
  return table->packed + (size_t)table->nranks * sizeof(entry) + begin;
}

/* Makes a copy of the record from which a rank's differs that rank's. Its runs were checked when
 * they came. */
static void apply_runs(const colli_rank_table *table, int rank, colli_rank_info *info) {
  size_t bytes;
  const uint8_t *runs = runs_of(table, rank, &bytes);
  colli_rank_runs_read(runs, bytes, info);
}

colli_rank_info colli_rank_at(const colli_rank_table *table, int rank) {
  COLLI_ASSERT(rank >= 0 && rank < table->nranks);
  const int host = colli_rank_host(table, rank);
  colli_rank_info info;
  memset(&info, 0, sizeof(info));
  apply_runs(table, 0, &info);
  if (host != 0)
    apply_runs(table, host, &info);
  if (rank != host)
    apply_runs(table, rank, &info);
  return info;
}

colli_rank_walk colli_rank_walk_over(const colli_rank_table *table, size_t offset, size_t bytes) {
  colli_rank_walk walk = {
      .table = table,
      .between = colli_rank_words_has(&table->differ[COLLI_RANK_FROM_FIRST], offset, bytes),
      .within = colli_rank_words_has(&table->differ[COLLI_RANK_FROM_HOST], offset, bytes)};
  walk.first = walk.of_host = walk.info = colli_rank_at(table, 0);
  return walk;
}

colli_rank_walk colli_rank_walk_begin(const colli_rank_table *table) {
  return colli_rank_walk_over(table, 0, RECORD_BYTES);
}

const colli_rank_info *colli_rank_walk_to(colli_rank_walk *walk, int rank) {
  COLLI_ASSERT(rank >= 0 && rank < walk->table->nranks);
  if (!walk->between && !walk->within)
    return &walk->first;
  const int host = colli_rank_host(walk->table, rank);
  if (host == walk->host && !walk->within)
    return &walk->of_host;
  if (host != walk->host) {
    walk->of_host = walk->first;
    apply_runs(walk->table, host, &walk->of_host);
    walk->host = host;
    walk->info = walk->of_host;
  } else if (walk->rank != host) { /* to copy all of the host's takes several times as long */
    size_t bytes;
    const uint8_t *runs = runs_of(walk->table, walk->rank, &bytes);
    colli_rank_runs_undo(runs, bytes, &walk->of_host, &walk->info);
  }
  walk->rank = rank;
  if (rank != host)
    apply_runs(walk->table, rank, &walk->info);
  return &walk->info;
}

int colli_rank_host(const colli_rank_table *table, int rank) {
  COLLI_ASSERT(rank >= 0 && rank < table->nranks);
  return (int)entry_of(table, rank).base;
}

colli_rank_info *colli_rank_table_unpack(const colli_rank_table *table) {
  colli_rank_info *records = malloc((size_t)table->nranks * sizeof(*records));
  if (records)
    records[0] = colli_rank_at(table, 0);
  for (int rank = 1; records && rank < table->nranks; rank++) {
    const int host = colli_rank_host(table, rank); /* comes before it */
    records[rank] = records[host < rank ? host : 0];
    apply_runs(table, rank, &records[rank]);
  }
  return records;
}

/* ---- tables ---------------------------------------------------------------------------------- */

colli_rank_table *colli_rank_table_create(const colli_rank_info *records, int nranks) {
  colli_rank_table *table = calloc(1, sizeof(*table));
  if (!table)
    return NULL;
  table->nranks = nranks;
  if (colli_rank_table_replace(table, records))
    return table;
  free(table);
  return NULL;
}

void colli_rank_table_free(colli_rank_table *table) {
  if (!table)
    return;
  free(table->packed);
  free(table);
}

bool colli_rank_table_replace(colli_rank_table *table, const colli_rank_info *records) {
  int *bases = find_bases(records, table->nranks);
  packing p = begin_packing(table->nranks, table->bytes);
  if (!bases)
    return give_up(&p);
  for (int rank = 0; p.packed && rank < table->nranks; rank++) {
    const int host = bases[rank];
    const colli_rank_info *base = host < rank ? &records[host] : rank ? records : &nothing;
    pack_record(&p, rank, host, base, &records[rank]);
  }
  free(bases);
  return finish_packing(&p, table);
}

/* A change of some fields of all records. */
typedef struct rank_change {
  const colli_rank_table *table; /* as it was */
  size_t from, to;               /* where these fields are */
  colli_rank_change_fn change;
  void *ctx;
} rank_change;

/* Adds a rank that was in a table, with other values in the fields that change. */
static void pack_changed(packing *p, const rank_change *c, int rank, const colli_rank_info *base,
                         const colli_rank_info *record) {
  size_t bytes;
  const uint8_t *runs = runs_of(c->table, rank, &bytes);
  make_room(p, bytes + COLLI_RANK_RUNS_MOST); /* runs that came from a peer may be any */
  if (!p->packed)
    return;
  const int host = colli_rank_host(c->table, rank);
  colli_rank_writer w = begin_rank(p, rank, host);
  colli_rank_runs_rewrite(&w, runs, bytes, 0, c->from);
  colli_rank_runs_write(&w, base, record, c->from, c->to);
  colli_rank_runs_rewrite(&w, runs, bytes, c->to, RECORD_BYTES);
  end_rank(p, rank, host, &w);
}

/* Gets a rank's fields that change, changed; the others stay as they are in `info`. */
static void get_changed(const rank_change *c, colli_rank_walk *walk, int rank,
                        colli_rank_info *info) {
  const uint8_t *known = (const uint8_t *)colli_rank_walk_to(walk, rank);
  memcpy((uint8_t *)info + c->from, known + c->from, c->to - c->from);
  c->change(c->ctx, rank, info);
}

bool colli_rank_table_change(colli_rank_table *table, size_t offset, size_t bytes,
                             colli_rank_change_fn change, void *ctx) {
  const rank_change c = {table, offset, offset + bytes, change, ctx};
  packing p = begin_packing(table->nranks, table->bytes);
  colli_rank_walk walk = colli_rank_walk_over(table, offset, bytes);
  colli_rank_info first = nothing, of_host, info = nothing;
  get_changed(&c, &walk, 0, &first);
  of_host = first;
  for (int rank = 0, before = 0; p.packed && rank < table->nranks; rank++) {
    const int host = colli_rank_host(table, rank);
    if (host != before)
      get_changed(&c, &walk, host, &of_host);
    before = host;
    if (host != rank)
      get_changed(&c, &walk, rank, &info);
    pack_changed(&p, &c, rank,
                 host != rank ? &of_host
                 : rank       ? &first
                              : &nothing,
                 host != rank ? &info : &of_host);
  }
  return finish_packing(&p, table);
}

bool colli_rank_table_fits(int nranks, size_t bytes) {
  const size_t n = (size_t)nranks;
  return bytes >= n * sizeof(entry) && bytes <= n * (sizeof(entry) + COLLI_RANK_RUNS_MOST);
}

colli_rank_table *colli_rank_table_receive(int nranks, size_t bytes) {
  COLLI_ASSERT(colli_rank_table_fits(nranks, bytes));
  colli_rank_table *table = malloc(sizeof(*table));
  if (!table)
    return NULL;
  *table = (colli_rank_table){.nranks = nranks, .bytes = bytes, .packed = malloc(bytes)};
  if (table->packed)
    return table;
  free(table);
  return NULL;
}

bool colli_rank_table_check(colli_rank_table *table) {
  colli_rank_words differ[COLLI_RANK_BASES] = {0};
  const size_t all = table->bytes - (size_t)table->nranks * sizeof(entry);
  uint32_t before = 0;
  for (int rank = 0; rank < table->nranks; rank++) {
    const entry at = entry_of(table, rank);
    const bool is_first =
        at.base <= (uint32_t)rank && entry_of(table, (int)at.base).base == at.base;
    size_t bytes;
    if (!is_first || at.end < before || at.end > all)
      return false;
    const uint8_t *runs = runs_of(table, rank, &bytes);
    if (!colli_rank_runs_check(runs, bytes, &differ[base_of(rank, (int)at.base)]))
      return false;
    before = at.end;
  }
  memcpy(table->differ, differ, sizeof(differ));
  return before == all;
}
