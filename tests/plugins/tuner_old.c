/* tuner_old.c: a tuner of another version of the interface. */
#include <coll/coll_tuner.h>

static int choose(void *ctx, const char *collective, int nranks, size_t bytes,
                  const coll_candidate *candidates, int count) {
  (void)ctx;
  (void)collective;
  (void)nranks;
  (void)bytes;
  (void)candidates;
  (void)count;
  return -1;
}

const coll_tuner_ops coll_tuner = {
    .size = sizeof(coll_tuner_ops), .abi = COLL_TUNER_ABI + 1, .name = "old", .choose = choose};
