/* gpus_print.c: GPUs and their pairs, for people to read. */
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/tools/topo/gpus.h"

#define CELL 20 /* bytes of what a table says about a pair */

/* What a table shows. */
typedef void write_cell(const topo_gpus *gpus, int from, int to, char text[CELL]);

/* ---- one GPU --------------------------------------------------------------------------------- */

/* Prints where the NVLinks of a GPU go. */
static void print_links(const topo_gpus *gpus, int i, FILE *out) {
  const char *comma = "; NVLinks: ";
  for (int to = 0; to < gpus->count; to++)
    if (topo_gpus_pair(gpus, i, to)->links > 0) {
      fprintf(out, "%s%d to GPU %d", comma, topo_gpus_pair(gpus, i, to)->links, to);
      comma = ", ";
    }
  if (gpus->gpus[i].switch_links > 0) {
    fprintf(out, "%s%d to switches", comma, gpus->gpus[i].switch_links);
    comma = ", ";
  }
  if (gpus->gpus[i].more_links > 0)
    fprintf(out, "%s%d to other devices", comma, gpus->gpus[i].more_links);
}

/* Prints a line about a GPU. */
static void print_gpu(const topo_gpus *gpus, int i, const char *indent, FILE *out) {
  const topo_gpu *gpu = &gpus->gpus[i];
  char nearest[COLLI_TOPO_NEAREST];
  fprintf(out, "%sGPU %d: %s", indent, i, gpu->name);
  if (gpu->uuid[0])
    fprintf(out, ", %s", gpu->uuid);
  if (gpu->bus[0])
    fprintf(out, ", at %s", gpu->bus);
  if (gpu->place && gpu->place->place.numa_node >= 0)
    fprintf(out, ", NUMA node %d", gpu->place->place.numa_node);
  if (gpu->place && gpu->place->package >= 0)
    fprintf(out, ", package %d", gpu->place->package);
  if (*colli_topo_nearest_cards(gpus->topo, gpu->bus, nearest))
    fprintf(out, ", %s", nearest);
  print_links(gpus, i, out);
  fputc('\n', out);
}

/* ---- tables ---------------------------------------------------------------------------------- */

static void write_access(const topo_gpus *gpus, int from, int to, char text[CELL]) {
  const topo_gpu_pair *pair = topo_gpus_pair(gpus, from, to);
  if (from == to)
    strcpy(text, "-");
  else if (!pair->access || pair->speed_rank < 0)
    strcpy(text, pair->access ? "yes" : "no");
  else
    snprintf(text, CELL, "yes:%d", pair->speed_rank);
}

static void write_links(const topo_gpus *gpus, int from, int to, char text[CELL]) {
  const int direct = topo_gpus_pair(gpus, from, to)->links;
  const int a = gpus->gpus[from].switch_links, b = gpus->gpus[to].switch_links;
  if (from == to)
    strcpy(text, "-");
  else if (direct == 0 && a > 0 && b > 0)
    snprintf(text, CELL, "switch:%d", a < b ? a : b);
  else
    snprintf(text, CELL, "%d", direct);
}

static void write_distance(const topo_gpus *gpus, int from, int to, char text[CELL]) {
  static const char *const words[] = {[COLLI_PCI_SWITCH] = "switch",
                                      [COLLI_PCI_HOST_BRIDGE] = "bridge",
                                      [COLLI_PCI_NODE] = "node",
                                      [COLLI_PCI_SYSTEM] = "system",
                                      [COLLI_PCI_UNKNOWN] = "?"};
  strcpy(text, from == to ? "-" : words[topo_gpus_pair(gpus, from, to)->distance]);
}

static void write_mode(const topo_gpus *gpus, int from, int to, char text[CELL]) {
  const char *reason;
  snprintf(text, CELL, "%s",
           colli_param_word(COLLI_PARAM_GPU_MODE, topo_gpus_mode(gpus, from, to, &reason)));
}

/* Prints one table. */
static void print_table(const topo_gpus *gpus, const char *title, write_cell *cell, FILE *out) {
  char text[CELL];
  fprintf(out, "\n%s\n%6s", title, "");
  for (int to = 0; to < gpus->count; to++)
    fprintf(out, " %9d", to);
  for (int from = 0; from < gpus->count; from++) {
    fprintf(out, "\n%6d", from);
    for (int to = 0; to < gpus->count; to++) {
      cell(gpus, from, to, text);
      fprintf(out, " %9s", text);
    }
  }
  fputc('\n', out);
}

/* ---- reasons --------------------------------------------------------------------------------- */

/* Whether a pair is the first one, row by row, with its mode and reason; how many there are. */
static int count_alike(const topo_gpus *gpus, int a, int b, bool *first) {
  const char *reason, *other;
  const colli_gpu_mode mode = topo_gpus_mode(gpus, a, b, &reason);
  int count = 0;
  *first = true;
  for (int i = 0; i < gpus->count; i++)
    for (int j = i; j < gpus->count; j++) {
      if ((i == j) != (a == b) || topo_gpus_mode(gpus, i, j, &other) != mode || other != reason)
        continue;
      *first &= count > 0 || (i == a && j == b);
      count++;
    }
  return count;
}

/* Prints why pairs have their modes, each reason once. */
static void print_reasons(const topo_gpus *gpus, const char *indent, FILE *out) {
  for (int a = 0; a < gpus->count; a++)
    for (int b = a; b < gpus->count; b++) {
      bool first;
      const char *reason;
      const int count = count_alike(gpus, a, b, &first);
      if (!first)
        continue;
      const char *mode =
          colli_param_word(COLLI_PARAM_GPU_MODE, topo_gpus_mode(gpus, a, b, &reason));
      if (a == b)
        fprintf(out, "%s%s, ranks on one GPU: %s\n", indent, mode, reason);
      else
        fprintf(out, "%s%s, %d pair%s of GPUs (the first %d and %d): %s\n", indent, mode, count,
                count == 1 ? "" : "s", a, b, reason);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

void topo_gpus_print(const topo_gpus *gpus, FILE *out) {
  if (gpus->count == 0) {
    fprintf(out, "\nGPUs\n  none: %s\n", gpus->why_none);
    return;
  }
  fprintf(out, "\nGPUs, by CUDA %d.%d\n", gpus->version / 1000, gpus->version % 1000 / 10);
  for (int i = 0; i < gpus->count; i++)
    print_gpu(gpus, i, "  ", out);
  if (!gpus->has_links)
    fprintf(out, "  NVLinks are not known: %s\n", gpus->no_links);
  if (gpus->count > 1) {
    print_table(gpus,
                "peer access from GPU (line) to GPU (column), and rank of its speed: 0 is best",
                write_access, out);
    if (gpus->has_links)
      print_table(gpus, "NVLinks between GPUs; switch:N: each has N to switches", write_links, out);
    print_table(gpus,
                "PCI between GPUs: through a switch, a host bridge, inside a NUMA node, or between "
                "them",
                write_distance, out);
    print_table(gpus, "mode of calls in streams between ranks on GPUs, or on the same one",
                write_mode, out);
  }
  fputs("\nwhy (a communicator whose pairs all have another mode than staged has one for all: "
        "ordered "
        "before\nspin; else, where ranks form groups of equal size that have, as on several hosts, "
        "long "
        "calls are\ndivided among the ranks of a group, and all else is staged)\n",
        out);
  print_reasons(gpus, "  ", out);
}

void topo_gpus_print_short(const topo_gpus *gpus, FILE *out) {
  for (int i = 0; i < gpus->count; i++)
    print_gpu(gpus, i, "", out);
  print_reasons(gpus, "calls in streams: ", out);
}
