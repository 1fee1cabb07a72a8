/* test_attr.c: values that a caller keeps with a communicator. */
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
