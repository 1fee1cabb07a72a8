/* The file of measured costs: writing and reading it back, and errors in malformed files. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/algo/algo.h"
#include "libcoll/cost/links.h"
#include "libcoll/cost/model.h"
#include "libcoll/tuning/calibration.h"

static char folder[] = "/tmp/calibration-XXXXXX";
static char path[256];
static const colli_log quiet = {COLLI_LOG_NONE, -1};

static void make_folder(void) {
  cr_assert_not_null(mkdtemp(folder));
  snprintf(path, sizeof(path), "%s/new/calibration", folder);
}

static void remove_folder(void) {
  char sub[64];
  snprintf(sub, sizeof(sub), "%s/new", folder);
  unlink(path);
  rmdir(sub);
  rmdir(folder);
}

TestSuite(calibration, .init = make_folder, .fini = remove_folder);

/* A calibration in which all numbers differ. */
static colli_calibration numbered(void) {
  colli_calibration all;
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++)
    *colli_calibration_number(&all, i) = 1.5 * i + 0.000001;
  return all;
}

static void write_with(const colli_corrections *corrections) {
  colli_calibration all = numbered();
  colli_calibration_origin origin = {.host = "somewhere", .date = "2024-05-06", .cores = 7};
  cr_assert_eq(colli_calibration_write(path, &all, corrections, &origin), 0);
}

static void write_file(void) {
  write_with(NULL);
}

/* The file with one text replaced by another, which may be shorter or longer. */
static void change_file(const char *from, const char *to) {
  char text[4096], *at;
  write_file();
  FILE *file = fopen(path, "r");
  text[fread(text, 1, sizeof(text) - 1, file)] = 0;
  fclose(file);
  at = strstr(text, from);
  cr_assert_not_null(at, "'%s' is not in the file", from);
  file = fopen(path, "w");
  fprintf(file, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
  fclose(file);
}

Test(calibration, what_is_written_is_read) {
  colli_calibration have, want = numbered();
  colli_calibration_origin origin;
  char why[128];
  write_file();
  write_file(); /* over the old one */
  cr_assert(colli_calibration_read(path, &have, NULL, &origin, why, sizeof(why)), "%s", why);
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++)
    cr_assert_float_eq(*colli_calibration_number(&have, i), *colli_calibration_number(&want, i),
                       1e-9);
  cr_assert_str_eq(origin.host, "somewhere");
  cr_assert_str_eq(origin.date, "2024-05-06");
  cr_assert_str_eq(origin.path, path);
  cr_assert_eq(origin.cores, 7);
}

Test(calibration, malformed_files_are_refused) {
  static const struct {
    const char *from, *to, *says;
  } cases[] = {
      {"version = 4", "version = 2", "version is 2"},
      {"version = 4\n", "", "version is 0"},
      {"shm.apart.alpha_ns", "shm.apart.alfa_ns", "line 6 is malformed"},
      {"shm.apart.alpha_ns = 0.000001\n", "", "shm.apart.alpha_ns is missing"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = fast", "line 21 is malformed"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = -22.5", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = nan", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = 1000000001.", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = 1.2.3", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns 22.5", "line 21"},
      {"cores = 7", "cores = ", "line 4 is malformed"},
      {"cores = 7", "correction.shm.4.allreduce.ring = 1 1 1 1 1 1 1", "line 4 is malformed"},
      {"cores = 7", "correction.shm.4.allreduce.ring = 1 1 1 1 1 1 1 1 1", "line 4"},
      {"cores = 7", "correction.shm.4.allreduce.ring = 1 1 1 1 1 1 1 x", "line 4"},
      {"cores = 7", "correction.shm.4.allreduce.rang = 1 1 1 1 1 1 1 1", "line 4"},
      {"cores = 7", "correction.shm.4.allraduce.ring = 1 1 1 1 1 1 1 1", "line 4"},
      {"cores = 7", "correction.shm.5.allreduce.ring = 1 1 1 1 1 1 1 1", "line 4"},
      {"cores = 7", "correction.sham.4.allreduce.ring = 1 1 1 1 1 1 1 1", "line 4"},
      {"cores = 7", "correction.shm.4.allreduce = 1 1 1 1 1 1 1 1", "line 4"},
      {"cores = 7", "correction. = 1 1 1 1 1 1 1 1", "line 4"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    colli_calibration have, typical;
    char why[128] = "";
    change_file(cases[i].from, cases[i].to);
    cr_assert_not(colli_calibration_read(path, &have, NULL, NULL, why, sizeof(why)), "case %zu", i);
    cr_assert_not_null(strstr(why, cases[i].says), "'%s' is not in '%s'", cases[i].says, why);
    colli_calibration_load(path, &quiet, &have, NULL, NULL);
    colli_calibration_default(&typical);
    cr_assert_eq(memcmp(&have, &typical, sizeof(have)), 0);
  }
  change_file("version = 4", "# a remark\n\n \t version=4 ");
  colli_calibration have;
  char why[128];
  cr_assert(colli_calibration_read(path, &have, NULL, NULL, why, sizeof(why)), "%s", why);
}

/* What is no file, or no end of one, neither blocks a creation nor fills its memory. */
Test(calibration, only_regular_files_of_a_sensible_size_are_read, .timeout = 20) {
  colli_calibration all;
  char why[160] = "";
  write_file();
  unlink(path);
  cr_assert_eq(mkfifo(path, 0600), 0);
  cr_assert_not(colli_calibration_read(path, &all, NULL, NULL, why, sizeof(why)));
  cr_assert(strstr(why, "not a regular file"), "%s", why);
  cr_assert_not(colli_calibration_read("/dev/zero", &all, NULL, NULL, why, sizeof(why)));
  cr_assert(strstr(why, "not a regular file"), "%s", why);
  unlink(path);
  write_file();
  cr_assert_eq(truncate(path, (off_t)1 << 32), 0);
  cr_assert_not(colli_calibration_read(path, &all, NULL, NULL, why, sizeof(why)));
  cr_assert(strstr(why, "4294967296 bytes"), "%s", why);
}

/* Whoever may write to the folder cannot foresee the name of the new file, and put a link there. */
Test(calibration, a_link_with_the_process_id_is_not_followed) {
  char draft[300], victim[300];
  struct stat st;
  write_file();
  snprintf(victim, sizeof(victim), "%s/victim", folder);
  snprintf(draft, sizeof(draft), "%s.%d", path, (int)getpid());
  FILE *file = fopen(victim, "w");
  fputs("precious", file);
  fclose(file);
  cr_assert_eq(symlink(victim, draft), 0);
  write_file();
  cr_assert_eq(stat(victim, &st), 0);
  cr_assert_eq(st.st_size, 8);
  unlink(draft);
  unlink(victim);
}

Test(calibration, is_found_at_the_usual_place) {
  char place[512];
  colli_calibration have, want = numbered();
  colli_calibration_origin origin;
  setenv("XDG_CACHE_HOME", folder, 1);
  setenv("HOME", "/somebody", 1);
  cr_assert(colli_calibration_path(place, sizeof(place)));
  cr_assert_eq(strncmp(place, folder, strlen(folder)), 0);
  cr_assert_str_eq(place + strlen(folder), "/libcoll/calibration");
  unsetenv("XDG_CACHE_HOME");
  cr_assert(colli_calibration_path(place, sizeof(place)));
  cr_assert_str_eq(place, "/somebody/.cache/libcoll/calibration");
  unsetenv("HOME");
  cr_assert_not(colli_calibration_path(place, sizeof(place)));
  colli_calibration_load("", &quiet, &have, NULL, &origin);
  cr_assert_str_eq(origin.path, "");
  write_file();
  colli_calibration_load(path, &quiet, &have, NULL, &origin);
  cr_assert_str_eq(origin.path, path);
  cr_assert_float_eq(have.crowded[COLLI_LINK_TCP].step_ns, want.crowded[COLLI_LINK_TCP].step_ns,
                     1e-9);
  colli_calibration_load("none", &quiet, &have, NULL, &origin);
  cr_assert_str_eq(origin.path, "");
  cr_assert_eq(colli_calibration_write("/proc/nothing/here", &want, NULL, &origin) == 0, 0);
}

/* The model uses the costs of its links, and those of shared cores if cores are shared. */
Test(calibration, model) {
  colli_calibration all = numbered();
  colli_model model;
  colli_model_make(&all, COLLI_LINK_TCP, COLLI_LINK_SHM, 2, 2, &model);
  cr_assert_eq(model.alpha_ns, all.apart[COLLI_LINK_TCP].alpha_ns);
  cr_assert_eq(model.step_ns, all.apart[COLLI_LINK_TCP].step_ns);
  cr_assert_eq(model.near_alpha_ns, all.apart[COLLI_LINK_SHM].alpha_ns);
  cr_assert_eq(model.near_beta_ns_per_byte, all.apart[COLLI_LINK_SHM].beta_ns_per_byte);
  cr_assert_eq(model.core_share, 1);
  colli_model_make(&all, COLLI_LINK_SHM, COLLI_LINK_SHM, 8, 2, &model);
  cr_assert_eq(model.gamma_ns_per_byte, all.crowded[COLLI_LINK_SHM].gamma_ns_per_byte);
  cr_assert_eq(model.core_share, 0.25);
}

/* Corrections of some algorithms, of a machine with 7 cores. */
static colli_corrections *some_corrections(void) {
  colli_corrections *all = calloc(1, sizeof(*all));
  cr_assert_not_null(all);
  float *ring = all->of[COLLI_LINK_TCP][2][colli_algo_find(COLLI_ALLREDUCE, "ring")->id];
  ring[0] = 2;    /* 4 bytes */
  ring[1] = 0.5f; /* 32 bytes; the next two sizes were not measured */
  ring[4] = 4;    /* 16 KiB; larger sizes were not measured */
  all->of[COLLI_LINK_SHM][0][colli_algo_find(COLLI_BARRIER, "direct")->id][0] = 0.125f;
  return all;
}

Test(calibration, corrections_are_read_again) {
  colli_calibration have;
  colli_corrections *want = some_corrections(), *read = NULL, *again = NULL;
  char why[128];
  write_with(want);
  cr_assert(colli_calibration_read(path, &have, &read, NULL, why, sizeof(why)), "%s", why);
  cr_assert_not_null(read);
  cr_assert_eq(memcmp(read->of, want->of, sizeof(want->of)), 0);
  cr_assert_eq(read->cores, 7);
  cr_assert_neq(read->digest, 0);
  want->of[0][0][1][0] = 0.25f;
  write_with(want);
  colli_calibration_load(path, &quiet, &have, &again, NULL);
  cr_assert_not_null(again);
  cr_assert_neq(again->digest, read->digest);
  free(again);
  write_file();
  colli_calibration_load(path, &quiet, &have, &again, NULL);
  cr_assert_null(again);
  free(read);
  free(want);
}

/* The factor of allreduce's ring for a size. */
static double ring_factor(const colli_model *model, size_t bytes) {
  return colli_correction_factor(model->corrections, colli_algo_find(COLLI_ALLREDUCE, "ring")->id,
                                 bytes);
}

Test(calibration, corrections_between_sizes) {
  colli_corrections *all = some_corrections();
  colli_model model = {.core_share = 1};
  all->cores = 2;
  cr_assert_eq(ring_factor(&model, 4), 1);
  model.corrections = colli_corrections_find(all, COLLI_LINK_TCP, 4, 2);
  cr_assert_not_null(model.corrections);
  cr_assert_float_eq(ring_factor(&model, 0), 2, 1e-6);
  cr_assert_float_eq(ring_factor(&model, 4), 2, 1e-6);
  cr_assert_float_eq(ring_factor(&model, 32), 0.5, 1e-6);
  double between = ring_factor(&model, 12);
  cr_assert(between > 0.5 && between < 2, "%g", between);
  cr_assert_float_eq(ring_factor(&model, 724), sqrt(0.5 * 4), 0.01); /* halfway, in logarithms */
  cr_assert_float_eq(ring_factor(&model, 16384), 4, 1e-6);
  cr_assert_float_eq(ring_factor(&model, (size_t)1 << 40), 4, 1e-6);
  int dbtree = colli_algo_find(COLLI_ALLREDUCE, "dbtree")->id;
  cr_assert_eq(colli_correction_factor(model.corrections, dbtree, 4), 1);
  free(all);
}

/* Corrections apply to about the same number of ranks, on the same number of cores or with a core
 * each. */
Test(calibration, where_corrections_count) {
  static const struct {
    int nranks, cores, measured; /* -1: nothing counts */
  } cases[] = {{1, 2, -1}, {2, 2, 0},  {2, 0, 0},   {3, 2, 1},  {4, 2, 2}, {5, 2, 2},  {7, 2, 3},
               {8, 2, 3},  {16, 2, 3}, {17, 2, -1}, {4, 3, -1}, {4, 4, 0}, {16, 16, 0}};
  colli_corrections *all = some_corrections();
  all->cores = 2;
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    colli_model model = {.core_share = 1};
    model.corrections =
        colli_corrections_find(all, COLLI_LINK_SHM, cases[i].nranks, cases[i].cores);
    const colli_correction *want =
        cases[i].measured < 0 ? NULL : all->of[COLLI_LINK_SHM][cases[i].measured];
    cr_expect_eq(model.corrections, want, "case %zu", i);
  }
  free(all);
}

/* Every algorithm has a correction. */
Test(calibration, ids_of_algorithms) {
  for (const colli_algo *const *algo = colli_algos; *algo; algo++)
    cr_expect((*algo)->id > 0 && (*algo)->id < COLLI_CORRECTED_ALGOS, "%s", (*algo)->name);
}
