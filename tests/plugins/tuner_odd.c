/*
 * tuner_odd.c: a tuner that does what it should not. ODD_TUNER=refuse: it does not start; a number:
 * that is its answer to everything. It counts what happens to it in a place that the test gives it,
 * by the address in ODD_TUNER_COUNTS: opened, asked, closed.
 */
#include <coll/coll_tuner.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static int *counts(void) {
  static int nowhere[3];
  const char *address = getenv("ODD_TUNER_COUNTS");
  return address ? (int *)(uintptr_t)strtoull(address, NULL, 16) : nowhere;
}

static int open_odd(void **ctx) {
  const char *what = getenv("ODD_TUNER");
  if (!what || strcmp(what, "refuse") == 0)
    return 1;
  *ctx = counts();
  counts()[0]++;
  return 0;
}

static int choose(void *ctx, const char *collective, int nranks, size_t bytes,
                  const coll_candidate *candidates, int count) {
  (void)collective;
  (void)nranks;
  (void)bytes;
  (void)candidates;
  (void)count;
  ((int *)ctx)[1]++;
  return atoi(getenv("ODD_TUNER"));
}

static void close_odd(void *ctx) {
  ((int *)ctx)[2]++;
}

const coll_tuner_ops coll_tuner = {
    sizeof(coll_tuner_ops), COLL_TUNER_ABI, "odd", open_odd, choose, close_odd};
