/* model.c: makes cost models from calibrations. */
#include "libcoll/cost/model.h"

#include "libcoll/cost/links.h"

/* Posting a work request and polling for completions. Assumed: not measured on an adapter. */
#define DEVICE_STEP_NS 300

/* How much more than over the loopback a message costs between containers: it passes two more
 * devices and a bridge, and no yield gives the core to a rank of another. Measured: see
 * docs/decisions/choosing.md. */
#define CONTAINED_BETA 1.25
#define CONTAINED_STEP 1.8
#define CONTAINED_PATH 1.5

/*
 * The longest chunk where ranks share cores. All data in flight should stay in the cores' caches,
 * and over tcp the kernel holds a copy of it.
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
                       .host_step_ns = all[near].step_ns,
                       .core_share = core_share,
                       .remote = far != COLLI_LINK_SHM,
                       .near_remote = near != COLLI_LINK_SHM,
                       .turn_share = crowded && far != COLLI_LINK_SHM ? core_share : 0,
                       .chunk_share = chunk_share(far, core_share),
                       .near_alpha_ns = all[near].alpha_ns,
                       .near_beta_ns_per_byte = all[near].beta_ns_per_byte,
                       .flight_ns = calibration->apart[far].alpha_ns};
}

/* Sets the costs of sockets between containers. */
void colli_model_set_containers(colli_model *model) {
  if (!colli_model_has_shared_steps(model))
    return;
  model->beta_ns_per_byte *= CONTAINED_BETA;
  model->step_ns *= CONTAINED_STEP;
  model->path_factor = CONTAINED_PATH;
}

/* Sets the costs of links over which a device moves messages. */
void colli_model_device(colli_model *model, const colli_calibration *calibration, double alpha_ns,
                        double beta_ns_per_byte) {
  bool crowded = model->core_share < 1;
  const colli_link_costs *cores =
      crowded ? &calibration->crowded[COLLI_LINK_SHM] : &calibration->apart[COLLI_LINK_SHM];
  model->device = true;
  model->remote = true;
  model->turn_share = 0;
  model->alpha_ns = alpha_ns + (crowded ? cores->alpha_ns : 0); /* the receiver must be run */
  model->beta_ns_per_byte = beta_ns_per_byte;
  model->gamma_ns_per_byte = cores->gamma_ns_per_byte;
  model->step_ns = DEVICE_STEP_NS;
  model->flight_ns = alpha_ns;
}

/* The model of one kind of link, with typical costs. */
void colli_model_default(colli_link_kind link, int nranks, int cores, colli_model *out) {
  colli_calibration typical;
  colli_calibration_default(&typical);
  colli_model_make(&typical, link, link, nranks, cores, out);
}

colli_pair_cost colli_model_pair(const colli_model *model, const colli_shape *shape, int a, int b) {
  if (shape->ngroups <= 1 || shape->group[a] != shape->group[b])
    return (colli_pair_cost){model->alpha_ns, model->beta_ns_per_byte};
  for (int level = 0; level < shape->ninner; level++)
    if (shape->inner[level][a] == shape->inner[level][b] &&
        model->inner[level].beta_ns_per_byte > 0)
      return model->inner[level];
  return (colli_pair_cost){model->near_alpha_ns, model->near_beta_ns_per_byte};
}

double colli_model_step(const colli_model *model, const colli_shape *shape, int a, int b) {
  const int32_t *host = model->host_step_ns > 0 ? colli_shape_hosts(shape) : NULL;
  return host && host[a] == host[b] ? model->host_step_ns : model->step_ns;
}

double colli_model_turns(const colli_model *model, const colli_shape *shape, int a, int b) {
  const int32_t *host = model->near_remote ? NULL : colli_shape_hosts(shape);
  return host && host[a] == host[b] ? 0 : model->turn_share;
}
