/* rank_table.c: packs the records of ranks, and unpacks them. */
#include "libcoll/wireup/rank_table.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"

#define RECORD_BYTES sizeof(colli_rank_info)
#define RUN_MOST     255 /* bytes that one run leaves out, or has */
#define GAP_LEAST    3   /* as many equal bytes end a run: it takes two to begin the next */

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

/* Writes what differs between a record and its base to `out`, unless that is NULL. Returns how many
 * bytes it takes. */
static size_t write_runs(const uint8_t *base, const uint8_t *record, uint8_t *out) {
  size_t used = 0;
  for (size_t at = 0; at < RECORD_BYTES;) {
    size_t skip = count_equal(base, record, at);
    at += skip;
    if (at == RECORD_BYTES)
      break;
    for (; skip > RUN_MOST; skip -= RUN_MOST, used += 2)
      if (out)
        memcpy(out + used, (uint8_t[]){RUN_MOST, 0}, 2);
    const size_t count = count_run(base, record, at);
    if (out) {
      memcpy(out + used, (uint8_t[]){(uint8_t)skip, (uint8_t)count}, 2);
      memcpy(out + used + 2, record + at, count);
    }
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

/* Finds the base of each rank; false if out of memory. */
static bool find_bases(const colli_rank_info *records, int nranks, entry *entries) {
  resident *all = malloc((size_t)nranks * sizeof(*all));
  for (int rank = 0; all && rank < nranks; rank++)
    all[rank] = (resident){records[rank].host_id, rank};
  if (all)
    qsort(all, (size_t)nranks, sizeof(*all), by_host);
  for (int i = 0, first = 0; all && i < nranks; i++) {
    if (all[i].host_id != all[first].host_id)
      first = i;
    entries[all[i].rank].base = (uint32_t)all[first].rank;
  }
  free(all);
  return all != NULL;
}

/* Packs records: *bytes of them. NULL: out of memory. */
static unsigned char *pack(const colli_rank_info *records, int nranks, size_t *bytes) {
  static const colli_rank_info nothing;
  const size_t head = (size_t)nranks * sizeof(entry);
  entry *entries = malloc(head);
  unsigned char *packed = NULL;
  size_t end = 0;
  bool made = entries && find_bases(records, nranks, entries);
  for (int pass = 0; made && pass < 2; pass++) { /* counts, then writes */
    end = 0;
    for (int rank = 0; rank < nranks; rank++) {
      const int first = (int)entries[rank].base;
      const colli_rank_info *base = first < rank ? &records[first] : rank ? records : &nothing;
      end += write_runs((const uint8_t *)base, (const uint8_t *)&records[rank],
                        packed ? packed + head + end : NULL);
      entries[rank].end = (uint32_t)end;
    }
    if (!packed)
      made = (packed = malloc(head + end)) != NULL;
  }
  if (packed)
    memcpy(packed, entries, head);
  free(entries);
  *bytes = head + end;
  return packed;
}

/* ---- unpacking ------------------------------------------------------------------------------- */

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
      memcpy(record + at, runs + used, count);
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

colli_rank_info colli_rank_at(const colli_rank_table *table, int rank) {
  COLLI_ASSERT(rank >= 0 && rank < table->nranks);
  colli_rank_info info;
  memset(&info, 0, sizeof(info));
  const int chain[] = {0, colli_rank_host(table, rank), rank};
  for (int i = 0, before = -1; i < 3; before = chain[i++]) {
    if (chain[i] == before)
      continue;
    size_t bytes;
    const uint8_t *runs = runs_of(table, chain[i], &bytes);
    (void)read_runs(runs, bytes, (uint8_t *)&info); /* was checked when it came */
  }
  return info;
}

int colli_rank_host(const colli_rank_table *table, int rank) {
  COLLI_ASSERT(rank >= 0 && rank < table->nranks);
  return (int)entry_of(table, rank).base;
}

colli_rank_info *colli_rank_table_unpack(const colli_rank_table *table) {
  colli_rank_info *records = malloc((size_t)table->nranks * sizeof(*records));
  for (int rank = 0; records && rank < table->nranks; rank++)
    records[rank] = colli_rank_at(table, rank);
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
  size_t bytes;
  unsigned char *packed = pack(records, table->nranks, &bytes);
  if (!packed)
    return false;
  free(table->packed);
  table->packed = packed;
  table->bytes = bytes;
  return true;
}

bool colli_rank_table_fits(int nranks, size_t bytes) {
  const size_t n = (size_t)nranks;
  /* A run takes two bytes more than it has, and leaves at least three out. */
  return bytes >= n * sizeof(entry) && bytes <= n * (sizeof(entry) + 2 * RECORD_BYTES);
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
