/* test_train_wire.c: training with compressed gradients (--wire). */
#include "support_train.h"

#include <criterion/criterion.h>
#include <math.h>

static const char *const wires[] = {"float16", "bfloat16", "int8", "topk:0.1"};
#define WIRES 4

/* A job with a strategy and a wire. */
static job make(const char *strategy, const char *form, const char *more) {
  char words[128];
  snprintf(words, sizeof(words), "--strategy %s --wire %s %s", strategy, form, more);
  return job_make(words);
}

/* With any --wire, a run ends as well trained as with float32: within a percent, or one sample. */
static void check_accuracy(const char *strategy, int nranks) {
  job plain = make(strategy, "float32", "--epochs 16");
  job_runs_well(&plain, nranks);
  double expected = job_curve(&plain).test_accuracy;
  cr_assert_gt(expected, 0.9);
  for (int i = 0; i < WIRES; i++) {
    job j = make(strategy, wires[i], "--epochs 16");
    job_runs_well(&j, nranks);
    double accuracy = job_curve(&j).test_accuracy;
    cr_assert_geq(accuracy, expected - 0.01 - 1.01 / FILES_TEST, "%s, %s: %g, float32 %g", strategy,
                  wires[i], accuracy, expected);
    job_drop(&j);
  }
  job_drop(&plain);
}

Test(train_wire, allreduce_is_as_accurate) {
  check_accuracy("allreduce", 3);
  check_accuracy("allreduce --clip 0.5", 2);
}

Test(train_wire, zero1_is_as_accurate) {
  check_accuracy("zero1", 3);
  check_accuracy("zero1 --clip 0.5", 2);
}

Test(train_wire, servers_are_as_accurate) {
  check_accuracy("ps-sync", 4);
  check_accuracy("ps-sharded", 3);
  check_accuracy("ps-sharded --servers 2", 4);
}

Test(train_wire, asynchronous_servers_are_as_accurate) {
  check_accuracy("ps-async", 3);
  check_accuracy("ps-bounded", 3);
}

/*
 * Numbers of 16 bits are rounded one by one, and added in rank order wherever they are added: these
 * strategies end with the same bits (ps-sync with one rank more, the server). Two workers, because
 * the sum of the pending gradients at an epoch's end depends on the order otherwise.
 */
Test(train_wire, rounded_numbers_make_equal_sums) {
  for (int i = 0; i < 2; i++) {
    job one = make("ps-sync", wires[i], ""), two = make("zero1", wires[i], ""),
        three = make("ps-sharded", wires[i], "");
    job_runs_well(&one, 3);
    job_runs_well(&two, 2);
    job_runs_well(&three, 2);
    for (int e = 0; e < 4; e++) {
      cr_assert_str_eq(job_curve(&one).hash[e], job_curve(&two).hash[e], "epoch %d", e);
      cr_assert_str_eq(job_curve(&one).hash[e], job_curve(&three).hash[e], "epoch %d", e);
    }
    job_drop(&one);
    job_drop(&two);
    job_drop(&three);
  }
}

#define PARAMS (36 * 16 + 16 + 16 * 12 + 12 + 12 * 4 + 4) /* in one bucket below */
#define STEPS  7

/* Bytes of a packet, as its definition says. */
static double packet(int form, double numbers) {
  switch (form) {
  case 2:
    return 4 * ceil(numbers / 256) + 4 * ceil(numbers / 4);
  case 3:
    return 8 * ceil(0.1 * numbers);
  default:
    return 2 * numbers;
  }
}

/* Packets, weights, and at the end of the epoch the pending gradients of all ranks but the first.
 * */
Test(train_wire, bytes_are_those_of_the_definition) {
  for (int i = 0; i < WIRES; i++) {
    job all = make("allreduce", wires[i], "--epochs 1 --bucket-bytes 1000000"),
        zero = make("zero1", wires[i], "--epochs 1 --bucket-bytes 1000000"),
        server = make("ps-sync", wires[i], "--epochs 1");
    double parts = 0, rest = 2.0 * 4 * PARAMS;
    for (int r = 0; r < 3; r++)
      parts += packet(i, PARAMS / 3 + (r < PARAMS % 3));
    job_runs_well(&all, 3);
    job_runs_well(&zero, 3);
    job_runs_well(&server, 3);
    cr_assert_float_eq(job_number(&all, 0, "sent_bytes"), STEPS * 2 * 2 * parts + rest, 0.5);
    cr_assert_float_eq(job_number(&zero, 0, "sent_bytes"),
                       STEPS * (2 * parts + 2.0 * 4 * PARAMS) + rest, 0.5);
    cr_assert_float_eq(job_number(&server, 0, "sent_bytes"),
                       STEPS * 2 * (packet(i, PARAMS) + 4.0 * PARAMS) + rest, 0.5);
    job_drop(&all);
    job_drop(&zero);
    job_drop(&server);
  }
}

/* Pending gradients are in the checkpoint: a resumed run ends with the same bits as an undisturbed
 * one. */
static void check_resumed(const char *strategy, const char *form, int nranks) {
  size_t bytes, again;
  job j = make(strategy, form, "");
  j.o.checkpoint = j.checkpoint;
  job_runs_well(&j, nranks);
  curve whole = job_curve(&j);
  uint8_t *first = files_read(j.folder, "checkpoint", &bytes);
  j.o.epochs = 2;
  job_runs_well(&j, nranks);
  j.o.resume = true;
  j.o.epochs = 4;
  job_runs_well(&j, nranks);
  uint8_t *second = files_read(j.folder, "checkpoint", &again);
  for (int e = 0; e < 4; e++)
    cr_assert_str_eq(job_curve(&j).hash[e], whole.hash[e], "%s, %s, epoch %d", strategy, form, e);
  cr_assert_eq(bytes, again);
  cr_assert_arr_eq(first, second, bytes);
  free(first);
  free(second);
  job_drop(&j);
}

Test(train_wire, resumed_run_equals_undisturbed_run) {
  check_resumed("allreduce", "int8", 3);
  check_resumed("allreduce", "topk:0.1", 2);
  check_resumed("zero1", "float16", 3);
  check_resumed("ps-sync", "topk:0.1", 4);
  check_resumed("ps-sharded --servers 2", "int8", 4);
}

/* The number of ranks, strategy and wire may change: the checkpoint has the pending gradients of
 * the whole model. */
Test(train_wire, another_run_goes_on_from_a_checkpoint) {
  static const char *const next[][2] = {
      {"ps-sync", "topk:0.1"}, {"zero1", "int8"}, {"allreduce", "float32"}};
  job j = make("allreduce", "topk:0.1", "--epochs 2");
  j.o.checkpoint = j.checkpoint;
  job_runs_well(&j, 3);
  for (int i = 0; i < 3; i++) {
    job other = make(next[i][0], next[i][1], "--resume --checkpoint x --epochs 12");
    other.o.checkpoint = j.checkpoint;
    j.o.epochs = 2;
    j.o.resume = false;
    job_runs_well(&j, 3);
    job_runs_well(&other, 2 + i);
    cr_assert_gt(job_curve(&other).test_accuracy, 0.9);
    job_drop(&other);
  }
  job_drop(&j);
}

/* A rank is killed: the others continue, and end as well trained. */
static void check_survives(const char *strategy, const char *form, int killed) {
  job j = make(strategy, form, "--epochs 60 --lr-decay 1");
  job_runs_well(&j, 4);
  double undisturbed = job_curve(&j).test_accuracy;
  j.o.checkpoint = j.checkpoint;
  j.odd_rank = killed;
  j.killed = true;
  job_survives(&j, 4);
  cr_assert_float_eq(job_curve(&j).test_accuracy, undisturbed, 0.005 + 1.01 / FILES_TEST);
  job_drop(&j);
}

Test(train_wire, killed_rank) {
  check_survives("allreduce", "int8", 1);
  check_survives("zero1", "topk:0.1", 2);
}

Test(train_wire, killed_server) {
  check_survives("ps-sharded", "int8", 3);
  check_survives("ps-sync", "topk:0.1", 3);
}
