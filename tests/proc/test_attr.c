/* test_attr.c: values that a caller keeps with a communicator, and its name. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support_ranks.h"

static const char key_a, key_b;

/* Counts destroyed values. */
static void count_end(void *value) {
  ++*(int *)value;
}

/* Destroys a communicator that was kept with another. */
static void end_comm(void *value) {
  coll_comm *comm = value;
  coll_comm_destroy(&comm);
}

static int attributes(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  int ends[3] = {0};
  void *value = ends;
  coll_comm *child = NULL, *kept = NULL;
  RANK_OK(coll_comm_get_attr(comm, &key_a, &value));
  RANK_CHECK(value == NULL);
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  RANK_OK(coll_comm_set_attr(child, &key_a, &ends[0], count_end));
  RANK_OK(coll_comm_set_attr(child, &key_b, &ends[1], count_end));
  RANK_OK(coll_comm_get_attr(child, &key_a, &value));
  RANK_CHECK(value == &ends[0]);
  RANK_OK(coll_comm_set_attr(child, &key_a, &ends[2], count_end)); /* replaces */
  RANK_CHECK(ends[0] == 1);
  RANK_OK(coll_comm_get_attr(child, &key_a, &value));
  RANK_CHECK(value == &ends[2]);
  RANK_OK(coll_comm_set_attr(child, &key_b, NULL, NULL)); /* removes */
  RANK_CHECK(ends[1] == 1);
  RANK_OK(coll_comm_get_attr(child, &key_b, &value));
  RANK_CHECK(value == NULL);
  RANK_OK(coll_comm_set_attr(child, &key_b, &ends[1], NULL));
  RANK_OK(coll_comm_dup(child, NULL, &kept)); /* starts without */
  RANK_OK(coll_comm_get_attr(kept, &key_a, &value));
  RANK_CHECK(value == NULL);
  RANK_OK(coll_comm_set_attr(comm, &key_a, kept, end_comm));
  coll_comm_destroy(&child);
  RANK_CHECK(ends[0] == 1 && ends[1] == 1 && ends[2] == 1);
  return 0; /* `comm` is destroyed by the caller, and takes `kept` with it */
}

Test(attr, kept_replaced_destroyed, .timeout = 30) {
  cr_assert_eq(run_threads(1, NULL, attributes, NULL), 0);
  cr_assert_eq(run_threads(3, NULL, attributes, NULL), 0);
}

static int bad_calls(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  void *value;
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(coll_comm_set_attr(NULL, &key_a, &value, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_get_attr(NULL, &key_a, &value) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_set_attr(comm, NULL, &value, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && strstr(error.message, "key is NULL"));
  RANK_CHECK(coll_comm_get_attr(comm, NULL, &value) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_get_attr(comm, &key_a, NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_OK(coll_comm_set_attr(comm, &key_a, NULL, NULL)); /* nothing to remove */
  return 0;
}

Test(attr, bad_calls, .timeout = 30) {
  cr_assert_eq(run_threads(2, NULL, bad_calls, NULL), 0);
}

/* ---- names ----------------------------------------------------------------------------------- */

/* Whether a communicator has a name. */
static bool has_name(const coll_comm *comm, const char *name) {
  const char *is = NULL;
  return coll_comm_name(comm, &is) == COLL_OK && strcmp(is, name) == 0;
}

static int names(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks;
  (void)arg;
  coll_comm *dup = NULL, *split = NULL, *smaller = NULL;
  coll_error error = COLL_ERROR_INIT;
  char text[100], cut[64] = {0};
  memset(text, 'x', sizeof(text));
  memcpy(cut, text, sizeof(cut) - 1);
  text[sizeof(text) - 1] = 0;
  RANK_CHECK(has_name(comm, "world"));
  RANK_OK(coll_comm_dup(comm, NULL, &dup));
  RANK_OK(coll_comm_split(comm, rank == 0 ? 3 : 4, 0, NULL, &split));
  RANK_CHECK(has_name(dup, "world/dup 1"));
  RANK_CHECK(has_name(split, rank == 0 ? "world/split 2, color 3" : "world/split 2, color 4"));
  RANK_OK(coll_comm_set_name(dup, text));
  RANK_CHECK(has_name(dup, cut));
  RANK_OK(coll_comm_set_name(dup, "dp"));
  RANK_CHECK(coll_comm_set_name(dup, NULL) == COLL_ERR_INVALID_ARGUMENT && has_name(dup, "dp"));
  RANK_CHECK(coll_comm_set_name(NULL, "dp") == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_comm_name(dup, NULL) == COLL_ERR_INVALID_ARGUMENT);
  int in = 0, out;
  if (rank == 0) { /* nobody sends: the message has the name */
    RANK_CHECK(coll_recv(&in, 1, COLL_INT32, COLL_ANY_SOURCE, 0, NULL, dup) == COLL_ERR_TIMEOUT);
    RANK_CHECK(coll_last_error(dup, &error) == COLL_OK && strstr(error.message, "\"dp\""));
  }
  RANK_OK(coll_comm_shrink(dup, NULL, &smaller));
  RANK_CHECK(has_name(smaller, "dp"));
  RANK_OK(coll_allreduce(&in, &out, 1, COLL_INT32, COLL_SUM, smaller));
  coll_comm_destroy(&dup);
  coll_comm_destroy(&split);
  coll_comm_destroy(&smaller);
  return 0;
}

Test(attr, names, .timeout = 30) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(900);
  cr_assert_eq(run_threads(3, &config, names, NULL), 0);
}
