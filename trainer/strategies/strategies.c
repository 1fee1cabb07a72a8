/* strategies.c: the list of all strategies. */
#include "trainer/strategies/strategy.h"

#include <stdio.h>
#include <string.h>

static const strategy *const all[] = {
    &strategy_allreduce,  &strategy_ps_sync,   &strategy_ps_async, &strategy_ps_bounded,
    &strategy_ps_sharded, &strategy_local_sgd, &strategy_easgd,    &strategy_gossip,
    &strategy_zero1,      &strategy_pipeline,  &strategy_tensor,   &strategy_grid,
};
#define COUNT (sizeof(all) / sizeof(all[0]))

const strategy *strategy_at(size_t index) {
  return index < COUNT ? all[index] : NULL;
}

const strategy *strategy_find(const char *name, fail *why) {
  char names[256] = "";
  size_t used = 0;
  for (size_t i = 0; i < COUNT; i++) {
    if (strcmp(all[i]->name, name) == 0)
      return all[i];
    used +=
        (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "", all[i]->name);
  }
  fail_set(why, "--strategy %s: must be one of %s", name, names);
  return NULL;
}
