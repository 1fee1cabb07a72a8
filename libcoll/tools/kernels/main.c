/*
 * main.c: coll_kernels measures the reduction kernels against the memory bandwidth. It prints a
 * line for each type and operation, with the percentage for each instruction set and size.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

#include "kernels.h"

#define ALIGNMENT 4096
#define ENOUGH    90.0 /* the percentage of the limit that the summary counts */

/* What all lines share. */
typedef struct run {
  kernels_options options;
  kernels_memory memory;
  FILE *csv;
  int cells[COLLI_ISA_COUNT][KERNELS_SIZES], enough[COLLI_ISA_COUNT][KERNELS_SIZES];
} run;

/* Whether an instruction set is selected and available. */
static bool has_isa(const run *r, int isa) {
  return (r->options.isa == KERNELS_ALL || r->options.isa == isa) &&
         colli_kernels_for((colli_isa)isa);
}

/* Allocates a buffer of the largest size; the program ends without it. */
static void *buffer(const kernels_options *o) {
  size_t most = 0;
  for (int i = 0; i < o->nsizes; i++)
    most = o->sizes[i] > most ? o->sizes[i] : most;
  void *memory = NULL;
  if (posix_memalign(&memory, ALIGNMENT, most) != 0) {
    fprintf(stderr, "coll_kernels: out of memory for 4 buffers of %zu bytes: use smaller --sizes\n",
            most);
    exit(1);
  }
  return memory;
}

/* Prints a size as it was given. */
static void print_size(size_t bytes) {
  bool mega = bytes % (1u << 20) == 0;
  printf(" %5zu%c", bytes >> (mega ? 20 : 10), mega ? 'M' : 'K');
}

/* Heads of the columns. */
static void print_head(const run *r) {
  const kernels_options *o = &r->options;
  printf("%-12s %-7s %-8s", "# % of limit", "", "");
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++)
    if (has_isa(r, isa))
      printf(" %*s", 7 * o->nsizes, colli_isa_name((colli_isa)isa));
  printf("\n%-12s %-7s %-8s", "# type", "op", "form");
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    if (!has_isa(r, isa))
      continue;
    printf(" ");
    for (int i = 0; i < o->nsizes; i++)
      print_size(o->sizes[i]);
  }
  printf("\n");
}

/* Measures one cell of the table. */
static void cell(run *r, const kernels_work *work, int size) {
  if (!kernels_exists(work)) {
    printf(" %6s", "-");
    return;
  }
  kernels_rate rate = kernels_measure(work, r->options.ms);
  double percent = 100 * rate.kernel / rate.limit;
  printf(" %6.0f", percent);
  fflush(stdout);
  colli_isa isa = work->kernels->isa;
  r->cells[isa][size]++;
  r->enough[isa][size] += percent >= ENOUGH;
  if (r->csv)
    fprintf(r->csv, "%s,%s,%s,%s,%zu,%.3f,%.3f,%.1f\n", colli_isa_name(isa),
            kernels_type_name((int)work->type), kernels_op_name((int)work->op),
            kernels_form_name((int)work->form), work->bytes, rate.kernel, rate.limit, percent);
}

/* One line: a kernel, in each instruction set and size. */
static void line(run *r, coll_type type, coll_op op, kernels_form form) {
  printf("%-12s %-7s %-8s", kernels_type_name((int)type), kernels_op_name((int)op),
         kernels_form_name((int)form));
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    if (!has_isa(r, isa))
      continue;
    printf(" ");
    kernels_work work = {.memory = &r->memory,
                         .kernels = colli_kernels_for((colli_isa)isa),
                         .form = form,
                         .type = type,
                         .op = op};
    for (int i = 0; i < r->options.nsizes; i++) {
      work.bytes = r->options.sizes[i];
      cell(r, &work, i);
    }
  }
  printf("\n");
}

/* Prints all requested lines. AVG sums like SUM, so its sum is not measured again. */
static void lines(run *r) {
  const kernels_options *o = &r->options;
  const colli_kernels *k = colli_kernels_best();
  for (int type = 0; type < COLL_TYPE_COUNT; type++)
    for (int op = 0; op < COLL_OP_COUNT; op++) {
      if (!k->reduce[type][op] || op == COLL_AVG || (o->type != KERNELS_ALL && o->type != type) ||
          (o->op != KERNELS_ALL && o->op != op))
        continue;
      for (int form = 0; form < FORM_COUNT; form++) {
        bool once = o->form == KERNELS_ALL ? form != FORM_ONE : form >= FORM_AVERAGE;
        if ((o->form == KERNELS_ALL || o->form == form) && (!once || op == COLL_SUM))
          line(r, (coll_type)type, (coll_op)op, (kernels_form)form);
      }
    }
}

/* How many kernels are fast enough. */
static void print_summary(const run *r) {
  for (int isa = 0; isa < COLLI_ISA_COUNT; isa++) {
    if (!has_isa(r, isa))
      continue;
    printf("# %s: at least %.0f %% of the limit:", colli_isa_name((colli_isa)isa), ENOUGH);
    for (int i = 0; i < r->options.nsizes; i++) {
      print_size(r->options.sizes[i]);
      printf(": %d of %d", r->enough[isa][i], r->cells[isa][i]);
    }
    printf("\n");
  }
}

int main(int argc, char **argv) {
  run r = {.options = kernels_read_options(argc, argv)};
  if (r.options.csv && !(r.csv = fopen(r.options.csv, "w"))) {
    perror(r.options.csv);
    return 1;
  }
  r.memory = (kernels_memory){buffer(&r.options), buffer(&r.options), buffer(&r.options),
                              buffer(&r.options)};
  if (r.csv)
    fprintf(r.csv, "isa,type,op,form,bytes,gb_per_s,limit_gb_per_s,percent\n");
  print_head(&r);
  lines(&r);
  print_summary(&r);
  bool written = !r.csv || fclose(r.csv) == 0;
  if (!written)
    perror(r.options.csv);
  free(r.memory.a);
  free(r.memory.b);
  free(r.memory.to);
  free(r.memory.to2);
  return written ? 0 : 1;
}
