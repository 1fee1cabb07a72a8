/* expr.c: reduction expressions, each kept once. */
#include "libcoll/verify/expr.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"

#define LEAF  (-2) /* in `right` */
#define FINAL (-3)

static uint64_t mix(uint64_t a, uint64_t b) {
  colli_prng prng = {a ^ (b * 0xd6e8feb86659fd93ull)};
  return colli_prng_next(&prng);
}

/* The random number of a rank. */
static void rank_number(int rank, uint64_t number[2]) {
  number[0] = mix(1, (uint64_t)rank);
  number[1] = mix(2, (uint64_t)rank);
}

/* a += b, 128 bits. */
static void add(uint64_t a[2], const uint64_t b[2]) {
  a[0] += b[0];
  a[1] += b[1] + (a[0] < b[0]);
}

static size_t hash(const colli_expr *e) {
  uint64_t ends = (uint64_t)(uint32_t)e->left << 32 | (uint32_t)e->right;
  return (size_t)mix(ends, (uint64_t)(uint32_t)e->chunk << 16 | (uint16_t)e->pass);
}

static bool equal(const colli_expr *a, const colli_expr *b) {
  return a->left == b->left && a->right == b->right && a->chunk == b->chunk && a->pass == b->pass;
}

/* Doubles the arrays. */
static bool grow(colli_exprs *exprs) {
  int32_t room = exprs->room ? 2 * exprs->room : 256;
  colli_expr *node = realloc(exprs->node, (size_t)room * sizeof(*node));
  if (!node)
    return false;
  exprs->node = node;
  int32_t *table = malloc(2 * (size_t)room * sizeof(*table));
  if (!table)
    return false;
  free(exprs->table);
  exprs->table = table;
  exprs->room = room;
  exprs->mask = 2 * (size_t)room - 1;
  memset(table, 0xff, 2 * (size_t)room * sizeof(*table));
  for (int32_t id = 0; id < exprs->count; id++) {
    size_t at = hash(&node[id]) & exprs->mask;
    while (table[at] >= 0)
      at = (at + 1) & exprs->mask;
    table[at] = id;
  }
  return true;
}

/* The id of an expression, old or new. */
static int32_t intern(colli_exprs *exprs, const colli_expr *e) {
  if (exprs->count == exprs->room && !grow(exprs))
    return -1;
  size_t at = hash(e) & exprs->mask;
  for (; exprs->table[at] >= 0; at = (at + 1) & exprs->mask)
    if (equal(&exprs->node[exprs->table[at]], e))
      return exprs->table[at];
  exprs->table[at] = exprs->count;
  exprs->node[exprs->count] = *e;
  return exprs->count++;
}

/* A rank's own piece of the vector. */
int32_t colli_expr_leaf(colli_exprs *exprs, int rank, int chunk, int pass) {
  colli_expr e = {.left = rank,
                  .right = LEAF,
                  .chunk = chunk,
                  .pass = (int16_t)pass,
                  .ordered = true,
                  .first = rank,
                  .last = rank,
                  .count = 1};
  rank_number(rank, e.sum);
  return intern(exprs, &e);
}

/* left op right. */
int32_t colli_expr_op(colli_exprs *exprs, int32_t left, int32_t right) {
  const colli_expr *a = &exprs->node[left], *b = &exprs->node[right];
  colli_expr e = {.left = left, .right = right, .chunk = a->chunk, .pass = a->pass};
  e.ordered = a->ordered && b->ordered && a->last + 1 == b->first;
  e.first = a->first;
  e.last = b->last;
  e.count = a->count + b->count;
  memcpy(e.sum, a->sum, sizeof(e.sum));
  add(e.sum, b->sum);
  return intern(exprs, &e);
}

/* An expression, marked as complete. */
int32_t colli_expr_final(colli_exprs *exprs, int32_t of) {
  colli_expr e = exprs->node[of];
  e.left = of;
  e.right = FINAL;
  e.final = true;
  return intern(exprs, &e);
}

/* Whether the expression holds each of nranks ranks exactly once. */
bool colli_expr_whole(const colli_exprs *exprs, int32_t id, int nranks) {
  const colli_expr *e = &exprs->node[id];
  if (e->count != (uint32_t)nranks)
    return false;
  uint64_t sum[2] = {0, 0};
  for (int rank = 0; rank < nranks; rank++) {
    uint64_t number[2];
    rank_number(rank, number);
    add(sum, number);
  }
  return sum[0] == e->sum[0] && sum[1] == e->sum[1];
}

void colli_exprs_free(colli_exprs *exprs) {
  free(exprs->node);
  free(exprs->table);
}
