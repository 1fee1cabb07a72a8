/* report_cells.c: predicted and measured times of every algorithm, and the cost of determinism. */
#include <string.h>

#include "perf.h"

/* The columns that begin every line. */
static void print_titles(void) {
  printf("#\n#%11s %12s %13s %7s %7s", "size", "count", "type", "redop", "root");
}

static void print_units(void) {
  printf("\n#%11s %12s %13s %7s %7s", "(B)", "(elements)", "", "", "");
}

void perf_print_cells_head(const perf_options *options) {
  print_titles();
  if (options->all_algos) {
    printf("  %-16s %11s %11s %8s %8s %6s", "algorithm", "predicted", "measured", "measured/",
           "of best", "#wrong");
    print_units();
    printf("  %-16s %11s %11s %8s %8s %6s\n", "* chosen", "(us)", "(us)", "predicted", "", "");
  } else {
    printf(" %11s %11s %11s %8s %8s", "off", "on", "ordered", "on", "ordered");
    print_units();
    printf(" %11s %11s %11s %8s %8s\n", "(us)", "(us)", "(us)", "/ off", "/ off");
  }
  fflush(stdout);
}

/* Prints all algorithms of a cell. */
static void print_algos(const perf_options *options, const perf_cell *cell) {
  for (int i = 0; i < cell->count; i++) {
    const perf_variant *variant = &cell->variant[i];
    perf_print_question(options, &cell->line);
    printf(" %c%-16s %11.2f %11.2f %9.2f %8.2f", variant->chosen ? '*' : ' ', variant->name,
           variant->predicted_us, variant->us,
           variant->predicted_us > 0 ? variant->us / variant->predicted_us : 0, variant->of_best);
    if (variant->wrong < 0)
      printf(" %6s\n", "N/A");
    else
      printf(" %6lld\n", variant->wrong);
  }
}

void perf_print_cell(const perf_options *options, const perf_cell *cell) {
  if (options->all_algos) {
    print_algos(options, cell);
  } else {
    const perf_variant *level = cell->variant;
    perf_print_question(options, &cell->line);
    printf(" %11.2f %11.2f %11.2f %8.2f %8.2f\n", level[0].us, level[1].us, level[2].us,
           level[1].us / level[0].us, level[2].us / level[0].us);
  }
  fflush(stdout);
}

/* Whether a cell's chosen algorithm was within PERF_WITHIN of the best one. */
static bool is_good(const perf_cell *cell) {
  int chosen = perf_chosen(cell);
  return chosen >= 0 && cell->variant[chosen].of_best <= PERF_WITHIN;
}

/* How many cells are good. */
static int count_good(const perf_cell *cells, int ncells) {
  int good = 0;
  for (int i = 0; i < ncells; i++)
    good += is_good(&cells[i]);
  return good;
}

void perf_print_cells_foot(const perf_options *options, const perf_cell *cells, int ncells) {
  long long wrong = 0;
  for (int i = 0; i < ncells; i++)
    for (int k = 0; k < cells[i].count; k++)
      wrong += cells[i].variant[k].wrong > 0 ? cells[i].variant[k].wrong : 0;
  if (options->check)
    printf("# Out of bounds values : %lld %s\n", wrong, wrong ? "FAILED" : "OK");
  if (options->all_algos) {
    int good = count_good(cells, ncells);
    printf("# Chosen within %.0f %% of the best: %d of %d cells (%.1f %%)\n#\n",
           (PERF_WITHIN - 1) * 100, good, ncells, ncells ? 100.0 * good / ncells : 0);
  } else {
    double on = 0, ordered = 0;
    for (int i = 0; i < ncells; i++) {
      on += cells[i].variant[1].us / cells[i].variant[0].us;
      ordered += cells[i].variant[2].us / cells[i].variant[0].us;
    }
    printf("# Cost of determinism, mean ratio: on %.2f, ordered %.2f\n#\n",
           ncells ? on / ncells : 0, ncells ? ordered / ncells : 0);
  }
}

/* Writes all cells as one JSON object; 0, or -1 with errno. */
int perf_write_cells_json(const perf_options *options, int nranks, const perf_cell *cells,
                          int ncells) {
  bool standard = strcmp(options->json, "-") == 0;
  FILE *out = standard ? stdout : fopen(options->json, "w");
  if (!out)
    return -1;
  perf_json_head(out, options, nranks);
  if (options->all_algos)
    fprintf(out, "\"cells\": %d, \"within_10_percent\": %d, ", ncells, count_good(cells, ncells));
  fprintf(out, "\"results\": [");
  for (int i = 0; i < ncells; i++) {
    const perf_cell *cell = &cells[i];
    fprintf(out, "%s\n  {", i ? "," : "");
    perf_json_question(out, options, &cell->line);
    fprintf(out, "\"%s\": [", options->all_algos ? "algorithms" : "deterministic");
    for (int k = 0; k < cell->count; k++) {
      const perf_variant *variant = &cell->variant[k];
      fprintf(out, "%s\n    {\"name\": \"%s\", \"time_us\": %.4f", k ? "," : "", variant->name,
              variant->us);
      if (options->all_algos)
        fprintf(out, ", \"predicted_us\": %.4f, \"of_best\": %.4f, \"chosen\": %s",
                variant->predicted_us, variant->of_best, variant->chosen ? "true" : "false");
      fprintf(out, "}");
    }
    fprintf(out, "]}");
  }
  fprintf(out, "\n]}\n");
  int failed = ferror(out);
  if (!standard && fclose(out) != 0)
    failed = 1;
  return failed ? -1 : 0;
}
