/* expr.c: reduction expressions, each stored once. */
#include "libcoll/verify/expr.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"

#define LEAF  (-2) /* in `right` */
#define FINAL (-3)

/* A hash of two words. */
static uint64_t mix_words(uint64_t a, uint64_t b) {
  colli_prng prng = {a ^ (b * 0xd6e8feb86659fd93ull)};
  return colli_prng_next(&prng);
}

/* The random number of a rank. */
static void rank_number(int rank, uint64_t number[2]) {
  number[0] = mix_words(1, (uint64_t)rank);
  number[1] = mix_words(2, (uint64_t)rank);
}

/* a += b, 128 bits. */
static void add_128(uint64_t a[2], const uint64_t b[2]) {
  a[0] += b[0];
  a[1] += b[1] + (a[0] < b[0]);
}

/* The hash of an expression. */
static size_t hash_expr(const colli_expr *e) {
  uint64_t ends = (uint64_t)(uint32_t)e->left << 32 | (uint32_t)e->right;
  return (size_t)mix_words(ends, (uint64_t)(uint32_t)e->chunk << 16 | (uint16_t)e->pass);
}

/* Whether two expressions are the same. */
static bool equal_exprs(const colli_expr *a, const colli_expr *b) {
  return a->left == b->left && a->right == b->right && a->chunk == b->chunk && a->pass == b->pass;
}

/* Doubles the arrays. */
static bool grow_table(colli_exprs *exprs) {
  int32_t capacity = exprs->capacity ? 2 * exprs->capacity : 256;
  colli_expr *node = realloc(exprs->node, (size_t)capacity * sizeof(*node));
  if (!node)
    return false;
  exprs->node = node;
  int32_t *table = malloc(2 * (size_t)capacity * sizeof(*table));
  if (!table)
    return false;
  free(exprs->table);
  exprs->table = table;
  exprs->capacity = capacity;
  exprs->mask = 2 * (size_t)capacity - 1;
  memset(table, 0xff, 2 * (size_t)capacity * sizeof(*table));
  for (int32_t id = 0; id < exprs->count; id++) {
    size_t at = hash_expr(&node[id]) & exprs->mask;
    while (table[at] >= 0)
      at = (at + 1) & exprs->mask;
    table[at] = id;
  }
  return true;
}

/* The id of an expression, old or new. */
static int32_t intern_expr(colli_exprs *exprs, const colli_expr *e) {
  if (exprs->count == exprs->capacity && !grow_table(exprs))
    return -1;
  size_t at = hash_expr(e) & exprs->mask;
  for (; exprs->table[at] >= 0; at = (at + 1) & exprs->mask)
    if (equal_exprs(&exprs->node[exprs->table[at]], e))
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
  return intern_expr(exprs, &e);
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
  add_128(e.sum, b->sum);
  return intern_expr(exprs, &e);
}

/* An expression, marked as complete. */
int32_t colli_expr_final(colli_exprs *exprs, int32_t of) {
  colli_expr e = exprs->node[of];
  e.left = of;
  e.right = FINAL;
  e.final = true;
  return intern_expr(exprs, &e);
}

/* Whether the expression contains each of nranks ranks exactly once. */
bool colli_expr_whole(const colli_exprs *exprs, int32_t id, int nranks) {
  const colli_expr *e = &exprs->node[id];
  if (e->count != (uint32_t)nranks)
    return false;
  uint64_t sum[2] = {0, 0};
  for (int rank = 0; rank < nranks; rank++) {
    uint64_t number[2];
    rank_number(rank, number);
    add_128(sum, number);
  }
  return sum[0] == e->sum[0] && sum[1] == e->sum[1];
}

/* Frees all expressions. */
void colli_exprs_free(colli_exprs *exprs) {
  free(exprs->node);
  free(exprs->table);
}
