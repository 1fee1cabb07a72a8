/* test_train_servers.c: training with parameter servers. */
#include "support_train.h"

#include <criterion/criterion.h>
#include <math.h>

/*
 * A server adds its workers' gradients in the order of the ranks, and so do all-reduces that are
 * asked to: then n workers and a server end with the bits of n ranks with all-reduce. Of two
 * numbers every sum has the same bits.
 */
Test(train_servers, synchronous_server_equals_allreduce_bit_for_bit) {
  job j = job_make(NULL), s = job_make("--strategy ps-sync");
  for (int workers = 1; workers <= 4; workers++) {
    setenv("COLL_DETERMINISTIC", "ordered", 1);
    job_runs_well(&j, workers);
    unsetenv("COLL_DETERMINISTIC");
    job_runs_well(&s, workers + 1);
    curve one = job_curve(&j), other = job_curve(&s);
    cr_assert_eq(other.epochs, 4);
    for (int e = 0; e < 4; e++)
      cr_assert_str_eq(one.hash[e], other.hash[e], "%d workers, epoch %d", workers, e);
  }
  job_drop(&j);
  job_drop(&s);
}

/* Each step a worker sends its gradient, and the server sends it the weights. */
Test(train_servers, bytes_are_those_of_the_definition) {
  const double params = 36 * 16 + 16 + 16 * 12 + 12 + 12 * 4 + 4, steps = 7;
  job j = job_make("--strategy ps-sync");
  job_runs_well(&j, 3);
  cr_assert_float_eq(job_curve(&j).sent_bytes[0], steps * 2 * 2 * 4 * params, 0.5);
  job_drop(&j);
}

Test(train_servers, one_rank_is_refused) {
  static const char *const all[] = {"--strategy ps-sync", "--strategy ps-async"};
  for (int i = 0; i < 2; i++) {
    job j = job_make(all[i]);
    job_runs_badly(&j, 1);
    cr_assert(strstr(j.out->why[0].text, "start 2 ranks or more"), "%s", j.out->why[0].text);
    job_drop(&j);
  }
}

/* All learn, and all samples are used, with any number of ranks. */
static void check_learns(const char *how) {
  job j = job_make(how);
  j.o.epochs = 12;
  for (int n = 2; n <= 5; n += n == 3 ? 2 : 1) {
    job_runs_well(&j, n);
    curve c = job_curve(&j);
    cr_assert_eq(c.epochs, 12);
    cr_assert_lt(c.train_loss[11], c.train_loss[0] / 2, "%s, %d ranks: %g, then %g", how, n,
                 c.train_loss[0], c.train_loss[11]);
    cr_assert_gt(c.test_accuracy, 0.8, "%s, %d ranks: %g", how, n, c.test_accuracy);
  }
  job_drop(&j);
}

Test(train_servers, asynchronous_server_learns) {
  check_learns("--strategy ps-async");
  check_learns("--strategy ps-async --staleness-lr");
}

/* The server counts how many updates came between a worker's pull and its push. */
Test(train_servers, staleness_is_counted) {
  job j = job_make("--strategy ps-async --slow 0:8");
  for (int n = 2; n <= 5; n++) {
    job_runs_well(&j, n);
    for (size_t e = 0; e < 4; e++) {
      double piece = floor((32 + n - 2) / (n - 1));
      double updates = job_number(&j, e, "updates"), most = job_number(&j, e, "staleness_max");
      cr_assert_float_eq(updates, ceil(FILES_TRAIN / piece), 0.1);
      cr_assert_leq(job_number(&j, e, "staleness_mean"), most);
      cr_assert_lt(most, updates);
      cr_assert(n == 2 ? most == 0 : most >= 1, "%d ranks: %g", n, most);
    }
  }
  job_drop(&j);
}

/* A rank is killed: the others go on, and end as well trained. */
static void check_survives(const char *how, int nranks, int killed) {
  job j = job_make(how);
  j.o.epochs = 60;
  j.o.lr_decay = 1;
  job_runs_well(&j, nranks);
  double undisturbed = job_curve(&j).test_accuracy;
  j.o.checkpoint = j.checkpoint;
  j.odd_rank = killed;
  j.killed = true;
  job_survives(&j, nranks);
  curve c = job_curve(&j);
  cr_assert(c.epochs == 60 || (c.epochs == 59 && killed == 0));
  cr_assert_float_eq(c.test_accuracy, undisturbed, 0.005 + 1.01 / FILES_TEST, "%s: %g, %g", how,
                     c.test_accuracy, undisturbed);
  job_drop(&j);
}

Test(train_servers, synchronous_server_without_a_worker) {
  check_survives("--strategy ps-sync", 4, 1);
}

Test(train_servers, synchronous_server_is_lost) {
  check_survives("--strategy ps-sync", 4, 3);
}

Test(train_servers, asynchronous_server_without_a_worker) {
  check_survives("--strategy ps-async", 4, 0);
}

Test(train_servers, asynchronous_server_is_lost) {
  check_survives("--strategy ps-async", 4, 3);
}
