/* host_links.c: what it costs that ranks of a host share its link. */
#include "libcoll/cost/host_links.h"

#include <math.h>
#include <stdlib.h>

#define TYPICAL_ALPHA_NS 9000
#define TYPICAL_GAP_NS   1000
#define TYPICAL_STEP_NS  2500 /* system calls, packets and interrupts of one message */
#define TYPICAL_BETA     0.32

void colli_host_links_assume(colli_model *model) {
  model->alpha_ns = fmax(model->alpha_ns, TYPICAL_ALPHA_NS);
  model->step_ns = fmax(model->step_ns, TYPICAL_STEP_NS);
  model->host_beta_ns_per_byte = TYPICAL_BETA;
  model->host_gap_ns = TYPICAL_GAP_NS;
}

int colli_host_links_count(const colli_shape *shape) {
  const int32_t *host = colli_shape_hosts(shape);
  int hosts = 1;
  for (int rank = 0; host && rank < shape->nranks; rank++)
    hosts = host[rank] >= hosts ? host[rank] + 1 : hosts;
  return hosts;
}

double colli_host_links_level(const colli_model *model, const colli_shape *shape, int a, int b) {
  if (shape->ninner == 0)
    return 0;
  const int32_t *next = shape->ninner > 1 ? shape->inner[1] : shape->group; /* groups of hosts */
  return next[a] == next[b] ? 0 : colli_model_pair(model, shape, a, b).beta_ns_per_byte;
}

double colli_host_links_beta(const colli_model *model, const colli_shape *shape, int a, int b) {
  const double link = model->host_beta_ns_per_byte;
  const int32_t *host = link > 0 ? colli_shape_hosts(shape) : NULL;
  if (!host || host[a] == host[b])
    return 0;
  return fmax(link, colli_host_links_level(model, shape, a, b));
}

colli_pair_cost colli_host_links_pair(const colli_model *model, const colli_shape *shape, int a,
                                      int b) {
  colli_pair_cost pair = colli_model_pair(model, shape, a, b);
  const double *beta = model->link_beta_ns_per_byte;
  const int32_t *host = colli_shape_hosts(shape);
  if (beta && host[a] != host[b]) /* the slower one of two links that differ */
    pair.beta_ns_per_byte =
        fmax(colli_host_links_level(model, shape, a, b), fmax(beta[host[a]], beta[host[b]]));
  else
    pair.beta_ns_per_byte = fmax(pair.beta_ns_per_byte, colli_host_links_beta(model, shape, a, b));
  return pair;
}

/* Slows down links between hosts, of which `each` share one; what hosts that are farther from each
 * other have is shared, too. */
static void share_link(const colli_model *model, double each, bool nearest, colli_pair_cost *link) {
  const double host_beta = model->host_beta_ns_per_byte;
  const double least = nearest ? host_beta : fmax(host_beta, link->beta_ns_per_byte);
  if (link->beta_ns_per_byte <= 0)
    return;
  link->beta_ns_per_byte = fmax(link->beta_ns_per_byte, each * least);
}

colli_model colli_host_links_for(const colli_model *model, double bytes) {
  colli_model out = *model;
  if (model->host_beta_ns_per_byte > 0 && bytes > 0)
    out.host_beta_ns_per_byte += model->host_gap_ns / bytes;
  out.host_gap_ns = 0;
  return out;
}

colli_model colli_host_links_busy(const colli_model *model, const colli_shape *shape,
                                  double at_once) {
  colli_model out = *model;
  const double each = fmax(1, at_once);
  if (shape->ngroups <= 1 || model->host_beta_ns_per_byte <= 0)
    return out;
  colli_pair_cost near = {out.near_alpha_ns, out.near_beta_ns_per_byte},
                  far = {out.alpha_ns, out.beta_ns_per_byte};
  for (int level = 1; level < shape->ninner; level++)
    share_link(model, each, level == 1, &out.inner[level]);
  if (shape->ninner > 0)
    share_link(model, each, shape->ninner == 1, &near);
  share_link(model, each, shape->ninner == 0, &far);
  out.near_beta_ns_per_byte = near.beta_ns_per_byte;
  out.beta_ns_per_byte = far.beta_ns_per_byte;
  out.core_beta_ns_per_byte = model->beta_ns_per_byte;
  out.host_beta_ns_per_byte = 0;
  return out;
}

double colli_host_links_pairs(const colli_shape *shape) {
  const int32_t *host = colli_shape_hosts(shape);
  double most = 0;
  const int hosts = colli_host_links_count(shape);
  int *ranks = calloc((size_t)hosts, sizeof(*ranks));
  for (int rank = 0; ranks && host && rank < shape->nranks; rank++)
    ranks[host[rank]]++;
  for (int i = 0; ranks && i < hosts; i++)
    most = fmax(most, (double)ranks[i] * (shape->nranks - ranks[i]));
  most = ranks ? most : INFINITY;
  free(ranks);
  return most;
}

colli_host_load colli_host_load_begin(const colli_model *model, const colli_shape *shape) {
  colli_host_load load = {.model = model, .shape = shape};
  if (!colli_shape_hosts(shape) || model->host_beta_ns_per_byte <= 0)
    return load;
  load.each = calloc(2 * (size_t)colli_host_links_count(shape), sizeof(*load.each));
  load.most = load.each ? 0 : INFINITY;
  return load;
}

void colli_host_load_add(colli_host_load *load, int from, int to, double bytes) {
  if (!load->each)
    return;
  const int32_t *host = colli_shape_hosts(load->shape);
  const double ns = bytes * colli_host_links_beta(load->model, load->shape, from, to);
  double *out = &load->each[2 * host[from]], *in = &load->each[2 * host[to] + 1];
  *out += ns;
  *in += ns;
  load->most = fmax(load->most, fmax(*out, *in));
}

double colli_host_load_end(colli_host_load *load) {
  free(load->each);
  load->each = NULL;
  return load->most;
}
