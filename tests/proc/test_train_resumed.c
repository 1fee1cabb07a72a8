/*
 * test_train_resumed.c: all ranks are killed within an epoch, and the job is resumed from the
 * checkpoint of --checkpoint-steps: it ends with the same bits as an undisturbed one.
 */
#include "support_train.h"
#include "trainer/report.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>

static int stop; /* ranks are killed after this many steps of the run; 0: never */

void __real_progress_step(progress *p, const progress_state *state);
void __wrap_progress_step(progress *p, const progress_state *state);
/* The linker wraps the function that follows each step of a rank (tests/CMakeLists.txt). */
void __wrap_progress_step(progress *p, const progress_state *state) {
  static int steps; /* of this process, which is one rank */
  if (++steps == stop)
    raise(SIGKILL);
  __real_progress_step(p, state);
}

/* The progress in the job's checkpoint: epochs, and steps of the next one. */
static void read_place(const job *j, uint64_t place[2]) {
  FILE *file = fopen(j->checkpoint, "rb"); /* mark, version, byte order, length: 24 bytes */
  cr_assert(file && fseek(file, 24, SEEK_SET) == 0 && fread(place, 8, 2, file) == 2);
  fclose(file);
}

/* Seven steps an epoch; a checkpoint after the third and the sixth. */
static void check_resumed_within(const char *how, int nranks) {
  char words[160];
  snprintf(words, sizeof(words), "%s --epochs 3", how);
  job j = job_make(words);
  j.o.checkpoint = j.checkpoint;
  j.o.checkpoint_steps = 3;
  stop = 0;
  job_runs_well(&j, nranks);
  curve whole = job_curve(&j);
  static const int stops[] = {4, 12, 19};
  for (int i = 0; i < 3; i++) {
    int results[JOB_MOST_RANKS];
    uint64_t at[2], epochs = (uint64_t)stops[i] / 7, step = (uint64_t)stops[i] % 7 / 3 * 3;
    unlink(j.checkpoint);
    j.o.resume = false;
    stop = stops[i];
    job_run(&j, nranks, results);
    for (int r = 0; r < nranks; r++) /* where a loss ends the run, it may have ended that way
                                        before */
      cr_assert(results[r] == 128 + SIGKILL || results[r] == 1, "%s: rank %d: %d: %s", how, r,
                results[r], j.out->why[r].text);
    read_place(&j, at);
    cr_assert(at[0] == epochs && at[1] == step,
              "%s: after step %d there is a checkpoint of epoch %" PRIu64 ", step %" PRIu64, how,
              stops[i], at[0], at[1]);
    stop = 0;
    j.o.resume = true;
    job_runs_well(&j, nranks);
    cr_assert_str_eq(job_curve(&j).hash[2], whole.hash[2], "%s: after step %d", how, stops[i]);
  }
  job_drop(&j);
}

Test(train_resumed, within_an_epoch) {
  static const char *const all[] = {"--strategy allreduce",
                                    "--strategy allreduce --wire int8",
                                    "--strategy zero1 --optimizer adam --lr 0.01",
                                    "--strategy zero1 --wire float16",
                                    "--strategy ps-sharded",
                                    "--strategy ps-sharded --servers 2 --wire int8",
                                    "--strategy pipeline",
                                    "--strategy tensor --schedule cosine --warmup 1"};
  for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++)
    check_resumed_within(all[i], 3);
}

/* Stages, parts and copies, and their optimizer's squares. */
Test(train_resumed, grid_within_an_epoch) {
  check_resumed_within("--strategy grid --tensor 2 --pipeline 2", 4);
  check_resumed_within("--strategy grid --tensor 2 --optimizer adam --lr 0.01", 4);
  check_resumed_within("--strategy grid --pipeline 2", 4);
}
