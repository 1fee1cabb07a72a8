/* model.c: the constants of the cost model for each kind of link. */
#include <string.h>

#include "libcoll/sched/model.h"

#define TCP_SLOT_BYTES  (128 * 1024) /* a system call for each message: few, long ones */
#define TCP_SLICE_BYTES (32 * 1024)
#define SHM_SLOT_BYTES  (32 * 1024) /* the slots of a connection stay in a core's L2 cache */
#define SHM_SLICE_BYTES (4 * 1024)

/* Typical figures of a present-day x86-64 host; the topology's own measurements replace them. */
void colli_model_default(const char *link, int nranks, int cores, colli_model *out) {
  bool crowded = cores > 0 && nranks > cores;
  if (strcmp(link, "shm") == 0)
    *out = (colli_model){.alpha_ns = crowded ? 1500 : 150,
                         .beta_ns_per_byte = 0.03,
                         .gamma_ns_per_byte = 0.01,
                         .step_ns = 40};
  else
    *out = (colli_model){.alpha_ns = crowded ? 30000 : 3500,
                         .beta_ns_per_byte = 0.3,
                         .gamma_ns_per_byte = 0.02,
                         .step_ns = 1500};
  out->core_share = crowded ? (double)cores / nranks : 1;
}

/* How a kind of link likes its messages. */
void colli_limits_default(const char *link, colli_limits *out) {
  bool memory = strcmp(link, "shm") == 0;
  out->slot_bytes = memory ? SHM_SLOT_BYTES : TCP_SLOT_BYTES;
  out->slice_bytes = memory ? SHM_SLICE_BYTES : TCP_SLICE_BYTES;
}
