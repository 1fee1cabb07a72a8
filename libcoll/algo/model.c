/* model.c: the constants of the cost model for each kind of link. */
#include <string.h>

#include "libcoll/sched/model.h"

/* Typical figures of a present-day x86-64 host; the topology's own measurements replace them. */
void colli_model_default(const char *link, int nranks, int cores, colli_model *out) {
  bool crowded = cores > 0 && nranks > cores;
  if (strcmp(link, "shm") == 0)
    *out = (colli_model){.alpha_ns = crowded ? 1500 : 150,
                         .beta_ns_per_byte = 0.02,
                         .gamma_ns_per_byte = 0.02,
                         .step_ns = 40};
  else
    *out = (colli_model){.alpha_ns = crowded ? 30000 : 5000,
                         .beta_ns_per_byte = 0.4,
                         .gamma_ns_per_byte = 0.02,
                         .step_ns = 1000};
  out->core_share = crowded ? (double)cores / nranks : 1;
}
