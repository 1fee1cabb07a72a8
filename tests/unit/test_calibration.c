/* The file of measured costs: what is written is read again, and what is malformed is said. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/comm/calibration.h"

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

/* A calibration of which no two numbers are alike. */
static colli_calibration numbered(void) {
  colli_calibration all;
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++)
    *colli_calibration_number(&all, i) = 1.5 * i + 0.000001;
  return all;
}

static void write_file(void) {
  colli_calibration all = numbered();
  colli_calibration_origin origin = {.host = "somewhere", .date = "2024-05-06", .cores = 7};
  cr_assert_eq(colli_calibration_write(path, &all, &origin), 0);
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
  cr_assert(colli_calibration_read(path, &have, &origin, why, sizeof(why)), "%s", why);
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
      {"version = 1", "version = 2", "version is 2"},
      {"version = 1\n", "", "version is 0"},
      {"shm.apart.alpha_ns", "shm.apart.alfa_ns", "line 6 is malformed"},
      {"shm.apart.alpha_ns = 0.000001\n", "", "shm.apart.alpha_ns is missing"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = fast", "line 21 is malformed"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = -22.5", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = nan", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = 1000000001.", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns = 1.2.3", "line 21"},
      {"tcp.crowded.step_ns = 22.5", "tcp.crowded.step_ns 22.5", "line 21"},
      {"cores = 7", "cores = ", "line 4 is malformed"},
  };
  for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
    colli_calibration have, typical;
    char why[128] = "";
    change_file(cases[i].from, cases[i].to);
    cr_assert_not(colli_calibration_read(path, &have, NULL, why, sizeof(why)), "case %zu", i);
    cr_assert_not_null(strstr(why, cases[i].says), "'%s' is not in '%s'", cases[i].says, why);
    colli_calibration_load(path, &quiet, &have, NULL);
    colli_calibration_default(&typical);
    cr_assert_eq(memcmp(&have, &typical, sizeof(have)), 0);
  }
  change_file("version = 1", "# a remark\n\n \t version=1 ");
  colli_calibration have;
  char why[128];
  cr_assert(colli_calibration_read(path, &have, NULL, why, sizeof(why)), "%s", why);
}

Test(calibration, is_found_at_the_usual_place) {
  char place[512];
  colli_calibration have, want = numbered();
  colli_calibration_origin origin;
  setenv("XDG_CACHE_HOME", folder, 1);
  setenv("HOME", "/home/somebody", 1);
  cr_assert(colli_calibration_path(place, sizeof(place)));
  cr_assert_eq(strncmp(place, folder, strlen(folder)), 0);
  cr_assert_str_eq(place + strlen(folder), "/libcoll/calibration");
  unsetenv("XDG_CACHE_HOME");
  cr_assert(colli_calibration_path(place, sizeof(place)));
  cr_assert_str_eq(place, "/home/somebody/.cache/libcoll/calibration");
  unsetenv("HOME");
  cr_assert_not(colli_calibration_path(place, sizeof(place)));
  colli_calibration_load("", &quiet, &have, &origin);
  cr_assert_str_eq(origin.path, "");
  write_file();
  colli_calibration_load(path, &quiet, &have, &origin);
  cr_assert_str_eq(origin.path, path);
  cr_assert_float_eq(have.crowded[COLLI_LINK_TCP].step_ns, want.crowded[COLLI_LINK_TCP].step_ns,
                     1e-9);
  colli_calibration_load("none", &quiet, &have, &origin);
  cr_assert_str_eq(origin.path, "");
  cr_assert_eq(colli_calibration_write("/proc/nothing/here", &want, &origin) == 0, 0);
}

/* The model takes the costs of its links, and those of shared cores where cores are shared. */
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
