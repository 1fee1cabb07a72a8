/*
 * tuner_example.c: a tuner that goes by a table: ring from a size on, recursive doubling below, for
 * all-reduce; everything else is left to libcoll.
 */
#include <coll/coll_tuner.h>
#include <string.h>

#define LONG_BYTES 4096

/* The index of a candidate, or -1. */
static int find_candidate(const coll_candidate *candidates, int count, const char *name) {
  for (int i = 0; i < count; i++)
    if (strcmp(candidates[i].name, name) == 0)
      return i;
  return -1;
}

static int choose(void *ctx, const char *collective, int nranks, size_t bytes,
                  const coll_candidate *candidates, int count) {
  (void)ctx;
  (void)nranks;
  if (strcmp(collective, "allreduce") != 0)
    return -1;
  return find_candidate(candidates, count, bytes < LONG_BYTES ? "recdbl" : "ring");
}

const coll_tuner_ops coll_tuner = {
    .size = sizeof(coll_tuner_ops), .abi = COLL_TUNER_ABI, .name = "example", .choose = choose};
