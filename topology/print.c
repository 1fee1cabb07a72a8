/* print.c: the machine as a tree for people to read. */
#include <inttypes.h>
#include <string.h>

#include "topology/topology.h"

static const char *const kind_names[] = {"network", "RDMA", "GPU"};

/* Writes a size in the largest unit that leaves it whole or above 1. */
static const char *size_text(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"bytes", "KiB", "MiB", "GiB"};
  double size = (double)bytes;
  int unit = 0;
  while (size >= 1024 && unit < 3) {
    size /= 1024;
    unit++;
  }
  snprintf(text, 32, "%.*f %s", size == (double)(uint64_t)size ? 0 : 1, size, units[unit]);
  return text;
}

/* Whether two cores share package, NUMA node and L3 cache, and so belong on one line. */
static bool same_group(const colli_topo_core *a, const colli_topo_core *b) {
  return a->package == b->package && a->numa_node == b->numa_node && a->l3 == b->l3;
}

/* Prints the allowed or forbidden cores of [first, end) as ranges: "cores 0-3,6". */
static void print_ranges(const colli_topo *topo, int first, int end, bool allowed, FILE *out) {
  const char *comma = allowed ? "cores " : " (not for this process: ";
  bool any = false;
  for (int c = first; c < end; c++) {
    if (topo->cores[c].allowed != allowed)
      continue;
    int last = c;
    while (last + 1 < end && topo->cores[last + 1].allowed == allowed)
      last++;
    fprintf(out, last > c ? "%s%d-%d" : "%s%d", comma, c, last);
    comma = ",";
    any = true;
    c = last;
  }
  if (any && !allowed)
    fputc(')', out);
}

/* Prints one device, indented. */
static void print_device(const colli_topo *topo, const colli_topo_device *device, int indent,
                         FILE *out) {
  char nearest[COLLI_TOPO_NEAREST], nvlinks[COLLI_TOPO_NVLINKS];
  fprintf(out, "%*s%s %s", indent, "", kind_names[device->kind], device->name);
  if (device->bus[0] != '\0')
    fprintf(out, " at %s", device->bus);
  if (device->link_mbit > 0)
    fprintf(out, ", %g Gbit/s", device->link_mbit / 1000);
  if (*colli_topo_nearest_cards(topo, device->bus, nearest))
    fprintf(out, ", %s", nearest);
  if (*colli_topo_nvlinks_text(topo, (int)(device - topo->devices), nvlinks))
    fprintf(out, "; %s", nvlinks);
  fputc('\n', out);
}

/* Prints the devices that are near one NUMA node; -1: those that are near none in particular. */
static void print_devices(const colli_topo *topo, int node, int indent, FILE *out) {
  for (int d = 0; d < topo->ndevices; d++)
    if (topo->devices[d].numa_node == node)
      print_device(topo, &topo->devices[d], indent, out);
}

/* Whether cores before `core` belong to its NUMA node already: its devices were printed. */
static bool node_seen(const colli_topo *topo, int core) {
  for (int c = 0; c < core; c++)
    if (topo->cores[c].numa_node == topo->cores[core].numa_node)
      return true;
  return false;
}

/* Prints the headings that change with a core: package, then NUMA node. */
static void print_headings(const colli_topo *topo, int c, FILE *out) {
  const colli_topo_core *core = &topo->cores[c];
  const colli_topo_core *before = c > 0 ? core - 1 : NULL;
  bool package = before == NULL || before->package != core->package;
  if (package && core->package >= 0)
    fprintf(out, "  package %d\n", core->package);
  if (core->numa_node >= 0 && (package || before->numa_node != core->numa_node)) {
    fprintf(out, "    NUMA node %d\n", core->numa_node);
    if (!node_seen(topo, c))
      print_devices(topo, core->numa_node, 6, out);
  }
}

/* Prints the whole machine. */
void colli_topo_print(const colli_topo *topo, FILE *out) {
  char memory[32], l3[32], l2[32];
  fprintf(out,
          "%s: packages %d, NUMA nodes %d, cores %d (%d for this process), hardware threads %d",
          topo->source, topo->npackages, topo->nnuma, topo->ncores, colli_topo_allowed_cores(topo),
          topo->npus);
  if (topo->memory_bytes > 0)
    fprintf(out, ", memory %s", size_text(topo->memory_bytes, memory));
  fputc('\n', out);
  if (topo->nl3 > 0)
    fprintf(out, "  L3 caches: %d of %s\n", topo->nl3, size_text(topo->l3_bytes, l3));
  if (topo->nl2 > 0)
    fprintf(out, "  L2 caches: %d of %s\n", topo->nl2, size_text(topo->l2_bytes, l2));
  for (int first = 0, end; first < topo->ncores; first = end) {
    for (end = first + 1; end < topo->ncores; end++)
      if (!same_group(&topo->cores[first], &topo->cores[end]))
        break;
    print_headings(topo, first, out);
    fputs("      ", out);
    if (topo->cores[first].l3 >= 0)
      fprintf(out, "L3 cache %d: ", topo->cores[first].l3);
    print_ranges(topo, first, end, true, out);
    print_ranges(topo, first, end, false, out);
    fputc('\n', out);
  }
  bool lost = false;
  for (int d = 0; d < topo->ndevices; d++)
    lost = lost || topo->devices[d].numa_node < 0;
  if (lost) {
    fputs("  near no NUMA node in particular\n", out);
    print_devices(topo, -1, 4, out);
  }
  colli_topo_print_nvlinks(topo, out);
}
