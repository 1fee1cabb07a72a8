/* seeds.c: how many seeds a test tries. */
#include "seeds.h"

#include <stdio.h>
#include <stdlib.h>

int seeds_run(const char *test, seed_fn fn, uint64_t first, int count) {
  const char *one = getenv("SIM_SEED"), *many = getenv("SIM_SEEDS");
  if (one)
    return !fn(strtoull(one, NULL, 0), true);
  if (many)
    count = atoi(many);
  int failed = 0;
  for (int i = 0; i < count && failed < 10; i++) {
    if (fn(first + (uint64_t)i, false))
      continue;
    failed++;
    fprintf(stderr, "again with: SIM_SEED=%llu %s\n", (unsigned long long)first + (unsigned)i,
            test);
  }
  return failed;
}
