/* table.c: coll_explain --table: the predicted time of each candidate for several sizes. */
#include <stdio.h>
#include <string.h>

#include "explain.h"

#define TABLE_SIZES 17 /* 0, and from 1 byte to as many as --bytes takes */

/* A table: rows are algorithms, columns sizes. */
typedef struct table {
  size_t bytes[TABLE_SIZES];
  int nsizes;
  const colli_algo *algo[COLLI_MAX_CANDIDATES + 1];
  int nalgos;
  double ns[COLLI_MAX_CANDIDATES + 1][TABLE_SIZES]; /* 0: not a candidate for this size */
  const colli_algo *chosen[TABLE_SIZES];
} table;

/* The row of an algorithm, which is added if it is new. */
static int row_of(table *t, const colli_algo *algo) {
  int row = 0;
  while (row < t->nalgos && t->algo[row] != algo)
    row++;
  if (row == t->nalgos)
    t->algo[t->nalgos++] = algo;
  return row;
}

/* Fills in the column of a size. */
static void fill_column(table *t, int column, const question *q, answer *a) {
  colli_choice best, list[COLLI_MAX_CANDIDATES];
  const size_t bytes = t->bytes[column];
  const colli_choice chosen = explain_choose(a, q, bytes);
  const int listed = colli_select(&a->shape, bytes / q->type_bytes, q->type_bytes, &a->limits,
                                  &a->model, "", &best, list, COLLI_MAX_CANDIDATES);
  if (listed < 0)
    described_refuse("out of memory");
  t->chosen[column] = chosen.algo;
  for (int i = 0; i < listed; i++)
    t->ns[row_of(t, list[i].algo)][column] =
        colli_choice_formula(&list[i], &a->shape, q->type_bytes, &a->model);
  t->ns[row_of(t, chosen.algo)][column] = chosen.predicted_ns;
}

void explain_size_text(char text[32], size_t bytes) {
  static const char suffixes[] = {'\0', 'K', 'M', 'G', 'T'};
  int shift = 0;
  while (shift < 4 && bytes >= 1024 && bytes % 1024 == 0) {
    bytes /= 1024;
    shift++;
  }
  snprintf(text, 32, "%zu%c", bytes, suffixes[shift]);
}

void explain_table(const question *q, answer *a) {
  table t = {.nsizes = 0};
  for (size_t bytes = q->bytes; t.nsizes < TABLE_SIZES && bytes <= q->last_bytes;
       bytes = bytes ? bytes * EXPLAIN_TABLE_STEP : q->type_bytes)
    t.bytes[t.nsizes++] = bytes;
  for (int column = 0; column < t.nsizes; column++)
    fill_column(&t, column, q, a);
  printf("%-16s", "bytes");
  for (int column = 0; column < t.nsizes; column++) {
    char text[32];
    explain_size_text(text, t.bytes[column]);
    printf(" %12s ", text);
  }
  putchar('\n');
  for (int row = 0; row < t.nalgos; row++) {
    printf("%-16s", t.algo[row]->name);
    for (int column = 0; column < t.nsizes; column++) {
      char text[32] = "-";
      if (t.ns[row][column] > 0)
        explain_time(text, t.ns[row][column]);
      printf(" %12s%c", text, t.algo[row] == t.chosen[column] ? '*' : ' ');
    }
    putchar('\n');
  }
}
