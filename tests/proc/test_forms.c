/* test_forms.c: persistent requests, groups, and the stream-ordered form: what works and what is
 * refused. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "support_ranks.h"

/* Checks that a call gives `expected`, and that the record says `text`. */
#define EXPECT(call, expected, text)                                                               \
  do {                                                                                             \
    coll_status status_ = (call);                                                                  \
    coll_error error_ = COLL_ERROR_INIT;                                                           \
    RANK_CHECK(status_ == (expected));                                                             \
    coll_last_error(comm, &error_);                                                                \
    if (!strstr(error_.message, text))                                                             \
      fprintf(stderr, "the message is: %s\n", error_.message);                                     \
    RANK_CHECK(error_.status == (expected) && strstr(error_.message, text));                       \
  } while (0)

static int persistent(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int32_t in = 0, out = 0, before = 0;
  coll_request *sum = NULL, *prefix = NULL, *plain = NULL;
  RANK_OK(coll_allreduce_init(&in, &out, 1, COLL_INT32, COLL_SUM, comm, &sum));
  RANK_OK(coll_exscan_init(&in, &before, 1, COLL_INT32, COLL_SUM, comm, &prefix));
  RANK_OK(coll_wait(&sum, -1)); /* never started: complete */
  for (int round = 1; round <= 50; round++) {
    in = round + rank;
    RANK_OK(coll_start(sum));
    RANK_OK(coll_start(prefix));
    coll_request *both[2] = {sum, prefix};
    int index, seen = 0;
    for (int i = 0; i < 2; i++) {
      RANK_OK(coll_wait_any(both, 2, &index, -1));
      RANK_CHECK(both[index]); /* stays */
      seen |= 1 << index;
      both[index] = NULL;
    }
    RANK_CHECK(seen == 3);
    RANK_CHECK(out == nranks * round + nranks * (nranks - 1) / 2);
    RANK_CHECK(rank == 0 || before == rank * round + rank * (rank - 1) / 2);
  }
  RANK_OK(coll_iallreduce(&in, &out, 1, COLL_INT32, COLL_SUM, comm, &plain));
  EXPECT(coll_start(plain), COLL_ERR_INVALID_ARGUMENT, "not persistent");
  EXPECT(coll_request_free(&plain), COLL_ERR_INVALID_USAGE, "not persistent");
  RANK_OK(coll_wait(&plain, -1));
  RANK_OK(coll_start(sum));
  EXPECT(coll_start(sum), COLL_ERR_INVALID_USAGE, "started already");
  RANK_OK(coll_wait(&sum, -1));
  RANK_OK(coll_request_free(&sum));
  RANK_OK(coll_request_free(&prefix));
  RANK_CHECK(!sum && coll_start(NULL) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_request_free(&sum) == COLL_ERR_INVALID_ARGUMENT);
  return 0;
}

Test(forms, persistent, .timeout = 60) {
  for (int nranks = 1; nranks <= 5; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, persistent, NULL), 0, "%d ranks", nranks);
}

static int groups(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int32_t in[3] = {rank, 2 * rank, 3 * rank}, out[3] = {0}, all[3] = {0};
  int triangle = nranks * (nranks - 1) / 2;
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_group_start(comm)); /* nested */
  for (int i = 0; i < 3; i++)
    RANK_OK(coll_allreduce(&in[i], &out[i], 1, COLL_INT32, COLL_SUM, comm));
  RANK_OK(coll_group_end(comm));
  RANK_CHECK(out[0] == 0 && out[2] == 0); /* nothing has run yet */
  RANK_OK(coll_allreduce(in, all, 3, COLL_INT32, COLL_MAX, comm));
  RANK_OK(coll_group_end(comm));
  for (int i = 0; i < 3; i++)
    RANK_CHECK(out[i] == (i + 1) * triangle && all[i] == (i + 1) * (nranks - 1));
  EXPECT(coll_group_end(comm), COLL_ERR_INVALID_USAGE, "without coll_group_start");
  /* One bad call, and nothing is started. */
  memset(out, 0, sizeof(out));
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_allreduce(&in[0], &out[0], 1, COLL_INT32, COLL_SUM, comm));
  EXPECT(coll_broadcast(in, in, 1, COLL_INT32, nranks, comm), COLL_ERR_INVALID_ARGUMENT, "root");
  RANK_CHECK(coll_group_end(comm) == COLL_ERR_INVALID_ARGUMENT && out[0] == 0);
  RANK_OK(coll_group_start(comm)); /* an empty group */
  RANK_OK(coll_group_end(comm));
  RANK_OK(coll_barrier(comm));
  return 0;
}

Test(forms, groups, .timeout = 60) {
  for (int nranks = 2; nranks <= 5; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, groups, NULL), 0, "%d ranks", nranks);
}

static int streams(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)nranks, (void)arg;
  float x = 1;
  EXPECT(coll_allreduce_on_stream(&x, &x, 1, COLL_FLOAT32, COLL_SUM, comm, NULL),
         COLL_ERR_UNSUPPORTED, "coll_allreduce");
  EXPECT(coll_barrier_on_stream(comm, NULL), COLL_ERR_UNSUPPORTED, "CUDA");
  EXPECT(coll_send_on_stream(&x, 1, COLL_FLOAT32, 0, 0, comm, NULL), COLL_ERR_UNSUPPORTED, "send");
  RANK_OK(coll_allreduce(&x, &x, 1, COLL_FLOAT32, COLL_SUM, comm));
  return 0;
}

/* If a communicator fails inside a group, nothing is started: the group's end and later calls
 * return the error at once. */
static int group_of_an_aborted(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)rank, (void)nranks, (void)arg;
  int32_t in[2] = {1, 2}, out[2] = {-1, -1};
  RANK_OK(coll_group_start(comm));
  RANK_OK(coll_allreduce(&in[0], &out[0], 1, COLL_INT32, COLL_SUM, comm));
  RANK_OK(coll_allreduce(&in[1], &out[1], 1, COLL_INT32, COLL_SUM, comm));
  RANK_OK(coll_comm_abort(comm));
  RANK_CHECK(coll_group_end(comm) == COLL_ERR_ABORTED);
  RANK_CHECK(out[0] == -1 && out[1] == -1);
  RANK_OK(coll_group_start(comm));
  RANK_CHECK(coll_allreduce(&in[0], &out[0], 1, COLL_INT32, COLL_SUM, comm) == COLL_ERR_ABORTED);
  RANK_CHECK(coll_group_end(comm) == COLL_ERR_ABORTED);
  RANK_CHECK(coll_barrier(comm) == COLL_ERR_ABORTED);
  return 0;
}

Test(forms, group_of_an_aborted_communicator, .timeout = 60) {
  for (int nranks = 1; nranks <= 4; nranks++)
    cr_assert_eq(run_threads(nranks, NULL, group_of_an_aborted, NULL), 0, "%d ranks", nranks);
}

Test(forms, streams_are_not_supported, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, streams, NULL), 0);
}

/* Wrong blocks and buffers that a single rank can detect. */
static int bad_blocks(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  int32_t buf[64] = {0}, other[64];
  size_t counts[2] = {1, 1}, huge[2] = {1, SIZE_MAX}, more[2] = {2, 2}, displs[2] = {0, 4};
  int root = rank;
  RANK_CHECK(nranks == 2);
  EXPECT(coll_allgatherv(buf, other, NULL, NULL, COLL_INT32, comm), COLL_ERR_INVALID_ARGUMENT,
         "counts");
  EXPECT(coll_allgatherv(buf, other, huge, NULL, COLL_INT32, comm), COLL_ERR_INVALID_ARGUMENT,
         "counts[1]");
  EXPECT(coll_gatherv(buf, 1, other, more, NULL, COLL_INT32, root, comm), COLL_ERR_INVALID_ARGUMENT,
         "own block");
  EXPECT(coll_scatterv(buf, more, NULL, other, 1, COLL_INT32, root, comm),
         COLL_ERR_INVALID_ARGUMENT, "own block");
  EXPECT(coll_alltoallv(buf, counts, NULL, buf, counts, displs, COLL_INT32, comm),
         COLL_ERR_INVALID_ARGUMENT, "in place");
  EXPECT(coll_alltoall(buf, buf + 1, 1, COLL_INT32, comm), COLL_ERR_INVALID_ARGUMENT, "overlap");
  EXPECT(coll_reduce_scatter(buf, buf + 1, 2, COLL_INT32, COLL_SUM, comm),
         COLL_ERR_INVALID_ARGUMENT, "overlap");
  EXPECT(coll_scan(buf, other, 1, COLL_FLOAT32, COLL_AVG, comm), COLL_ERR_INVALID_ARGUMENT, "avg");
  EXPECT(coll_allreduce(buf, other, 1, COLL_FLOAT32, COLL_BAND, comm), COLL_ERR_INVALID_ARGUMENT,
         "does not take");
  EXPECT(coll_allreduce(buf, other, 1, COLL_TYPE_USER(3), COLL_SUM, comm),
         COLL_ERR_INVALID_ARGUMENT, "does not take");
  EXPECT(coll_allreduce(buf, other, 1, COLL_INT32, (coll_op)(COLL_OP_COUNT + 3), comm),
         COLL_ERR_INVALID_ARGUMENT, "coll_op_create");
  RANK_OK(coll_barrier(comm)); /* nothing of this was sent */
  return 0;
}

Test(forms, bad_blocks, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, bad_blocks, NULL), 0);
}

/* Ranks that disagree on the lengths of blocks get an error. */
static int other_counts(coll_comm *comm, int rank, int nranks, void *arg) {
  size_t counts[3] = {5, 6, 7};
  int32_t in[16] = {0}, out[64] = {0};
  coll_error error = COLL_ERROR_INIT;
  counts[1] += (size_t)(rank == 2);
  coll_status status =
      *(int *)arg ? coll_allgatherv(in, out, counts, NULL, COLL_INT32, comm)
                  : coll_alltoallv(out, counts, NULL, out + 32, counts, NULL, COLL_INT32, comm);
  RANK_CHECK(nranks == 3 && status == COLL_ERR_MISMATCH);
  coll_last_error(comm, &error);
  RANK_CHECK(strstr(error.message, *(int *)arg ? "allgatherv" : "alltoallv"));
  RANK_CHECK(*(int *)arg || strstr(error.message, "longer or shorter"));
  return 0;
}

Test(forms, other_counts, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 5000;
  for (int known = 0; known < 2; known++)
    cr_assert_eq(run_threads(3, &config, other_counts, &known), 0);
}
