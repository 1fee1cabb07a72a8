/*
 * predict.c: why two ranks of a network that does not run would talk as they do. What its
 * description has is certain; over which transport they would talk is a prediction.
 */
#include "libcoll/cost/host_links.h"
#include "libcoll/tools/topo/draw.h"

/* Two ranks, and what is known of them. */
typedef struct prediction {
  const described_network *net;
  const answer *a;
  topo_network network;
  int pair[2];
  int level; /* at which they meet: 0: on one host */
  FILE *out;
} prediction;

/* The host of a rank: that of the cluster, or the innermost group. */
static int host_of(const prediction *p, int rank) {
  if (p->net->cluster)
    return p->net->cluster->host[rank];
  return p->network.nlevels > 0 ? p->network.group[0][rank] : 0;
}

/* Prints where a rank is. */
static void print_place(const prediction *p, int rank) {
  const cluster *c = p->net->cluster;
  const cluster_host *host = c ? &c->hosts[c->host[rank]] : NULL;
  if (!host) {
    fprintf(p->out, "rank %d: host %d", rank, host_of(p, rank));
    for (int level = 1; level < p->network.nlevels; level++) {
      char name[COLLI_LEVELS_BYTES];
      topo_network_name(&p->network, level, rank, name, sizeof(name));
      fprintf(p->out, ", in %s", name);
    }
    fputc('\n', p->out);
    return;
  }
  fprintf(p->out, "rank %d: host %s, machine %d, ", rank, host->name, host->machine);
  if (c->core[rank] >= 0)
    fprintf(p->out, "core %d", c->core[rank]);
  else
    fputs("any core", p->out);
  if (*host->levels)
    fprintf(p->out, ", in %s", host->levels);
  if (host->link_mbit > 0)
    fprintf(p->out, ", a link of %.4g Mbit/s", host->link_mbit);
  fputc('\n', p->out);
}

/* Prints the narrowest group in which both ranks are. */
static void print_nearest(const prediction *p) {
  const cluster *c = p->net->cluster;
  const int a = p->pair[0], b = p->pair[1];
  const bool one_host = host_of(p, a) == host_of(p, b);
  char name[COLLI_LEVELS_BYTES];
  if (c || one_host || p->network.nlevels < 2) {
    topo_print_nearest(one_host, c ? c->hosts[c->host[a]].levels : "",
                       c ? c->hosts[c->host[b]].levels : "", p->out);
  } else if (p->level == p->network.nlevels) {
    fputs("they are on two hosts that are in no group together\n", p->out);
  } else {
    topo_network_name(&p->network, p->level, a, name, sizeof(name));
    fprintf(p->out, "they are on two hosts, both in %s\n", name);
  }
}

/* Prints which transport would connect them. */
static void print_transport(const prediction *p) {
  const colli_model *model = &p->a->model;
  const bool one_host = host_of(p, p->pair[0]) == host_of(p, p->pair[1]);
  fputs("transport, a prediction: ", p->out);
  if (!p->net->cluster && p->net->network.nlevels == 0)
    fprintf(p->out, "%s, by --transport\n",
            one_host ? p->net->transport : described_far_transport(p->net));
  else if (one_host && !model->near_remote)
    fputs("shm, as ranks of one host share memory\n", p->out);
  else if (model->device)
    fputs("a device moves messages: InfiniBand, RoCE or another\n", p->out);
  else
    fputs("tcp, as no device moved messages where this was saved\n", p->out);
}

/* Prints where the numbers of the cost come from. */
static void print_why(const prediction *p, colli_pair_cost cost) {
  const int a = p->pair[0], b = p->pair[1];
  const colli_pair_cost pair = colli_model_pair(&p->a->model, &p->a->shape, a, b);
  const double *beta = p->a->model.link_beta_ns_per_byte;
  const int32_t *host = colli_shape_hosts(&p->a->shape);
  char name[COLLI_LEVELS_BYTES];
  if (p->network.nlevels == 0) {
    fputs("why: all ranks are equally far from each other\n", p->out);
    return;
  }
  topo_network_name(&p->network, p->level < p->network.nlevels ? p->level : 0, a, name,
                    sizeof(name));
  if (p->level < p->network.nlevels)
    fprintf(p->out, "why: that is what messages cost inside %s", name);
  else
    fprintf(p->out, "why: that is what messages cost between %s",
            p->network.nlevels == 1 ? "hosts" : "groups of the widest level");
  if (cost.beta_ns_per_byte > pair.beta_ns_per_byte && beta && host[a] != host[b]) {
    topo_network_name(&p->network, 0, beta[host[a]] > beta[host[b]] ? a : b, name, sizeof(name));
    fprintf(p->out, "; but a byte takes %.4g ns on the link of %s, the slower one of both",
            cost.beta_ns_per_byte, name);
  } else if (cost.beta_ns_per_byte > pair.beta_ns_per_byte) {
    fprintf(p->out, "; but a byte takes %.4g ns on a host's link, which its ranks share",
            cost.beta_ns_per_byte);
  }
  fputc('\n', p->out);
}

int topo_predict(const request *asked) {
  static answer a;
  const described_network *net = &asked->net;
  a.shape = (colli_shape){.coll = COLLI_ALLREDUCE,
                          .order = colli_order_of_sums(COLL_DETERMINISTIC_OFF, COLLI_ALLREDUCE)};
  described_set_up(net, NULL, &a);
  prediction p = {net, &a, topo_network_of(net, &a), {asked->pair[0], asked->pair[1]}, 0, stdout};
  const int nranks = a.shape.nranks;
  if (p.pair[0] >= nranks || p.pair[1] >= nranks) {
    fprintf(stderr, "coll_topo: --explain %d,%d: there are ranks 0 to %d\n", p.pair[0], p.pair[1],
            nranks - 1);
    described_free(&a);
    return 2;
  }
  p.level = topo_network_meet(&p.network, p.pair[0], p.pair[1]);
  const colli_pair_cost cost = colli_host_links_pair(&a.model, &a.shape, p.pair[0], p.pair[1]);
  print_place(&p, p.pair[0]);
  print_place(&p, p.pair[1]);
  print_nearest(&p);
  print_transport(&p);
  topo_print_cost(cost, stdout);
  print_why(&p, cost);
  described_free(&a);
  return 0;
}
