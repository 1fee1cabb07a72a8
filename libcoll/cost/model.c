/* model.c: the constants of the cost model for each kind of link. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/cost/model.h"

#define TCP_SLOT_BYTES  (128 * 1024) /* a system call for each message: few, long ones */
#define TCP_SLICE_BYTES (128 * 1024)
#define SHM_SLOT_BYTES  (64 * 1024) /* the slots of a connection stay in a core's L2 cache */
#define SHM_SLICE_BYTES (8 * 1024)  /* each costs a line's way; less overlaps than that takes */

/* To post a work request and to look for what comes: assumed, as no adapter was at hand. */
#define DEVICE_STEP_NS 300

/* Typical costs of a present-day x86-64 host; coll_calibrate measures this one's. */
void colli_calibration_default(colli_calibration *out) {
  *out = (colli_calibration){
      .apart =
          {[COLLI_LINK_SHM] = {150, 0.03, 0.01, 40}, [COLLI_LINK_TCP] = {2600, 0.15, 0.02, 1200}},
      .crowded = {[COLLI_LINK_SHM] = {1740, 0.039, 0.0018, 2},
                  [COLLI_LINK_TCP] = {9750, 0.05, 0.004, 2090}},
  };
}

/* Number `index` of a calibration. */
double *colli_calibration_number(colli_calibration *calibration, int index) {
  colli_link_costs *all =
      index < COLLI_CALIBRATION_NUMBERS / 2 ? calibration->apart : calibration->crowded;
  colli_link_costs *costs = &all[index / 4 % COLLI_LINK_KINDS];
  double *const fields[] = {&costs->alpha_ns, &costs->beta_ns_per_byte, &costs->gamma_ns_per_byte,
                            &costs->step_ns};
  return fields[index % 4];
}

const char *colli_link_name(colli_link_kind kind) {
  return kind == COLLI_LINK_SHM ? "shm" : "tcp";
}

colli_link_kind colli_link_kind_of(const char *transport) {
  return strcmp(transport, "shm") == 0 ? COLLI_LINK_SHM : COLLI_LINK_TCP;
}

/*
 * How long chunks may be where ranks share cores: all that they have under way should stay in the
 * cores' caches, and over tcp the kernel holds a copy of it.
 */
static double chunk_share(colli_link_kind far, double core_share) {
  double share = far == COLLI_LINK_SHM ? 2 * core_share : core_share / 2;
  return share < 1 ? share : 1;
}

/* The model of a set of ranks. */
void colli_model_make(const colli_calibration *calibration, colli_link_kind far,
                      colli_link_kind near, int nranks, int cores, colli_model *out) {
  bool crowded = cores > 0 && nranks > cores;
  const colli_link_costs *all = crowded ? calibration->crowded : calibration->apart;
  double core_share = crowded ? (double)cores / nranks : 1;
  *out = (colli_model){.alpha_ns = all[far].alpha_ns,
                       .beta_ns_per_byte = all[far].beta_ns_per_byte,
                       .gamma_ns_per_byte = all[far].gamma_ns_per_byte,
                       .step_ns = all[far].step_ns,
                       .core_share = core_share,
                       .chunk_share = chunk_share(far, core_share),
                       .near_alpha_ns = all[near].alpha_ns,
                       .near_beta_ns_per_byte = all[near].beta_ns_per_byte,
                       .flight_ns = calibration->apart[far].alpha_ns};
}

void colli_model_device(colli_model *model, const colli_calibration *calibration, double alpha_ns,
                        double beta_ns_per_byte) {
  bool crowded = model->core_share < 1;
  const colli_link_costs *cores =
      crowded ? &calibration->crowded[COLLI_LINK_SHM] : &calibration->apart[COLLI_LINK_SHM];
  model->device = true;
  model->alpha_ns = alpha_ns + (crowded ? cores->alpha_ns : 0); /* who is told must be run */
  model->beta_ns_per_byte = beta_ns_per_byte;
  model->gamma_ns_per_byte = cores->gamma_ns_per_byte;
  model->step_ns = DEVICE_STEP_NS;
  model->flight_ns = alpha_ns;
}

const int colli_corrected_ranks[COLLI_CORRECTED_WORLDS] = {2, 3, 4, 8};

/* Corrects a model. */
void colli_model_correct(colli_model *model, const colli_corrections *corrections,
                         colli_link_kind link, int nranks, int cores) {
  model->corrections = NULL;
  if (!corrections || nranks < 2 || nranks > 2 * colli_corrected_ranks[COLLI_CORRECTED_WORLDS - 1])
    return;
  bool crowded = cores > 0 && nranks > cores;
  int nearest = -1;
  for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++) {
    int measured = colli_corrected_ranks[w];
    bool alike = (measured > corrections->cores) == crowded;
    if (alike &&
        (nearest < 0 || abs(measured - nranks) < abs(colli_corrected_ranks[nearest] - nranks)))
      nearest = w;
  }
  if (nearest >= 0 && (!crowded || cores == corrections->cores))
    model->corrections = corrections->of[link][nearest];
}

/* The factor for an algorithm and a size. */
double colli_correction_for(const colli_model *model, int algo_id, size_t bytes) {
  if (!model->corrections || algo_id >= COLLI_CORRECTED_ALGOS)
    return 1;
  const float *at = model->corrections[algo_id];
  int above = 0;
  while (above < COLLI_CORRECTED_SIZES - 1 && COLLI_CORRECTED_BYTES(above) < bytes)
    above++;
  int below = above > 0 && COLLI_CORRECTED_BYTES(above) > bytes ? above - 1 : above;
  while (below > 0 && at[below] <= 0)
    below--;
  while (above < COLLI_CORRECTED_SIZES - 1 && at[above] <= 0)
    above++;
  if (at[below] <= 0 || at[above] <= 0)
    return at[below] > 0 ? at[below] : at[above] > 0 ? at[above] : 1;
  if (below == above)
    return at[below];
  double part = log((double)bytes / (double)COLLI_CORRECTED_BYTES(below)) /
                log((double)COLLI_CORRECTED_BYTES(above) / (double)COLLI_CORRECTED_BYTES(below));
  part = part < 0 ? 0 : part > 1 ? 1 : part;
  return at[below] * pow(at[above] / at[below], part);
}

/* The model of one kind of link without measurements. */
void colli_model_default(const char *link, int nranks, int cores, colli_model *out) {
  colli_calibration typical;
  colli_calibration_default(&typical);
  colli_link_kind kind = colli_link_kind_of(link);
  colli_model_make(&typical, kind, kind, nranks, cores, out);
}

/* How a kind of link likes its messages. */
void colli_limits_default(const char *link, colli_limits *out) {
  bool memory = strcmp(link, "shm") == 0;
  out->slot_bytes = memory ? SHM_SLOT_BYTES : TCP_SLOT_BYTES;
  out->slice_bytes = memory ? SHM_SLICE_BYTES : TCP_SLICE_BYTES;
}
