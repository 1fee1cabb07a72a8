/*
 * main.c: coll_calibrate measures the cost of messages on this machine and writes it to a file,
 * which libcoll then uses to choose algorithms; or, as a rank of a run, the links between hosts.
 */
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "calibrate.h"
#include "hosts.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/param.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/calibration.h"

#define USAGE_STATUS 2
#define SECONDS      12   /* to measure the costs */
#define SURVEY       40   /* times as long to measure the algorithms, in several passes */
#define TURN_US      8000 /* of one algorithm's turn, as in coll_perf, unless time is short */

/* The command line. */
typedef struct wishes {
  const char *output; /* NULL: the default; "-": no file */
  double seconds;
  int nranks; /* whose algorithms are measured; 0: all numbers of ranks */
  bool quick;
  bool verbose;
  bool hosts;
} wishes;

static const char help[] =
    "Usage: coll_calibrate [options]\n"
    "       collrun --hosts a,b,... coll_calibrate --hosts [-o FILE]\n"
    "\n"
    "Measures the cost of messages on this machine, over shared memory and TCP, for ranks with\n"
    "their own cores and ranks that share cores. Writes it to a file, which libcoll then uses to\n"
    "choose algorithms. The machine should be otherwise idle.\n"
    "\n"
    "  -o, --output FILE    the file to write (default: COLL_CALIBRATION, or\n"
    "                       $XDG_CACHE_HOME/libcoll/calibration, or\n"
    "                       ~/.cache/libcoll/calibration); \"-\": only print\n"
    "      --seconds S      time to measure the costs, about (default 12); measuring the\n"
    "                       algorithms takes up to 40 times as long\n"
    "  -n, --ranks N        measure the algorithms with N ranks only: 2, 3, 4 or 8\n"
    "  -q, --quick          measure only the costs of messages, not all algorithms with 2, 3, 4\n"
    "                       and 8 ranks, which takes some minutes and makes the choice between\n"
    "                       them much better\n"
    "      --hosts          instead, as a rank of a run on several hosts, measure the links "
    "between\n"
    "                       them, and print which hosts are near each other, which are slow, and\n"
    "                       COLL_LEVELS and COLL_LINK_SPEED for each; with --output, write a file\n"
    "                       for COLL_LEVELS=file:FILE\n"
    "  -v, --verbose        print every measurement\n"
    "  -h, --help           this text\n";

/* A number of ranks with which algorithms are measured. */
static int parse_ranks(const char *text) {
  char *end;
  long nranks = strtol(text, &end, 10);
  for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++)
    if (end != text && !*end && nranks == colli_corrected_ranks[w])
      return (int)nranks;
  fprintf(stderr, "coll_calibrate: --ranks takes 2, 3, 4 or 8, not '%s'\n", text);
  exit(USAGE_STATUS);
}

/* How long to measure. */
static double parse_seconds(const char *text) {
  char *end;
  const double seconds = strtod(text, &end);
  if (end != text && !*end && seconds >= 0.01 && seconds <= 3600)
    return seconds;
  fprintf(stderr, "coll_calibrate: --seconds takes 0.01 to 3600, not '%s'\n", text);
  exit(USAGE_STATUS);
}

/* Refuses what options do not have in common. */
static void check(const wishes *w, int argc, char **argv) {
  if (optind < argc)
    fprintf(stderr, "coll_calibrate: unknown argument '%s' (see coll_calibrate --help)\n",
            argv[optind]);
  else if (w->hosts && (w->quick || w->verbose || w->nranks > 0 || w->seconds > 0))
    fputs("coll_calibrate: with --hosts there is only --output: it measures other things\n",
          stderr);
  else
    return;
  exit(USAGE_STATUS);
}

/* Reads the command line. */
static wishes parse_options(int argc, char **argv) {
  static const struct option longs[] = {
      {"output", required_argument, NULL, 'o'}, {"seconds", required_argument, NULL, 's'},
      {"hosts", no_argument, NULL, 'H'},        {"quick", no_argument, NULL, 'q'},
      {"ranks", required_argument, NULL, 'n'},  {"verbose", no_argument, NULL, 'v'},
      {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
  wishes w = {0};
  int option;
  while ((option = getopt_long(argc, argv, "o:n:qvh", longs, NULL)) != -1)
    switch (option) {
    case 'o':
      w.output = optarg;
      break;
    case 's':
      w.seconds = parse_seconds(optarg);
      break;
    case 'H':
      w.hosts = true;
      break;
    case 'n':
      w.nranks = parse_ranks(optarg);
      break;
    case 'q':
      w.quick = true;
      break;
    case 'v':
      w.verbose = true;
      break;
    case 'h':
      fputs(help, stdout);
      exit(0);
    default:
      exit(USAGE_STATUS); /* getopt_long has printed why */
    }
  check(&w, argc, argv);
  w.seconds = w.seconds > 0 ? w.seconds : SECONDS;
  return w;
}

/* The processors that this process may use. */
static int count_cores(void) {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) == 0)
    return CPU_COUNT(&set);
  return 1;
}

/* The path of the file; false if none can be determined. */
static bool find_path(const wishes *w, char *path, size_t bytes) {
  static colli_params params;
  coll_error error = COLL_ERROR_INIT;
  if (colli_params_load(&params, &error) != COLL_OK) {
    fprintf(stderr, "coll_calibrate: %s\n", error.message);
    return false;
  }
  const char *setting = params.text[COLLI_PARAM_CALIBRATION];
  if (!w->output && (!*setting || strcmp(setting, "none") == 0)) {
    if (colli_calibration_path(path, bytes))
      return true;
    fprintf(stderr, "coll_calibrate: neither XDG_CACHE_HOME nor HOME is set; use --output\n");
    return false;
  }
  return snprintf(path, bytes, "%s", w->output ? w->output : setting) < (int)bytes;
}

/* Prints every measurement of a world. */
static void print_world(const calibrate_world *world) {
  for (int i = 0; i < world->ncells; i++)
    printf("  %d ranks %-12s %-12s %8zu bytes %12.2f us\n", world->nranks,
           colli_coll_name(world->cell[i].algo->coll), world->cell[i].algo->name,
           world->cell[i].count * sizeof(float), world->cell[i].ns / 1e3);
}

/* Measures one kind of link, with ranks apart or crowded; prints and stores its costs. */
static bool calibrate_link(colli_link_kind link, bool crowded, int cores, const wishes *w,
                           colli_calibration *out) {
  static calibrate_world worlds[2];
  const int nranks[2] = {crowded ? 4 : 2, crowded ? 8 : 4};
  int nworlds = crowded || cores >= 4 ? 2 : 1;
  const char *name = colli_link_name(link);
  colli_link_costs *costs = crowded ? &out->crowded[link] : &out->apart[link];
  for (int i = 0; i < nworlds; i++) {
    worlds[i] = (calibrate_world){
        .link = link, .nranks = nranks[i], .cores = crowded && cores > 2 ? 2 : cores};
    calibrate_list(&worlds[i]);
    if (!calibrate_measure(&worlds[i], w->seconds / (4 * nworlds))) {
      fprintf(stderr, "coll_calibrate: %d ranks over %s could not be measured\n", nranks[i], name);
      return false;
    }
    if (w->verbose)
      print_world(&worlds[i]);
  }
  double off = calibrate_fit(worlds, nworlds, costs);
  printf("%-4s %-8s %10.0f %12.4f %14.4f %10.0f %12.2f\n", name, crowded ? "crowded" : "apart",
         costs->alpha_ns, costs->beta_ns_per_byte, costs->gamma_ns_per_byte, costs->step_ns, off);
  fflush(stdout);
  return true;
}

/* The times of the algorithms in all worlds. */
typedef struct surveys {
  calibrate_record of[COLLI_LINK_KINDS][COLLI_CORRECTED_WORLDS];
} surveys;

/* Prints the measurements of the last pass over a world's algorithms. */
static void print_pass(const calibrate_world *world, const calibrate_record *record) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    for (int size = 0; size < COLLI_CORRECTED_SIZES; size++) {
      double us = record->us[record->passes - 1][(*algo)->id][size];
      if (us > 0)
        printf("  %d ranks %-14s %-12s %8zu bytes %12.2f us\n", world->nranks,
               colli_coll_name((*algo)->coll), (*algo)->name, (size_t)COLLI_CORRECTED_BYTES(size),
               us);
    }
}

/* One pass over all requested worlds. */
static bool run_pass(int pass, const char *path, const colli_calibration_origin *origin,
                     const wishes *wish, surveys *all) {
  for (int link = 0; link < COLLI_LINK_KINDS; link++)
    for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++) {
      calibrate_world world = {.link = (colli_link_kind)link,
                               .nranks = colli_corrected_ranks[w],
                               .cores = origin->cores};
      if (wish->nranks != 0 && wish->nranks != world.nranks)
        continue;
      printf("%s algorithms, %s, %d ranks ...\n", pass == 0 ? "all" : "the best",
             colli_link_name((colli_link_kind)link), world.nranks);
      fflush(stdout);
      if (!calibrate_survey(&world, path, TURN_US * fmin(1, wish->seconds / SECONDS),
                            &all->of[link][w]))
        return false;
      if (wish->verbose)
        print_pass(&world, &all->of[link][w]);
    }
  return true;
}

/* Makes as many passes as time allows, because the machine's speed changes over minutes. */
static bool run_passes(const char *path, const colli_calibration_origin *origin, const wishes *wish,
                       surveys *all) {
  double limit = 1e9 * SURVEY * wish->seconds, last = 0;
  uint64_t begun = colli_now_ns(), start = begun;
  if (wish->nranks != 0)
    limit /= COLLI_CORRECTED_WORLDS;
  for (int pass = 0; pass < CALIBRATE_PASSES; pass++) { /* each takes no longer than the last one */
    if (pass > 0 && (double)(start - begun) + last > limit)
      break;
    if (!run_pass(pass, path, origin, wish, all))
      return false;
    last = (double)(colli_now_ns() - start);
    start = colli_now_ns();
  }
  return true;
}

/* Measures the algorithms with the fitted costs; NULL after a failure, which it prints. */
static colli_corrections *survey(const colli_calibration *costs,
                                 const colli_calibration_origin *origin, const wishes *wish) {
  char path[] = "/tmp/coll_calibrate-XXXXXX";
  colli_corrections *corrections = calloc(1, sizeof(*corrections));
  surveys *all = calloc(1, sizeof(*all));
  int fd = mkstemp(path);
  bool fine =
      corrections && all && fd >= 0 && colli_calibration_write(path, costs, NULL, origin) == 0;
  if (!fine)
    perror("coll_calibrate: cannot write the costs to /tmp");
  else if (!(fine = run_passes(path, origin, wish, all)))
    fprintf(stderr, "coll_calibrate: the algorithms could not be measured\n");
  if (fd >= 0) {
    close(fd);
    unlink(path);
  }
  for (int link = 0; fine && link < COLLI_LINK_KINDS; link++)
    for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++)
      calibrate_conclude(&all->of[link][w], corrections->of[link][w]);
  free(all);
  if (!fine) {
    free(corrections);
    corrections = NULL;
  }
  return corrections;
}

int main(int argc, char **argv) {
  wishes w = parse_options(argc, argv);
  char path[512];
  colli_calibration all;
  colli_calibration_origin origin = {.cores = count_cores()};
  time_t now = time(NULL);
  struct tm day;
  if (w.hosts)
    return calibrate_hosts(w.output);
  if (!find_path(&w, path, sizeof(path)))
    return 1;
  gethostname(origin.host, sizeof(origin.host) - 1);
  strftime(origin.date, sizeof(origin.date), "%Y-%m-%d", gmtime_r(&now, &day));
  colli_calibration_default(&all);
  printf("%-4s %-8s %10s %12s %14s %10s %12s\n", "link", "ranks", "alpha", "beta", "gamma", "step",
         "formulas off");
  printf("%-4s %-8s %10s %12s %14s %10s %12s\n", "", "", "(ns)", "(ns/byte)", "(ns/byte)", "(ns)",
         "by a factor");
  for (int link = 0; link < COLLI_LINK_KINDS; link++)
    for (int crowded = origin.cores < 2; crowded < 2; crowded++) /* one core: never apart */
      if (!calibrate_link((colli_link_kind)link, crowded, origin.cores, &w, &all))
        return 1;
  colli_corrections *corrections = w.quick ? NULL : survey(&all, &origin, &w);
  if (!w.quick && !corrections)
    return 1;
  int failed =
      strcmp(path, "-") == 0 ? 0 : colli_calibration_write(path, &all, corrections, &origin);
  free(corrections);
  if (failed)
    fprintf(stderr, "coll_calibrate: cannot write %s: %s\n", path, strerror(failed));
  else if (strcmp(path, "-") != 0)
    printf("written to %s\n", path);
  return failed != 0;
}
