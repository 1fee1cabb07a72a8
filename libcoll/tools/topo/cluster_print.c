/* cluster_print.c: prints a cluster that was read from a file. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/tools/topo/gather.h"

/* Reads a machine by way of a file, because hwloc reads damaged ones in a child (topology/apart.c).
 */
static coll_status load(const cluster_machine *machine, colli_topo **topo, coll_error *error) {
  char path[] = "/tmp/coll_topo-XXXXXX.xml";
  const int fd = mkstemps(path, 4);
  FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
  coll_status status = COLL_ERR_SYSTEM;
  if (file == NULL) {
    snprintf(error->message, sizeof(error->message), "%s: %s", path, strerror(errno));
    if (fd < 0)
      return status;
    (void)close(fd);
  } else {
    const bool written = fwrite(machine->xml, 1, machine->bytes, file) == machine->bytes;
    if (fclose(file) == 0 && written)
      status = colli_topo_load(path, topo, error);
    else
      snprintf(error->message, sizeof(error->message), "%s: cannot be written: %s", path,
               strerror(errno));
  }
  (void)unlink(path);
  return status;
}

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
    if (load(&c->machines[i], &topo, &error) != COLL_OK) {
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
