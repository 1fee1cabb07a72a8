/* inputs.c: what programs on a described network know when they choose an algorithm. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/cost/links.h"
#include "libcoll/tools/described/described.h"

/* Spreads the ranks over hosts. */
static void set_shape(const described_network *net, answer *a) {
  a->shape.nranks = net->nranks;
  if (net->network.nlevels && !described_set_groups(net, a))
    described_refuse("out of memory for %d ranks", net->nranks);
  if (net->network.nlevels || net->hosts == 1)
    return;
  a->group = malloc((size_t)net->nranks * sizeof(*a->group));
  if (!a->group)
    described_refuse("out of memory for %d ranks", net->nranks);
  for (int rank = 0; rank < net->nranks; rank++)
    a->group[rank] = (int32_t)((long long)rank * net->hosts / net->nranks);
  a->shape.ngroups = net->hosts;
  a->shape.group = a->group;
}

/* Takes groups and costs from a cluster. */
static void set_cluster(const cluster *c, answer *a) {
  a->shape.nranks = c->nranks;
  for (int i = 0; i + 1 < c->nlevels; i++)
    a->shape.inner[a->shape.ninner++] = c->level[i].group;
  if (c->nlevels > 0) {
    a->shape.group = c->level[c->nlevels - 1].group;
    a->shape.ngroups = c->level[c->nlevels - 1].ngroups;
  }
  a->limits = c->limits;
  a->model = c->model;
  if (c->nlinks == 0)
    return;
  int32_t *rack = c->nlevels > 1 ? calloc((size_t)c->nlinks, sizeof(*rack)) : NULL;
  for (int rank = 0; rack && rank < c->nranks; rank++)
    rack[c->level[0].group[rank]] = c->level[1].group[rank];
  if ((c->nlevels > 1 && !rack) ||
      !colli_weights_make(c->link_ns_per_byte, c->nlinks, rack, &a->weights))
    described_refuse("out of memory for %d links", c->nlinks);
  free(rack);
  a->model.link_beta_ns_per_byte = a->weights ? a->weights->beta_ns_per_byte : NULL;
  a->shape.share = a->weights ? a->weights->share : NULL;
}

/* Sets groups and costs from the options, and from the settings that programs would have. */
static void set_described(const described_network *net, const colli_params *params, answer *a) {
  colli_calibration calibration;
  set_shape(net, a);
  const colli_link_kind near = net->link, far = net->hosts > 1 ? COLLI_LINK_TCP : near;
  a->limits.slot_count = (unsigned)params->number[COLLI_PARAM_SLOT_COUNT];
  colli_limits_default(far, &a->limits);
  if (params->from_env[COLLI_PARAM_SLOT_BYTES])
    a->limits.slot_bytes = (size_t)params->number[COLLI_PARAM_SLOT_BYTES];
  colli_calibration_load(params->text[COLLI_PARAM_CALIBRATION], &(colli_log){COLLI_LOG_WARN, -1},
                         &calibration, &a->corrections, &a->origin);
  colli_model_make(&calibration, far, near, (net->nranks + net->hosts - 1) / net->hosts, net->cores,
                   &a->model);
  if (net->network.nlevels)
    described_set_costs(net, &calibration, a);
  else if (net->hosts > 1)
    colli_host_links_assume(&a->model);
  if (net->link_speeds)
    described_set_speeds(net, a);
  a->model.paired = net->hosts == 1 && near == COLLI_LINK_SHM &&
                    net->nranks == 2 * net->cores; /* as collrun binds them */
  if (net->hosts == 1)
    a->model.corrections = colli_corrections_find(a->corrections, far, net->nranks, net->cores);
}

/* Sets what chooses, with the algorithms and the tuner that are asked for. */
static void set_chooser(const colli_params *params, const char *algo, answer *a) {
  coll_error error = COLL_ERROR_INIT;
  a->chooser.limits = &a->limits;
  a->chooser.model = &a->model;
  char text[128];
  bool name_alone = algo && !strchr(algo, ':');
  if (name_alone)
    snprintf(text, sizeof(text), "%s:%s", colli_coll_name(a->shape.coll), algo);
  if (colli_force_parse(name_alone ? text
                        : algo     ? algo
                                   : params->text[COLLI_PARAM_ALGO],
                        &a->chooser.force, &error) != COLL_OK ||
      colli_tuner_open(params->text[COLLI_PARAM_TUNER], &a->chooser.tuner, &error) != COLL_OK)
    described_refuse("%s", error.message);
}

void described_set_up(const described_network *net, const char *algo, answer *a) {
  static colli_params params;
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(&params, &error) != COLL_OK)
    described_refuse("%s", error.message);
  if (net->cluster)
    set_cluster(net->cluster, a);
  else
    set_described(net, &params, a);
  set_chooser(&params, algo, a);
}

void described_free(answer *a) {
  colli_chooser_free(&a->chooser);
  colli_tuner_close(a->chooser.tuner);
  free(a->corrections);
  free(a->group);
  free(a->weights);
}
