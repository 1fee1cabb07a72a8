/* report.c: nccl-tests' columns, JSON, and comma-separated values. */
#include <string.h>

#include "calls.h"

/* Collectives that have no in-place form have dashes there. */
static bool has_in_place(const perf_options *options) {
  return options->what != PERF_BARRIER && options->what != PERF_SENDRECV;
}

/* The columns behind those of nccl-tests. */
static void print_more_names(const perf_options *options) {
  if (options->window)
    printf(" %9s", "Mmsg/s");
  for (int half = 0; options->percentiles && half < 1 + has_in_place(options); half++)
    printf(" %9s %9s %9s %9s", half ? "in: min" : "min", "median", "p99", "max");
}

/* How operations are called on GPU memory. */
static const char *calls_of(const perf_options *options) {
  if (options->launches)
    return "graph";
  return perf_is_streamed(options) ? "stream" : options->overlap ? "nonblocking" : "blocking";
}

void perf_print_head(const perf_options *options, int nranks) {
  printf("# coll_perf %s, libcoll %d.%d.%d, %d ranks%s\n", options->traits->name,
         coll_version() / 10000, coll_version() / 100 % 100, coll_version() % 100, nranks,
         options->threads ? " as threads" : "");
  printf("# minBytes %zu maxBytes %zu step: %g(%s) warmup iters: %d iters: %s validation: %d\n",
         options->min_bytes, options->max_bytes,
         options->step_bytes ? (double)options->step_bytes : options->step_factor,
         options->step_bytes ? "bytes" : "factor", options->warmup,
         options->iters || options->launches ? "fixed" : "chosen", options->check);
  if (options->device)
    printf("# memory: cuda, %s; calls: %s; rank 0 on GPU %d of %d (%s)\n",
           options->device->direct ? "direct where GPUs reach each other"
                                   : "staged through host memory",
           calls_of(options), options->device->ordinal, options->device->count,
           options->device->name);
  if (options->all_algos || options->deterministic == PERF_ALL || options->overlap)
    return;
  printf("#\n#%71s%s%28s%s\n", "", "out-of-place", "", "in-place");
  printf("#%11s %12s %13s %7s %7s", "size", "count", "type", "redop", "root");
  for (int half = 0; half < 2; half++)
    printf(" %9s %7s %7s %6s", "time", "algbw", "busbw", "#wrong");
  print_more_names(options);
  printf("\n#%11s %12s %13s %7s %7s", "(B)", "(elements)", "", "", "");
  for (int half = 0; half < 2; half++)
    printf(" %9s %7s %7s %6s", "(us)", "(GB/s)", "(GB/s)", "");
  printf("\n");
  fflush(stdout);
}

static void print_sample(const perf_sample *sample, bool present) {
  if (!present) {
    printf(" %9s %7s %7s %6s", "-", "-", "-", "-");
    return;
  }
  printf(sample->us < 100 ? " %9.2f" : " %9.1f", sample->us);
  printf(" %7.2f %7.2f", sample->algbw, sample->busbw);
  if (sample->wrong < 0)
    printf(" %6s", "N/A");
  else
    printf(" %6lld", sample->wrong);
}

void perf_print_question(const perf_options *options, const perf_line *line) {
  char root[16] = "-1";
  if (options->traits->rooted)
    snprintf(root, sizeof(root), "%d", line->root);
  printf("%12zu %12zu %13s %7s %7s", line->bytes, line->count, perf_type_name(line->type),
         options->traits->reduces ? perf_op_name(line->op) : "none", root);
}

/* Millions of messages that all ranks together send in a second. */
static double message_rate(const perf_options *options, const perf_sample *sample) {
  return sample->us > 0 ? sample->messages / options->window / sample->us : 0;
}

static void print_time(double us) {
  printf(us < 100 ? " %9.2f" : " %9.1f", us);
}

static void print_more(const perf_options *options, const perf_line *line) {
  const perf_sample *halves[] = {&line->out_of_place, &line->in_place};
  if (options->window)
    printf(" %9.3f", message_rate(options, halves[0]));
  for (int half = 0; options->percentiles && half < 1 + has_in_place(options); half++) {
    print_time(halves[half]->least_us);
    print_time(halves[half]->median_us);
    print_time(halves[half]->p99_us);
    print_time(halves[half]->most_us);
  }
}

void perf_print_line(const perf_options *options, const perf_line *line) {
  perf_print_question(options, line);
  print_sample(&line->out_of_place, true);
  print_sample(&line->in_place, has_in_place(options));
  print_more(options, line);
  printf("\n");
  fflush(stdout);
}

void perf_print_foot(const perf_line *lines, int nlines, bool check) {
  double sum = 0;
  long long wrong = 0;
  for (int i = 0; i < nlines; i++) {
    sum += lines[i].out_of_place.busbw + lines[i].in_place.busbw;
    wrong += lines[i].out_of_place.wrong + lines[i].in_place.wrong;
  }
  if (check)
    printf("# Out of bounds values : %lld %s\n", wrong, wrong ? "FAILED" : "OK");
  printf("# Avg bus bandwidth    : %g\n#\n", nlines ? sum / (2 * nlines) : 0);
}

static void json_sample(FILE *out, const perf_options *options, const char *name,
                        const perf_sample *sample) {
  fprintf(out, "\"%s\": {\"time_us\": %.4f, \"algbw\": %.4f, \"busbw\": %.4f, ", name, sample->us,
          sample->algbw, sample->busbw);
  if (options->window)
    fprintf(out, "\"messages_per_us\": %.4f, ", message_rate(options, sample));
  if (options->percentiles)
    fprintf(out, "\"min_us\": %.4f, \"median_us\": %.4f, \"p99_us\": %.4f, \"max_us\": %.4f, ",
            sample->least_us, sample->median_us, sample->p99_us, sample->most_us);
  fprintf(out, "\"wrong\": ");
  if (sample->wrong < 0)
    fprintf(out, "null}");
  else
    fprintf(out, "%lld}", sample->wrong);
}

void perf_json_question(FILE *out, const perf_options *options, const perf_line *line) {
  fprintf(out,
          "\"size\": %zu, \"count\": %zu, \"type\": \"%s\", \"redop\": \"%s\", "
          "\"root\": %d, \"iters\": %d, ",
          line->bytes, line->count, perf_type_name(line->type),
          options->traits->reduces ? perf_op_name(line->op) : "none",
          options->traits->rooted ? line->root : -1, line->iters);
}

/* One half of a line; values that were not measured are empty. */
static void csv_row(FILE *out, const perf_options *options, int nranks, const perf_line *line,
                    const char *half) {
  const perf_sample *sample = *half == 'o' ? &line->out_of_place : &line->in_place;
  fprintf(out, "%s,%d,%zu,%zu,%s,%s,%d,%d,%s,%.4f,%.4f,%.4f,", options->traits->name, nranks,
          line->bytes, line->count, perf_type_name(line->type),
          options->traits->reduces ? perf_op_name(line->op) : "none",
          options->traits->rooted ? line->root : -1, line->iters, half, sample->us, sample->algbw,
          sample->busbw);
  if (options->window)
    fprintf(out, "%.4f", message_rate(options, sample));
  if (options->percentiles)
    fprintf(out, ",%.4f,%.4f,%.4f,%.4f,", sample->least_us, sample->median_us, sample->p99_us,
            sample->most_us);
  else
    fprintf(out, ",,,,,");
  if (sample->wrong >= 0)
    fprintf(out, "%lld", sample->wrong);
  fprintf(out, "\n");
}

int perf_write_csv(const perf_options *options, int nranks, const perf_line *lines, int nlines) {
  bool standard = strcmp(options->csv, "-") == 0;
  FILE *out = standard ? stdout : fopen(options->csv, "w");
  if (!out)
    return -1;
  fprintf(out, "collective,nranks,size,count,type,redop,root,iters,half,time_us,algbw,busbw,"
               "messages_per_us,min_us,median_us,p99_us,max_us,wrong\n");
  for (int i = 0; i < nlines; i++) {
    csv_row(out, options, nranks, &lines[i], "out_of_place");
    if (has_in_place(options))
      csv_row(out, options, nranks, &lines[i], "in_place");
  }
  int failed = ferror(out);
  if (!standard && fclose(out) != 0)
    failed = 1;
  return failed ? -1 : 0;
}

void perf_json_head(FILE *out, const perf_options *options, int nranks) {
  fprintf(out, "{\"collective\": \"%s\", \"nranks\": %d, \"version\": %d, \"memory\": \"%s\", ",
          options->traits->name, nranks, coll_version(), options->device ? "cuda" : "host");
  if (options->device)
    fprintf(out, "\"staged\": %s, \"calls\": \"%s\", \"graph_launches\": %d, \"device\": \"%s\", ",
            options->device->direct ? "false" : "true", calls_of(options), options->launches,
            options->device->name);
}

/* Writes all lines as one JSON object; 0, or -1 with errno. */
int perf_write_json(const perf_options *options, int nranks, const perf_line *lines, int nlines) {
  bool standard = strcmp(options->json, "-") == 0;
  FILE *out = standard ? stdout : fopen(options->json, "w");
  if (!out)
    return -1;
  perf_json_head(out, options, nranks);
  fprintf(out, "\"results\": [");
  for (int i = 0; i < nlines; i++) {
    const perf_line *line = &lines[i];
    fprintf(out, "%s\n  {", i ? "," : "");
    perf_json_question(out, options, line);
    json_sample(out, options, "out_of_place", &line->out_of_place);
    if (has_in_place(options)) {
      fprintf(out, ", ");
      json_sample(out, options, "in_place", &line->in_place);
    }
    fprintf(out, "}");
  }
  fprintf(out, "\n]}\n");
  int failed = ferror(out);
  if (!standard && fclose(out) != 0)
    failed = 1;
  return failed ? -1 : 0;
}
