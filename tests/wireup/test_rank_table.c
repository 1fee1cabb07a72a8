/* test_rank_table.c: tables of ranks keep every byte of every record, however they differ, take
 * little memory where ranks are alike, and refuse damaged bytes. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "libcoll/base/prng.h"
#include "libcoll/wireup/rank_table.h"

#define MOST 300

/* Changes some bytes of a record, in runs of any length. */
static void change(colli_prng *prng, colli_rank_info *info) {
  uint8_t *bytes = (uint8_t *)info;
  for (uint64_t runs = colli_prng_below(prng, 20); runs > 0; runs--) {
    const size_t at = colli_prng_below(prng, sizeof(*info));
    size_t count = colli_prng_below(prng, colli_prng_below(prng, 10) ? 12 : sizeof(*info)) + 1;
    count = count < sizeof(*info) - at ? count : sizeof(*info) - at;
    for (size_t i = 0; i < count; i++)
      bytes[at + i] = (uint8_t)colli_prng_below(prng, 256);
  }
}

/* Fills in records of ranks on hosts, which differ a little or a lot, or on each host not at all.
 */
static void fill(colli_prng *prng, colli_rank_info *all, int nranks) {
  const uint64_t hosts = colli_prng_below(prng, (uint64_t)nranks) + 1;
  const bool alike = colli_prng_below(prng, 2), by_host = colli_prng_below(prng, 2);
  memset(all, 0, (size_t)nranks * sizeof(*all));
  for (int rank = 0; rank < nranks; rank++) {
    const uint64_t host = colli_prng_below(prng, hosts);
    int mate = 0;
    while (mate < rank && all[mate].host_id != host)
      mate++;
    if (alike)
      all[rank] = all[by_host && mate < rank ? mate : 0];
    else if (rank > 0 && colli_prng_below(prng, 4))
      all[rank] = all[colli_prng_below(prng, (uint64_t)rank)];
    if (!alike || rank == 0)
      change(prng, &all[rank]);
    else if (!by_host || mate == rank)
      all[rank].host[colli_prng_below(prng, sizeof(all->host))] ^= (char)(rank % 3);
    all[rank].host_id = host;
  }
}

/* Some bytes of records, with which some ranks' are replaced. */
typedef struct replacement {
  const colli_rank_info *all;
  size_t offset, bytes;
} replacement;

/* A colli_rank_change_fn. */
static void replace(void *ctx, int rank, colli_rank_info *info) {
  const replacement *r = ctx;
  if (rank % 3 == 0)
    memcpy((uint8_t *)info + r->offset, (const uint8_t *)&r->all[rank] + r->offset, r->bytes);
}

/* Which bytes are to change: not the host. */
static replacement choose_bytes(colli_prng *prng, const colli_rank_info *all) {
  const size_t host = offsetof(colli_rank_info, host_id), after = host + sizeof(all->host_id);
  const size_t offset = colli_prng_below(prng, sizeof(*all));
  const size_t rest = (offset < host ? host : sizeof(*all)) - offset;
  return (replacement){all, offset >= host && offset < after ? after : offset,
                       offset >= host && offset < after ? 8 : colli_prng_below(prng, rest) + 1};
}

/* A table is sound, and knows in which words records differ. */
static void expect_sound(colli_rank_table *table) {
  cr_assert(table);
  const colli_rank_table known = *table;
  cr_assert(colli_rank_table_check(table)); /* finds them anew */
  cr_assert_eq(memcmp(known.differ, table->differ, sizeof(known.differ)), 0);
}

/* Walks over some fields, in any order. */
static void expect_walk_over(colli_prng *prng, const colli_rank_table *table,
                             const colli_rank_info *all) {
  const size_t offset = colli_prng_below(prng, sizeof(*all));
  const size_t rest = sizeof(*all) - offset;
  const size_t bytes = colli_prng_below(prng, rest < 100 ? rest : 100) + 1;
  colli_rank_walk walk = colli_rank_walk_over(table, offset, bytes);
  for (int i = 0; i < table->nranks; i++) {
    const int rank = i % 3 ? i : (int)colli_prng_below(prng, (uint64_t)table->nranks);
    const uint8_t *found = (const uint8_t *)colli_rank_walk_to(&walk, rank);
    cr_assert_eq(memcmp(found + offset, (const uint8_t *)&all[rank] + offset, bytes), 0,
                 "rank %d, %zu bytes at %zu", rank, bytes, offset);
  }
}

/* Walks in any order, and changes what ranks of one host share or not. */
static void expect_walk_and_change(colli_prng *prng, colli_rank_table *table,
                                   colli_rank_info *all) {
  colli_rank_walk walk = colli_rank_walk_begin(table);
  for (int i = 0; i < 2 * table->nranks; i++) {
    const int rank = i < table->nranks ? i : (int)colli_prng_below(prng, (uint64_t)table->nranks);
    cr_assert_eq(memcmp(colli_rank_walk_to(&walk, rank), &all[rank], sizeof(*all)), 0, "rank %d",
                 rank);
  }
  replacement r = choose_bytes(prng, all);
  for (int rank = 0; rank < table->nranks; rank += 3)
    for (size_t i = 0; i < r.bytes; i++)
      if (colli_prng_below(prng, 3))
        ((uint8_t *)&all[rank])[r.offset + i] = (uint8_t)colli_prng_below(prng, 3);
  cr_assert(colli_rank_table_change(table, r.offset, r.bytes, replace, &r));
  expect_sound(table);
}

Test(rank_table, keeps_every_byte, .timeout = 120) {
  static colli_rank_info all[MOST];
  colli_prng prng = {17};
  for (int round = extent(300, 3000, 60); round > 0; round--) {
    const int nranks = (int)colli_prng_below(&prng, MOST) + 1;
    fill(&prng, all, nranks);
    colli_rank_table *table = colli_rank_table_create(all, nranks);
    expect_sound(table);
    cr_assert(colli_rank_table_fits(nranks, table->bytes));
    for (int rank = 0; rank < nranks; rank++) {
      const colli_rank_info info = colli_rank_at(table, rank);
      int first = 0;
      while (all[first].host_id != all[rank].host_id)
        first++;
      cr_assert_eq(memcmp(&info, &all[rank], sizeof(info)), 0, "round %d, rank %d of %d", round,
                   rank, nranks);
      cr_assert_eq(colli_rank_host(table, rank), first);
    }
    expect_walk_over(&prng, table, all);
    expect_walk_and_change(&prng, table, all);
    expect_walk_over(&prng, table, all);
    colli_rank_info *changed = colli_rank_table_unpack(table);
    cr_assert(changed && memcmp(changed, all, (size_t)nranks * sizeof(*all)) == 0);
    free(changed);
    change(&prng, &all[nranks / 2]);
    cr_assert(colli_rank_table_replace(table, all));
    expect_sound(table);
    expect_walk_over(&prng, table, all);
    colli_rank_info *unpacked = colli_rank_table_unpack(table);
    cr_assert(unpacked && memcmp(unpacked, all, (size_t)nranks * sizeof(*all)) == 0);
    free(unpacked);
    colli_rank_table_free(table);
  }
}

/* Records in which every byte differs, or every other run is as short as can be. */
Test(rank_table, has_room_for_the_worst_records) {
  static colli_rank_info all[3];
  for (size_t gap = 0; gap < 8; gap++) {
    for (int rank = 0; rank < 3; rank++)
      for (size_t i = 0; i < sizeof(*all); i++)
        ((uint8_t *)&all[rank])[i] = i % (gap + 1) == 0 ? (uint8_t)(rank + 1) : 0;
    colli_rank_table *table = colli_rank_table_create(all, 3);
    cr_assert(table && colli_rank_table_check(table));
    cr_assert(colli_rank_table_fits(3, table->bytes), "gap %zu: %zu bytes", gap, table->bytes);
    for (int rank = 0; rank < 3; rank++) {
      const colli_rank_info info = colli_rank_at(table, rank);
      cr_assert_eq(memcmp(&info, &all[rank], sizeof(info)), 0);
    }
    colli_rank_table_free(table);
  }
}

/* Eight ranks on each host, as a job has them: their processes, cores and ports differ. */
Test(rank_table, is_small_where_ranks_are_alike) {
  enum { RANKS = 256, HOST = 8 };
  colli_rank_info *all = calloc(RANKS, sizeof(*all));
  cr_assert(all);
  colli_prng prng = {3};
  change(&prng, &all[0]);
  for (int rank = 0; rank < RANKS; rank++) {
    all[rank] = all[0];
    const int host = rank / HOST;
    snprintf(all[rank].host, sizeof(all[rank].host), "node%03d", host);
    all[rank].host_id = 0x9e3779b97f4a7c15ull * (unsigned)(host + 1);
    all[rank].pid = 4000 + 17 * rank;
    all[rank].core = rank % HOST;
    all[rank].cpus[0] = 1ull << rank % HOST;
    for (int i = 0; i < 2; i++) {
      all[rank].control_addrs[i] = (colli_addr){.family = 4,
                                                .prefix = 16,
                                                .port = (uint16_t)(30000 + 7 * rank),
                                                .ip = {10, (uint8_t)i, 0, (uint8_t)host}};
      memcpy(all[rank].blob[0] + 24 * i, &all[rank].control_addrs[i], sizeof(colli_addr));
    }
  }
  colli_rank_table *table = colli_rank_table_create(all, RANKS);
  cr_assert(table);
  cr_expect_lt(table->bytes / RANKS, 100, "%zu bytes a rank", table->bytes / RANKS);
  colli_rank_table_free(table);
  free(all);
}

/* A member of the job may send anything instead of a table. */
Test(rank_table, refuses_damage_or_reads_what_there_is, .timeout = 120) {
  static colli_rank_info all[16];
  colli_prng prng = {5};
  int refused = 0, taken = 0;
  for (int round = extent(4000, 40000, 1000); round > 0; round--) {
    const int nranks = (int)colli_prng_below(&prng, 16) + 1;
    fill(&prng, all, nranks);
    colli_rank_table *sound = colli_rank_table_create(all, nranks);
    cr_assert(sound);
    size_t bytes = sound->bytes - colli_prng_below(&prng, 3);
    bytes = colli_rank_table_fits(nranks, bytes) ? bytes : sound->bytes;
    colli_rank_table *table = colli_rank_table_receive(nranks, bytes);
    cr_assert(table);
    memcpy(table->packed, sound->packed, bytes);
    for (uint64_t hits = colli_prng_below(&prng, 4); hits > 0; hits--)
      table->packed[colli_prng_below(&prng, colli_prng_below(&prng, 2) ? bytes : 8)] ^=
          (uint8_t)(1 << colli_prng_below(&prng, 8));
    if (colli_rank_table_check(table)) {
      colli_rank_info *read = colli_rank_table_unpack(table);
      cr_assert(read);
      taken++;
      expect_walk_over(&prng, table, read);
      replacement r = choose_bytes(&prng, all);
      cr_assert(colli_rank_table_change(table, r.offset, r.bytes, replace, &r));
      expect_sound(table);
      free(read);
    } else {
      refused++;
    }
    colli_rank_table_free(table);
    colli_rank_table_free(sound);
  }
  cr_expect_gt(refused, 0);
  cr_expect_gt(taken, 0);
}

/* A colli_rank_change_fn: the addresses of some ranks are all new. */
static void grow(void *ctx, int rank, colli_rank_info *info) {
  const int *last = ctx;
  if (rank > 0 && rank <= *last)
    memset(info->control_addrs, rank, sizeof(info->control_addrs));
}

/* Nor need its runs be as few as they can be: here one rank has as many as the others leave it. */
Test(rank_table, changes_what_is_longer_than_need_be) {
  enum { RANKS = 130, BYTES = sizeof(colli_rank_info), HEAD = RANKS * 8 };
  for (int growing = 0; growing < RANKS - 1; growing++) {
    colli_rank_table *table = colli_rank_table_receive(RANKS, HEAD + 3 * BYTES);
    cr_assert(table);
    memset(table->packed, 0, HEAD);
    memcpy(table->packed + HEAD - 4, &(uint32_t){3 * BYTES}, 4);
    for (int i = 0; i < BYTES; i++)
      memcpy(table->packed + HEAD + 3 * i, (uint8_t[]){0, 1, (uint8_t)(i % 251)}, 3);
    cr_assert(colli_rank_table_check(table));
    cr_assert(colli_rank_table_change(table, COLLI_RANK_FIELD(control_addrs), grow, &growing));
    expect_sound(table);
    const colli_rank_info last = colli_rank_at(table, RANKS - 1);
    for (size_t i = 0; i < BYTES; i++)
      cr_assert_eq(((const uint8_t *)&last)[i], i % 251);
    colli_rank_table_free(table);
  }
}
