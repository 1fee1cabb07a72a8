/*
 * test_choice.c: which algorithm runs: ranks with different calibrations agree, settings that must
 * be equal are compared, tuners are asked, and coll_candidates lists them.
 */
#include <criterion/criterion.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/algo/algo.h"
#include "libcoll/cost/links.h"
#include "libcoll/tuning/calibration.h"
#include "support_ranks.h"

#define RANKS        4
#define PLUGIN(name) COLL_PLUGINS "/" name ".so"

/* Makes a communicator of the base's ranks, with the settings in each rank's environment. */
static coll_status make_comm(coll_comm *base, int rank, int nranks, const coll_config *config,
                             coll_comm **comm) {
  coll_id id = {{0}};
  coll_status status = rank == 0 ? coll_unique_id(&id, config) : COLL_OK;
  if (status == COLL_OK)
    status = coll_broadcast(&id, &id, sizeof(id), COLL_UINT8, 0, base);
  return status == COLL_OK ? coll_comm_create(comm, &id, nranks, rank, config) : status;
}

/* The name of the algorithm that is chosen for an all-reduce; "" if there is none. */
static const char *chosen(coll_comm *comm, size_t count, char name[24]) {
  coll_candidate list[48];
  int found = 0;
  name[0] = 0;
  if (coll_candidates(comm, "allreduce", count, COLL_FLOAT32, COLL_SUM, 0, list, 48, &found) !=
      COLL_OK)
    return name;
  for (int i = 0; i < found && i < 48; i++)
    if (list[i].chosen)
      strcpy(name, list[i].name);
  return name;
}

/* ---- calibrations ---------------------------------------------------------------------------- */

/* Writes a calibration in which either messages or bytes are expensive. */
static void write_calibration(const char *path, bool messages) {
  colli_calibration all;
  colli_calibration_origin origin = {.host = "test", .date = "today", .cores = 1};
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++)
    *colli_calibration_number(&all, i) = (i % 4 == 0) == messages ? 9000 : 0.0001;
  if (colli_calibration_write(path, &all, NULL, &origin) != 0)
    abort();
}

/* One rank of differing_calibrations; arg: the folder of the files. */
static int differ(coll_comm *comm, int rank, int nranks, void *arg) {
  static const size_t counts[] = {1, 100, 1000, 10000, 100000};
  coll_comm *same[2] = {NULL, NULL}, *own = NULL;
  char path[2][128], mine[24], theirs[24], all[RANKS][24];
  int differences = 0;
  for (int k = 0; k < 2; k++) {
    snprintf(path[k], sizeof(path[k]), "%s/%d", (char *)arg, k);
    setenv("COLL_CALIBRATION", path[k], 1);
    RANK_OK(make_comm(comm, rank, nranks, NULL, &same[k]));
  }
  setenv("COLL_CALIBRATION", path[rank % 2], 1);
  RANK_OK(make_comm(comm, rank, nranks, NULL, &own));
  for (size_t i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
    differences += strcmp(chosen(same[0], counts[i], mine), chosen(same[1], counts[i], theirs));
    chosen(own, counts[i], mine);
    RANK_CHECK(mine[0]);
    RANK_OK(coll_allgather(mine, all, sizeof(mine), COLL_INT8, comm));
    for (int r = 0; r < nranks; r++)
      RANK_CHECK(strcmp(all[r], mine) == 0);
    float *values = malloc(counts[i] * sizeof(*values));
    for (size_t e = 0; e < counts[i]; e++)
      values[e] = (float)rank;
    RANK_OK(coll_allreduce(values, values, counts[i], COLL_FLOAT32, COLL_SUM, own));
    RANK_CHECK(values[0] == 6 && values[counts[i] - 1] == 6);
    free(values);
  }
  RANK_CHECK(differences); /* each file alone leads to a different choice */
  for (int k = 0; k < 2; k++)
    coll_comm_destroy(&same[k]);
  coll_comm_destroy(&own);
  return 0;
}

Test(choice, differing_calibrations, .timeout = 60) {
  char folder[] = "/tmp/choice-XXXXXX", path[2][64];
  cr_assert_not_null(mkdtemp(folder));
  for (int k = 0; k < 2; k++) {
    snprintf(path[k], sizeof(path[k]), "%s/%d", folder, k);
    write_calibration(path[k], k == 0);
  }
  cr_expect_eq(run_processes(RANKS, NULL, differ, folder, 50, NULL), 0);
  for (int k = 0; k < 2; k++)
    unlink(path[k]);
  rmdir(folder);
}

/* Writes typical costs with corrections by which one all-reduce wins. */
static void write_corrections(const char *path, const char *winner) {
  static colli_corrections corrections;
  colli_calibration costs;
  colli_calibration_origin origin = {.host = "test", .date = "today"};
  cpu_set_t cpus;
  if (sched_getaffinity(0, sizeof(cpus), &cpus) != 0)
    abort();
  origin.cores = CPU_COUNT(&cpus);
  memset(&corrections, 0, sizeof(corrections));
  for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++)
    for (const colli_algo *const *algo = colli_algos; *algo; algo++)
      for (int i = 0; i < COLLI_CORRECTED_SIZES && (*algo)->coll == COLLI_ALLREDUCE; i++)
        corrections.of[COLLI_LINK_SHM][w][(*algo)->id][i] =
            strcmp((*algo)->name, winner) == 0 ? 0.001f : 1;
  colli_calibration_default(&costs);
  if (colli_calibration_write(path, &costs, &corrections, &origin) != 0)
    abort();
}

/* One rank of corrections; arg: the folder of the files. */
static int correct(coll_comm *comm, int rank, int nranks, void *arg) {
  static const char *const winners[] = {"ring", "dbtree"};
  coll_comm *same[2], *mixed, *typical, *child;
  char path[2][128], mine[24], theirs[24];
  setenv("COLL_TRANSPORT", "shm", 1);
  setenv("COLL_CALIBRATION", "none", 1);
  RANK_OK(make_comm(comm, rank, nranks, NULL, &typical));
  for (int k = 0; k < 2; k++) {
    snprintf(path[k], sizeof(path[k]), "%s/%d", (char *)arg, k);
    setenv("COLL_CALIBRATION", path[k], 1);
    RANK_OK(make_comm(comm, rank, nranks, NULL, &same[k]));
    for (size_t count = 1; count <= 1000000; count *= 100)
      RANK_CHECK(strcmp(chosen(same[k], count, mine), winners[k]) == 0);
  }
  RANK_OK(coll_comm_dup(same[0], NULL, &child));
  RANK_CHECK(strcmp(chosen(child, 100, mine), "ring") == 0);
  /* Ranks that have read different ones agree, too: they use none. */
  setenv("COLL_CALIBRATION", path[rank % 2], 1);
  RANK_OK(make_comm(comm, rank, nranks, NULL, &mixed));
  for (size_t count = 1; count <= 1000000; count *= 100)
    RANK_CHECK(strcmp(chosen(mixed, count, mine), chosen(typical, count, theirs)) == 0);
  float value = 1;
  RANK_OK(coll_allreduce(&value, &value, 1, COLL_FLOAT32, COLL_SUM, mixed));
  RANK_CHECK(value == (float)nranks);
  for (int k = 0; k < 2; k++)
    coll_comm_destroy(&same[k]);
  coll_comm_destroy(&child);
  coll_comm_destroy(&mixed);
  coll_comm_destroy(&typical);
  return 0;
}

Test(choice, corrections, .timeout = 60) {
  char folder[] = "/tmp/choice-XXXXXX", path[2][64];
  cr_assert_not_null(mkdtemp(folder));
  for (int k = 0; k < 2; k++) {
    snprintf(path[k], sizeof(path[k]), "%s/%d", folder, k);
    write_corrections(path[k], k ? "dbtree" : "ring");
  }
  cr_expect_eq(run_processes(RANKS, NULL, correct, folder, 50, NULL), 0);
  for (int k = 0; k < 2; k++)
    unlink(path[k]);
  rmdir(folder);
}

/* ---- settings that must be equal ------------------------------------------------------------- */

/* A setting that rank 1 has and rank 0 has not. */
typedef struct setting {
  const char *name, *value;
  coll_determinism deterministic; /* in its coll_config */
} setting;

static int unequal(coll_comm *comm, int rank, int nranks, void *arg) {
  const setting *its = arg;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *other = NULL;
  config.error = &error;
  setenv("COLL_LOG", "none", 1);
  if (rank == 1)
    config.deterministic = its->deterministic;
  if (rank == 1 && its->deterministic == COLL_DETERMINISTIC_DEFAULT)
    setenv(its->name, its->value, 1);
  RANK_CHECK(make_comm(comm, rank, nranks, &config, &other) == COLL_ERR_MISMATCH);
  RANK_CHECK(strstr(error.message, its->value) && strstr(error.message, its->name));
  return 0;
}

Test(choice, unequal_settings, .timeout = 60) {
  setting settings[] = {{.name = "COLL_ACCUMULATE", .value = "float32"},
                        {.name = "COLL_DATA_CHECK", .value = "mac"},
                        {"COLL_DETERMINISTIC", "ordered", COLL_DETERMINISTIC_ORDERED}};
  for (int i = 0; i < 3; i++)
    cr_expect_eq(run_processes(2, NULL, unequal, &settings[i], 30, NULL), 0, "%s",
                 settings[i].name);
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comm = NULL;
  config.deterministic = (coll_determinism)4;
  cr_expect_eq(coll_comm_create_local(&comm, 1, &config), COLL_ERR_INVALID_ARGUMENT);
}

/* ---- hosts ----------------------------------------------------------------------------------- */

/* Ranks alternate between two hosts: algorithms for several hosts are candidates, and work. */
static int use_hosts(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *other = NULL;
  char name[24];
  int forced = 0;
  setenv("COLL_HOST_ID", rank % 2 ? "odd" : "even", 1);
  setenv("COLL_LOG", "none", 1);
  for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
    char text[64];
    coll_config config = COLL_CONFIG_INIT;
    float values[300];
    if ((*algo)->coll != COLLI_ALLREDUCE || !(*algo)->groups)
      continue;
    forced++;
    snprintf(text, sizeof(text), "allreduce:%s", (*algo)->name);
    config.algo = text;
    RANK_OK(make_comm(comm, rank, nranks, &config, &other));
    RANK_CHECK(strcmp(chosen(other, 300, name), (*algo)->name) == 0);
    for (int i = 0; i < 300; i++)
      values[i] = (float)(rank + i);
    RANK_OK(coll_allreduce(values, values, 300, COLL_FLOAT32, COLL_SUM, other));
    for (int i = 0; i < 300; i++)
      RANK_CHECK(values[i] == (float)(nranks * (nranks - 1) / 2 + nranks * i));
    coll_comm_destroy(&other);
    coll_comm *child = NULL; /* on one host */
    RANK_OK(coll_comm_dup(comm, &config, &child));
    RANK_CHECK(coll_allreduce(values, values, 300, COLL_FLOAT32, COLL_SUM, child) ==
               COLL_ERR_INVALID_USAGE);
    coll_error error = COLL_ERROR_INIT;
    coll_last_error(child, &error);
    RANK_CHECK(strstr(error.message, "over several hosts"));
    coll_comm_destroy(&child);
  }
  return forced == 0;
}

Test(choice, hosts, .timeout = 60) {
  cr_expect_eq(run_processes(5, NULL, use_hosts, NULL, 50, NULL), 0);
}

/* ---- tuners ---------------------------------------------------------------------------------- */

static int use_example(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  char name[24];
  float values[2000] = {1};
  RANK_CHECK(strcmp(chosen(comm, 1023, name), "recdbl") == 0);
  RANK_CHECK(strcmp(chosen(comm, 1024, name), "ring") == 0);
  RANK_OK(coll_allreduce(values, values, 1, COLL_FLOAT32, COLL_SUM, comm));
  RANK_OK(coll_allreduce(values, values, 2000, COLL_FLOAT32, COLL_SUM, comm));
  RANK_CHECK(values[0] == (float)(nranks * nranks));
  RANK_OK(coll_broadcast(values, values, 2000, COLL_FLOAT32, 1, comm));
  return rank < 0;
}

Test(choice, tuner, .timeout = 60) {
  setenv("COLL_TUNER", PLUGIN("tuner_example"), 1);
  cr_expect_eq(run_threads(RANKS, NULL, use_example, NULL), 0);
  cr_expect_eq(run_processes(RANKS, NULL, use_example, NULL, 50, NULL), 0);
}

/* The tuner is not asked about forced algorithms; communicators made from others have it, too. */
static int use_forced(coll_comm *comm, int rank, int nranks, void *arg) {
  const int *counts = arg;
  char name[24];
  float value = 1;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *child = NULL;
  (void)nranks;
  RANK_OK(coll_allreduce(&value, &value, 1, COLL_FLOAT32, COLL_SUM, comm));
  RANK_CHECK(strcmp(chosen(comm, 1, name), "dbtree") == 0);
  RANK_CHECK(counts[0] == 1 && counts[1] == 0);
  RANK_OK(coll_barrier(comm));
  RANK_CHECK(counts[1] == 1);
  RANK_OK(coll_barrier(comm)); /* the answer is cached */
  RANK_CHECK(counts[1] == 1);
  config.algo = "";
  RANK_OK(coll_comm_dup(comm, &config, &child));
  int before = counts[1];
  RANK_OK(coll_allreduce(&value, &value, 1, COLL_FLOAT32, COLL_SUM, child));
  RANK_CHECK(counts[0] == 1 && counts[1] == before + 1);
  coll_comm_destroy(&child);
  RANK_CHECK(counts[2] == 0);
  return rank < 0;
}

Test(choice, what_is_forced_beats_the_tuner, .timeout = 60) {
  static int counts[3];
  char address[32];
  coll_config config = COLL_CONFIG_INIT;
  config.algo = "allreduce:dbtree";
  snprintf(address, sizeof(address), "%llx", (unsigned long long)(uintptr_t)counts);
  setenv("COLL_TUNER", PLUGIN("tuner_odd"), 1);
  setenv("ODD_TUNER", "0", 1);
  setenv("ODD_TUNER_COUNTS", address, 1);
  cr_expect_eq(run_processes(RANKS, &config, use_forced, counts, 50, NULL), 0);
  coll_comm *comm = NULL;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  coll_comm_destroy(&comm);
  cr_expect_eq(counts[0], 1);
  cr_expect_eq(counts[2], 1);
}

/* Ranks whose tuners answer differently fail, and the message says so. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  coll_comm *other = NULL;
  coll_error error = COLL_ERROR_INIT;
  float value = 1;
  setenv("COLL_LOG", "none", 1);
  setenv("COLL_TUNER", PLUGIN("tuner_odd"), 1);
  setenv("ODD_TUNER", rank ? "1" : "0", 1);
  RANK_OK(make_comm(comm, rank, nranks, NULL, &other));
  RANK_CHECK(coll_allreduce(&value, &value, 1, COLL_FLOAT32, COLL_SUM, other) == COLL_ERR_MISMATCH);
  RANK_OK(coll_last_error(other, &error));
  RANK_CHECK(strstr(error.message, "COLL_TUNER"));
  coll_comm_destroy(&other);
  return 0;
}

Test(choice, tuners_that_disagree, .timeout = 60) {
  cr_expect_eq(run_processes(2, NULL, disagree, NULL, 50, NULL), 0);
}

/* Expects that a tuner is refused, and that the message has a text. */
static void refused(const char *path, const char *says) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comms[2] = {NULL, NULL};
  config.error = &error;
  setenv("COLL_LOG", "none", 1);
  setenv("COLL_TUNER", path, 1);
  cr_expect_eq(coll_comm_create_local(comms, 2, &config), COLL_ERR_INVALID_USAGE, "%s", path);
  cr_expect(strstr(error.message, says), "'%s' is not in: %s", says, error.message);
  cr_expect(strstr(error.message, path), "'%s' is not in: %s", path, error.message);
}

Test(choice, bad_tuners, .timeout = 60) {
  refused("/nowhere/tuner.so", "cannot be loaded");
  refused("libm.so.6", "exports no coll_tuner");
  refused(PLUGIN("tuner_old"), "another version");
  setenv("ODD_TUNER", "refuse", 1);
  refused(PLUGIN("tuner_odd"), "refuses to start");
  setenv("ODD_TUNER", "99", 1);
  coll_comm *comm = NULL;
  coll_error error = COLL_ERROR_INIT;
  float value = 1;
  cr_assert_eq(coll_comm_create_local(&comm, 1, NULL), COLL_OK);
  cr_expect_eq(coll_allreduce(&value, &value, 1, COLL_FLOAT32, COLL_SUM, comm),
               COLL_ERR_INVALID_USAGE);
  coll_last_error(comm, &error);
  cr_expect(strstr(error.message, "chose number 99"), "%s", error.message);
  coll_comm_destroy(&comm);
}

/* ---- candidates ------------------------------------------------------------------------------ */

/* Checks a list: fastest first, each name once, and one chosen. */
static void check_list(coll_comm *comm, const char *collective, size_t count) {
  coll_candidate list[48], few[2] = {{.chosen = -1}, {.chosen = -1}};
  int found = 0, again = 0, nchosen = 0;
  cr_assert_eq(
      coll_candidates(comm, collective, count, COLL_FLOAT32, COLL_SUM, 0, list, 48, &found),
      COLL_OK, "%s", collective);
  cr_assert(found >= 1 && found <= 48);
  for (int i = 0; i < found; i++) {
    nchosen += list[i].chosen;
    cr_assert(i == 0 || list[i - 1].predicted_us <= list[i].predicted_us);
    for (int k = 0; k < i; k++)
      cr_assert_str_neq(list[i].name, list[k].name);
  }
  cr_assert_eq(nchosen, 1, "%s of %zu", collective, count);
  cr_assert_eq(coll_candidates(comm, collective, count, COLL_FLOAT32, COLL_SUM, 0, few, 1, &again),
               COLL_OK);
  cr_assert_eq(again, found);
  cr_assert_str_eq(few[0].name, list[0].name);
  cr_assert_eq(few[1].chosen, -1, "no more than there is room for");
}

Test(choice, candidates, .timeout = 60) {
  static const char *const names[] = {"allreduce",  "reduce",   "reduce_scatter", "reduce_scatterv",
                                      "broadcast",  "scan",     "exscan",         "allgather",
                                      "allgatherv", "gather",   "gatherv",        "scatter",
                                      "scatterv",   "alltoall", "alltoallv",      "barrier"};
  coll_comm *comms[5];
  cr_assert_eq(coll_comm_create_local(comms, 5, NULL), COLL_OK);
  for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
    for (size_t count = 0; count < 1u << 24; count = count * 7 + 1)
      check_list(comms[3], names[i], count);
  int found = 0;
  coll_comm *comm = comms[0];
  const coll_status bad = COLL_ERR_INVALID_ARGUMENT;
  static const char *const unknown[] = {"sendrecv", "allreducev", "barrierv", "gatherall",
                                        "v",        "",           NULL};
  for (size_t i = 0; i < sizeof(unknown) / sizeof(unknown[0]); i++)
    cr_expect_eq(coll_candidates(comm, unknown[i], 1, COLL_INT8, COLL_SUM, 0, NULL, 0, &found),
                 bad);
  cr_expect_eq(coll_candidates(NULL, "barrier", 0, 0, 0, 0, NULL, 0, &found), bad);
  cr_expect_eq(coll_candidates(comm, "barrier", 0, 0, 0, 0, NULL, 0, NULL), bad);
  cr_expect_eq(coll_candidates(comm, "barrier", 0, 0, 0, 0, NULL, 1, &found), bad);
  cr_expect_eq(coll_candidates(comm, "broadcast", 1, COLL_INT8, 0, 5, NULL, 0, &found), bad);
  cr_expect_eq(coll_candidates(comm, "broadcast", 1, (coll_type)99, 0, 0, NULL, 0, &found), bad);
  cr_expect_eq(coll_candidates(comm, "reduce", 1, COLL_INT8, (coll_op)99, 0, NULL, 0, &found), bad);
  cr_expect_eq(coll_candidates(comm, "allgather", SIZE_MAX / 4, COLL_INT8, 0, 0, NULL, 0, &found),
               bad);
  for (int r = 0; r < 5; r++)
    coll_comm_destroy(&comms[r]);
}

/* A forced algorithm is chosen, even if it would not be a candidate. */
Test(choice, forced_candidates, .timeout = 60) {
  coll_comm *comms[40];
  char name[24];
  coll_config config = COLL_CONFIG_INIT;
  config.algo = "allreduce:direct"; /* for few ranks */
  cr_assert_eq(coll_comm_create_local(comms, 40, &config), COLL_OK);
  cr_expect_str_eq(chosen(comms[7], 1, name), "direct");
  for (int r = 0; r < 40; r++)
    coll_comm_destroy(&comms[r]);
  config.algo = "allreduce:ring";
  config.deterministic = COLL_DETERMINISTIC_ON;
  cr_assert_eq(coll_comm_create_local(comms, 3, &config), COLL_OK);
  cr_expect_str_eq(chosen(comms[1], 1, name), "");
  for (int r = 0; r < 3; r++)
    coll_comm_destroy(&comms[r]);
}
