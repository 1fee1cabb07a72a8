/* test_train_servers.c: training with parameter servers. */
#include "support_train.h"

#include <criterion/criterion.h>
#include <math.h>

/*
 * A server adds its workers' gradients in rank order, and so do all-reduces with
 * COLL_DETERMINISTIC=ordered: so n workers and a server end with the same bits as n all-reducing
 * ranks. With two numbers the order does not matter.
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
  static const char *const all[] = {"--strategy ps-sync", "--strategy ps-async",
                                    "--strategy ps-bounded"};
  for (int i = 0; i < 3; i++) {
    job j = job_make(all[i]);
    job_runs_badly(&j, 1);
    cr_assert(strstr(j.out->why[0].text, "start 2 ranks or more"), "%s", j.out->why[0].text);
    job_drop(&j);
  }
}

/* Training works and uses all samples, with any number of ranks. */
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

/* How far ahead a worker was: never more than allowed; with a slow worker exactly that. */
Test(train_servers, bound_is_kept_and_reached) {
  static const size_t bounds[] = {0, 1, 4};
  job j = job_make("--strategy ps-bounded --slow 0:300");
  for (int i = 0; i < 3; i++)
    for (int n = 3; n <= 5; n += 2) {
      j.o.staleness = bounds[i];
      job_runs_well(&j, n);
      size_t most = 0;
      for (size_t e = 0; e < 4; e++) {
        size_t lead = (size_t)job_number(&j, e, "lead_max");
        cr_assert_leq(lead, bounds[i]);
        most = lead > most ? lead : most;
      }
      cr_assert_eq(most, bounds[i]);
    }
  job_drop(&j);
}

/*
 * With staleness 0 the updates are those of ps-sync. The server subtracts gradients and adds them
 * again, which rounds weights of about 1 to 2^-24 = 6e-8 a few times in each of 28 steps: losses of
 * order 1 may differ by some 1e-6. An update that lacks a gradient changes them by a hundredth.
 */
Test(train_servers, staleness_0_equals_the_synchronous_server) {
  job j = job_make("--strategy ps-sync"), b = job_make("--strategy ps-bounded --staleness 0");
  for (int n = 2; n <= 5; n++) {
    job_runs_well(&j, n);
    job_runs_well(&b, n);
    curve one = job_curve(&j), other = job_curve(&b);
    for (int e = 0; e < 4; e++) {
      cr_assert_float_eq(one.train_loss[e], other.train_loss[e], 2e-5);
      cr_assert_float_eq(one.test_loss[e], other.test_loss[e], 2e-5);
    }
  }
  job_drop(&j);
  job_drop(&b);
}

Test(train_servers, bounded_server_learns) {
  check_learns("--strategy ps-bounded --staleness 1");
  check_learns("--strategy ps-bounded --staleness 4 --slow 0:10");
}

Test(train_servers, synchronous_server_without_a_worker) {
  job_survives_as_well_trained("--strategy ps-sync", 4, 1);
}

Test(train_servers, synchronous_server_is_lost) {
  job_survives_as_well_trained("--strategy ps-sync", 4, 3);
}

Test(train_servers, asynchronous_server_without_a_worker) {
  job_survives_as_well_trained("--strategy ps-async", 4, 0);
}

Test(train_servers, asynchronous_server_is_lost) {
  job_survives_as_well_trained("--strategy ps-async", 4, 3);
}

Test(train_servers, bounded_server_without_a_worker) {
  job_survives_as_well_trained("--strategy ps-bounded --staleness 4", 4, 2);
}

Test(train_servers, bounded_server_is_lost) {
  job_survives_as_well_trained("--strategy ps-bounded", 4, 3);
}

/* All shards get an update in each step, however many servers there are. */
Test(train_servers, sharded_servers_equal_one_server) {
  static const char *const how[] = {"--strategy ps-sharded --servers 2",
                                    "--strategy ps-sharded --servers 3", "--strategy ps-sharded"};
  job one = job_make("--strategy ps-sync");
  for (int i = 0; i < 3; i++) {
    job j = job_make(how[i]);
    for (int workers = 2; workers <= (i == 0 ? 3 : i == 1 ? 2 : 5); workers++) {
      int nranks = workers + (i < 2 ? i + 2 : 0);
      job_runs_well(&one, workers + 1);
      job_runs_well(&j, nranks);
      curve c = job_curve(&one), other = job_curve(&j);
      for (int e = 0; e < 4; e++)
        cr_assert_str_eq(c.hash[e], other.hash[e], "%s, %d workers, epoch %d", how[i], workers, e);
    }
    job_drop(&j);
  }
  job_drop(&one);
}

/*
 * A server is killed at some point. The workers stay the same, so if no update is lost or made
 * twice, the weights have the same bits as in an undisturbed run.
 */
Test(train_servers, killed_server_loses_no_update) {
  for (int servers = 2; servers <= 3; servers++)
    for (int killed = 2; killed < 2 + servers; killed++) {
      job j = job_make("--strategy ps-sharded");
      j.o.servers = (uint64_t)servers;
      j.o.epochs = 60;
      j.o.lr_decay = 1;
      job_runs_well(&j, 2 + servers);
      curve undisturbed = job_curve(&j);
      j.o.checkpoint = j.checkpoint;
      j.odd_rank = killed;
      j.killed = true;
      job_survives(&j, 2 + servers);
      curve c = job_curve(&j);
      cr_assert_eq(c.epochs, 60);
      for (int e = 0; e < 60; e++) {
        cr_assert_str_eq(c.hash[e], undisturbed.hash[e], "%d servers, epoch %d", servers, e);
        cr_assert_eq((int)job_number(&j, (size_t)e, "updates_min"), 7 * (e + 1));
        cr_assert_eq((int)job_number(&j, (size_t)e, "updates_max"), 7 * (e + 1));
      }
      cr_assert_eq((int)job_number(&j, 59, "servers"), servers - 1);
      job_drop(&j);
    }
}

Test(train_servers, sharded_servers_without_a_worker) {
  job_survives_as_well_trained("--strategy ps-sharded --servers 2", 5, 1);
}

Test(train_servers, sharded_servers_that_work_without_one) {
  job_survives_as_well_trained("--strategy ps-sharded", 4, 0);
  job_survives_as_well_trained("--strategy ps-sharded", 3, 2);
}

Test(train_servers, too_few_or_too_many_servers_are_refused) {
  static const char *const how[] = {"--strategy ps-sharded --servers 1",
                                    "--strategy ps-sharded --servers 2"};
  static const char *const words[] = {"needs a second server", "leaves no worker among 2 ranks"};
  for (int i = 0; i < 2; i++) {
    job j = job_make(how[i]);
    job_runs_badly(&j, 2);
    cr_assert(strstr(j.out->why[0].text, words[i]), "%s", j.out->why[0].text);
    job_drop(&j);
  }
}

/* The velocity is on the servers; a resumed run still ends with the same bits as an undisturbed
 * one. */
Test(train_servers, resumed_run_equals_undisturbed_run) {
  static const char *const how[] = {"--strategy ps-sync", "--strategy ps-sharded",
                                    "--strategy ps-sharded --servers 2"};
  for (int i = 0; i < 3; i++) {
    job j = job_make(how[i]);
    j.o.checkpoint = j.checkpoint;
    job_runs_well(&j, 4);
    curve whole = job_curve(&j);
    j.o.epochs = 2;
    job_runs_well(&j, 4);
    j.o.resume = true;
    j.o.epochs = 4;
    job_runs_well(&j, 4);
    cr_assert_str_eq(job_curve(&j).hash[3], whole.hash[3], "%s", how[i]);
    job_drop(&j);
  }
}
