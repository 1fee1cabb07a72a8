/*
 * host_links.h: the hosts' links to the network, each of which its ranks share
 * (colli_model.host_beta_ns_per_byte).
 */
#ifndef COLLI_COST_HOST_LINKS_H
#define COLLI_COST_HOST_LINKS_H

#include "libcoll/cost/model.h"

/* Sets what a network of 25 Gbit/s between hosts costs with TCP, which nobody has measured: what a
 * model has was measured, if at all, on one host. */
void colli_host_links_assume(colli_model *model);

/* The number of hosts, which are the innermost groups. */
int colli_host_links_count(const colli_shape *shape);

/*
 * How long a byte between two ranks occupies the links of their hosts; 0 within a host, or where
 * each rank has a link of its own. Where a level of the network is slower than that, it is what
 * hosts share. Does not know link_beta_ns_per_byte.
 */
double colli_host_links_beta(const colli_model *model, const colli_shape *shape, int a, int b);

/* What the level of the network between two ranks takes for a byte; 0: no more than their links. */
double colli_host_links_level(const colli_model *model, const colli_shape *shape, int a, int b);

/* What a message is assumed to cost between two ranks that are alone with it: colli_model_pair(),
 * or what the links of their hosts make of that, of which the slower one counts where they differ.
 */
colli_pair_cost colli_host_links_pair(const colli_model *model, const colli_shape *shape, int a,
                                      int b);

/* The model of links in which messages of so many bytes take as long without the gap. */
colli_model colli_host_links_for(const colli_model *model, double bytes);

/* The model of links that are each a rank's own, as fast as they are while so many ranks of each
 * host send over its link. */
colli_model colli_host_links_busy(const colli_model *model, const colli_shape *shape,
                                  double at_once);

/* The most pairs of a rank on some host and one elsewhere; infinite if out of memory. */
double colli_host_links_pairs(const colli_shape *shape);

/* How long messages occupy the links of hosts, in and out. */
typedef struct colli_host_load {
  const colli_model *model;
  const colli_shape *shape;
  double *each; /* [host][way]; NULL: they are not shared, or out of memory */
  double most;  /* ns; infinite if out of memory */
} colli_host_load;

colli_host_load colli_host_load_begin(const colli_model *model, const colli_shape *shape);
void colli_host_load_add(colli_host_load *load, int from, int to, double bytes);

/* Frees it, and returns how long the busiest link is occupied. */
double colli_host_load_end(colli_host_load *load);

#endif
