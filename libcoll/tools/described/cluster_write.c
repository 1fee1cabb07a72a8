/* cluster_write.c: writes a cluster as a file. */
#include <stdlib.h>

#include "libcoll/tools/described/cluster.h"

bool cluster_allocate(cluster *c) {
  const size_t n = (size_t)c->nranks;
  bool made = true;
  for (int level = 0; level < c->nlevels; level++)
    made = (c->level[level].group = calloc(n, sizeof(int32_t))) != NULL && made;
  c->host = calloc(n, sizeof(*c->host));
  c->core = calloc(n, sizeof(*c->core));
  c->hosts = calloc((size_t)c->nhosts, sizeof(*c->hosts));
  c->machines = calloc((size_t)c->nmachines, sizeof(*c->machines));
  c->link_ns_per_byte = calloc((size_t)c->nlinks + 1, sizeof(*c->link_ns_per_byte));
  return made && c->host && c->core && c->hosts && c->machines && c->link_ns_per_byte;
}

void cluster_free(cluster *c) {
  for (int level = 0; level < c->nlevels; level++)
    free(c->level[level].group);
  for (int i = 0; c->machines && i < c->nmachines; i++)
    free(c->machines[i].xml);
  free(c->host);
  free(c->core);
  free(c->hosts);
  free(c->machines);
  free(c->link_ns_per_byte);
  *c = (cluster){0};
}

cluster_model cluster_model_of(colli_model *m) {
  return (cluster_model){
      .number = {&m->alpha_ns, &m->beta_ns_per_byte, &m->gamma_ns_per_byte, &m->step_ns,
                 &m->core_share, &m->near_alpha_ns, &m->near_beta_ns_per_byte, &m->chunk_share,
                 &m->flight_ns, &m->host_beta_ns_per_byte, &m->host_step_ns, &m->host_gap_ns,
                 &m->turn_share, &m->path_factor},
      .flag = {&m->device, &m->paired, &m->sites, &m->containers, &m->remote, &m->near_remote}};
}

/* Writes what messages cost. */
static void write_costs(const cluster *c, FILE *out) {
  colli_model costs = c->model;
  const cluster_model m = cluster_model_of(&costs);
  fputs(
      "# alpha (ns) and beta (ns a byte) between groups, gamma (ns a byte reduced), ns of a step, "
      "cores of a\n# rank, alpha and beta within the nearest groups, share of the longest chunk, "
      "flight (ns), beta of a\n# host's link, which its ranks share (0: they do not), ns of a step "
      "within a host, gap (ns), share of\n# turns, factor of paths; device, paired, sites, "
      "containers, remote, the same within hosts\n",
      out);
  fputs("model", out);
  for (size_t i = 0; i < sizeof(m.number) / sizeof(*m.number); i++)
    fprintf(out, " %.17g", *m.number[i]);
  for (size_t i = 0; i < sizeof(m.flag) / sizeof(*m.flag); i++)
    fprintf(out, " %d", *m.flag[i]);
  fputc('\n', out);
  fprintf(out, "# slots, bytes of one; of a chunk; of the shortest slice\nslots %u %zu %zu %zu\n",
          c->limits.slot_count, c->limits.slot_bytes, c->limits.chunk_bytes, c->limits.slice_bytes);
}

void cluster_write(const cluster *c, FILE *out) {
  fprintf(out, "libcoll cluster 1\nranks %d hosts %d levels %d machines %d links %d\n", c->nranks,
          c->nhosts, c->nlevels, c->nmachines, c->nlinks);
  write_costs(c, out);
  fputs("# of groups, the nearest first: names that they have of a host's levels, alpha and beta "
        "inside\n",
        out);
  for (int i = 0; i < c->nlevels; i++)
    fprintf(out, "level %d %.17g %.17g\n", c->level[i].names, c->level[i].cost.alpha_ns,
            c->level[i].cost.beta_ns_per_byte);
  for (int i = 0; i < c->nlinks; i++)
    fprintf(out, "link %.17g\n", c->link_ns_per_byte[i]);
  fputs("# machine, Mbit/s of its link (0: not known), name, levels\n", out);
  for (int i = 0; i < c->nhosts; i++)
    fprintf(out, "host %d %.17g %s %s\n", c->hosts[i].machine, c->hosts[i].link_mbit,
            c->hosts[i].name, *c->hosts[i].levels ? c->hosts[i].levels : "-");
  fputs("# host, core (-1: any), group of each level\n", out);
  for (int rank = 0; rank < c->nranks; rank++) {
    fprintf(out, "rank %d %d", c->host[rank], c->core[rank]);
    for (int i = 0; i < c->nlevels; i++)
      fprintf(out, " %d", (int)c->level[i].group[rank]);
    fputc('\n', out);
  }
  for (int i = 0; i < c->nmachines; i++) {
    fprintf(out, "machine %zu\n", c->machines[i].bytes);
    fwrite(c->machines[i].xml, 1, c->machines[i].bytes, out);
    fputc('\n', out);
  }
}
