/* rank_table.c: packs the records of ranks, and unpacks them. */
#include "libcoll/wireup/rank_table.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"

#define RECORD_BYTES sizeof(colli_rank_info)
#define RUN_MOST     255 /* bytes that one run leaves out, or has */
#define GAP_LEAST    3   /* as many equal bytes end a run: it takes two to begin the next */
#define RUNS_MOST    (2 * RECORD_BYTES) /* of one record: a run takes two bytes more than it has */

_Static_assert(RECORD_BYTES % sizeof(uint64_t) == 0, "is compared by words, and has no padding");

/*
 * A packed table: an entry for each rank, and then what differs, of one rank after the other. What
 * differs is in runs: how many bytes are as in the base, how many are not, and these.
 */
typedef struct entry {
  uint32_t base; /* the first rank on its host, from whose record this one differs; the first
                  * one's own differs from rank 0's, and that from 0 */
  uint32_t end;  /* of what differs, counted from the end of the entries */
} entry;

/* An entry of a packed table, which need not be aligned for it. */
static entry entry_of(const colli_rank_table *table, int rank) {
  entry found;
  memcpy(&found, table->packed + (size_t)rank * sizeof(found), sizeof(found));
  return found;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* How many bytes from `at` on are equal. */
static size_t count_equal(const uint8_t *a, const uint8_t *b, size_t at) {
  const size_t begin = at;
  for (; at + sizeof(uint64_t) <= RECORD_BYTES; at += sizeof(uint64_t)) {
    uint64_t left, right;
    memcpy(&left, a + at, sizeof(left));
    memcpy(&right, b + at, sizeof(right));
    if (left != right)
      break;
  }
  while (at < RECORD_BYTES && a[at] == b[at])
    at++;
  return at - begin;
}

/* How many bytes from `at` on belong to one run. */
static size_t count_run(const uint8_t *a, const uint8_t *b, size_t at) {
  size_t count = 0, equal = 0; /* at its end */
  while (at + count < RECORD_BYTES && count < RUN_MOST && equal < GAP_LEAST) {
    equal = a[at + count] == b[at + count] ? equal + 1 : 0;
    count++;
  }
  return count - equal;
}

/* Writes what differs between a record and its base to `out`. Returns how many bytes it takes. */
static size_t write_runs(const uint8_t *base, const uint8_t *record, uint8_t *out) {
  size_t used = 0;
  for (size_t at = 0; at < RECORD_BYTES;) {
    size_t skip = count_equal(base, record, at);
    at += skip;
    if (at == RECORD_BYTES)
      break;
    for (; skip > RUN_MOST; skip -= RUN_MOST, used += 2)
      memcpy(out + used, (uint8_t[]){RUN_MOST, 0}, 2);
    const size_t count = count_run(base, record, at);
    memcpy(out + used, (uint8_t[]){(uint8_t)skip, (uint8_t)count}, 2);
    memcpy(out + used + 2, record + at, count);
    used += 2 + count;
    at += count;
  }
  return used;
}

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
} packing;

static packing begin_packing(int nranks) {
  const size_t head = (size_t)nranks * sizeof(entry);
  return (packing){.head = head, .used = head, .room = head, .packed = malloc(head)};
}

/* Frees what is left of a packing that failed. False. */
static bool give_up(packing *p) {
  free(p->packed);
  p->packed = NULL;
  return false;
}

/* Adds a rank whose record is to differ from that of the first one on its host, from rank 0's or
 * from nothing: `base`. False if out of memory. */
static bool pack_record(packing *p, int rank, int host, const colli_rank_info *base,
                        const colli_rank_info *record) {
  if (p->used + RUNS_MOST > p->room) {
    const size_t more = 2 * p->used + RUNS_MOST;
    unsigned char *larger = realloc(p->packed, more);
    if (!larger)
      return give_up(p);
    p->packed = larger;
    p->room = more;
  }
  p->used += write_runs((const uint8_t *)base, (const uint8_t *)record, p->packed + p->used);
  const entry at = {(uint32_t)host, (uint32_t)(p->used - p->head)};
  memcpy(p->packed + (size_t)rank * sizeof(at), &at, sizeof(at));
  return true;
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
  return true;
}

static const colli_rank_info nothing;

/* ---- unpacking ------------------------------------------------------------------------------- */

/* Copies a run. Most have a few bytes, for which a call of memcpy() takes longer than the copy. */
static inline void copy_run(uint8_t *to, const uint8_t *from, size_t count) {
  size_t at = 0;
  for (; at + sizeof(uint64_t) <= count; at += sizeof(uint64_t))
    memcpy(to + at, from + at, sizeof(uint64_t));
  if (count & 4)
    memcpy(to + at, from + at, 4), at += 4;
  if (count & 2)
    memcpy(to + at, from + at, 2), at += 2;
  if (count & 1)
    to[at] = from[at];
}

/* Puts the bytes of some runs into a record, unless that is NULL. False: the runs are damaged. */
static bool read_runs(const uint8_t *runs, size_t bytes, uint8_t *record) {
  size_t at = 0;
  for (size_t used = 0; used < bytes;) {
    if (bytes - used < 2)
      return false;
    const size_t skip = runs[used], count = runs[used + 1];
    at += skip;
    used += 2;
    if (at > RECORD_BYTES || count > RECORD_BYTES - at || count > bytes - used)
      return false;
    if (record)
      copy_run(record + at, runs + used, count);
    at += count;
    used += count;
  }
  return true;
}

/* Where what differs of a rank begins, and its length. */
static const uint8_t *runs_of(const colli_rank_table *table, int rank, size_t *bytes) {
  const size_t begin = rank ? entry_of(table, rank - 1).end : 0;
  *bytes = entry_of(table, rank).end - begin;
  return table->packed + (size_t)table->nranks * sizeof(entry) + begin;
}

/* Makes a copy of the record from which a rank's differs that rank's. */
static void differ(const colli_rank_table *table, int rank, colli_rank_info *info) {
  size_t bytes;
  const uint8_t *runs = runs_of(table, rank, &bytes);
  (void)read_runs(runs, bytes, (uint8_t *)info); /* was checked when it came */
}

colli_rank_info colli_rank_at(const colli_rank_table *table, int rank) {
  COLLI_ASSERT(rank >= 0 && rank < table->nranks);
  const int host = colli_rank_host(table, rank);
  colli_rank_info info;
  memset(&info, 0, sizeof(info));
  differ(table, 0, &info);
  if (host != 0)
    differ(table, host, &info);
  if (rank != host)
    differ(table, rank, &info);
  return info;
}

colli_rank_walk colli_rank_walk_begin(const colli_rank_table *table) {
  colli_rank_walk walk = {.table = table};
  walk.first = walk.of_host = walk.info = colli_rank_at(table, 0);
  return walk;
}

/* Takes back what makes the record that a walk is at differ from that of its host. To copy all of
 * it would take several times as long. */
static void step_back(colli_rank_walk *walk) {
  size_t bytes, at = 0;
  const uint8_t *runs = runs_of(walk->table, walk->rank, &bytes);
  for (size_t used = 0; walk->rank != walk->host && used < bytes; used += 2u + runs[used + 1]) {
    at += runs[used];
    copy_run((uint8_t *)&walk->info + at, (const uint8_t *)&walk->of_host + at, runs[used + 1]);
    at += runs[used + 1];
  }
}

const colli_rank_info *colli_rank_walk_to(colli_rank_walk *walk, int rank) {
  const int host = colli_rank_host(walk->table, rank);
  if (host != walk->host) {
    walk->of_host = walk->first;
    differ(walk->table, host, &walk->of_host);
    walk->host = host;
    walk->info = walk->of_host;
  } else {
    step_back(walk);
  }
  walk->rank = rank;
  if (rank != host)
    differ(walk->table, rank, &walk->info);
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
    differ(table, rank, &records[rank]);
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
  packing p = begin_packing(table->nranks);
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

bool colli_rank_table_change(colli_rank_table *table, colli_rank_change_fn change, void *ctx) {
  packing p = begin_packing(table->nranks);
  colli_rank_walk walk = colli_rank_walk_begin(table);
  colli_rank_info first = walk.first, of_host; /* changed */
  change(ctx, 0, &first);
  of_host = first;
  for (int rank = 0, before = 0; p.packed && rank < table->nranks; rank++) {
    const int host = colli_rank_host(table, rank);
    if (host != before) {
      of_host = *colli_rank_walk_to(&walk, host);
      change(ctx, host, &of_host);
      before = host;
    }
    if (host == rank) {
      pack_record(&p, rank, host, rank ? &first : &nothing, &of_host);
      continue;
    }
    colli_rank_info info = *colli_rank_walk_to(&walk, rank);
    change(ctx, rank, &info);
    COLLI_ASSERT(info.host_id == of_host.host_id); /* so it was when it came, too */
    pack_record(&p, rank, host, &of_host, &info);
  }
  return finish_packing(&p, table);
}

bool colli_rank_table_fits(int nranks, size_t bytes) {
  const size_t n = (size_t)nranks;
  return bytes >= n * sizeof(entry) && bytes <= n * (sizeof(entry) + RUNS_MOST);
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

bool colli_rank_table_check(const colli_rank_table *table) {
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
    if (!read_runs(runs, bytes, NULL))
      return false;
    before = at.end;
  }
  return before == all;
}
