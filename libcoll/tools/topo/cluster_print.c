/* cluster_print.c: prints a cluster that was read from a file. */
#include "libcoll/tools/topo/gather.h"

/* Prints which hosts have a machine. */
static void print_hosts(const cluster *c, int machine) {
  const char *before = "";
  for (int host = 0; host < c->nhosts; host++) {
    if (c->hosts[host].machine != machine)
      continue;
    printf("%s%s", before, c->hosts[host].name);
    before = ", ";
  }
  putchar('\n');
}

/* Prints the ranks. */
static void print_ranks(const cluster *c) {
  printf("\n%-6s %-24s %8s %6s %10s  levels\n", "rank", "host", "machine", "core", "Mbit/s");
  for (int rank = 0; rank < c->nranks; rank++) {
    const cluster_host *host = &c->hosts[c->host[rank]];
    char core[16] = "any", speed[24] = "-";
    if (c->core[rank] >= 0)
      snprintf(core, sizeof(core), "%d", c->core[rank]);
    if (host->link_mbit > 0)
      snprintf(speed, sizeof(speed), "%.4g", host->link_mbit);
    printf("%-6d %-24s %8d %6s %10s  %s\n", rank, host->name, host->machine, core, speed,
           *host->levels ? host->levels : "-");
  }
}

int topo_cluster_print(const cluster *c, const char *path) {
  for (int i = 0; i < c->nmachines; i++) {
    colli_topo *topo = NULL;
    coll_error error = COLL_ERROR_INIT;
    printf("%shosts with machine %d: ", i > 0 ? "\n" : "", i);
    print_hosts(c, i);
    if (colli_topo_load(c->machines[i].xml, &topo, &error) != COLL_OK) {
      fprintf(stderr, "coll_topo: machine %d of %s: %s\n", i, path, error.message);
      return 1;
    }
    snprintf(topo->source, sizeof(topo->source), "machine %d", i);
    colli_topo_print(topo, stdout);
    colli_topo_free(topo);
  }
  print_ranks(c);
  return 0;
}
