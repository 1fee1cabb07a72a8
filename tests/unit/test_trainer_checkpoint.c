/* test_trainer_checkpoint.c: checkpoints are restored exactly or refused. */
#include "tests/unit/trainer_files.h"
#include "trainer/checkpoint.h"

#include <criterion/criterion.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define PARAMS 31 /* 3 * 4 + 4 + 4 * 3 + 3 */

/* A run, a folder and a written checkpoint. */
typedef struct setup {
  char folder[64], path[96];
  model m;
  checkpoint_run run;
  float params[PARAMS], velocity[PARAMS], squares[PARAMS];
  bool with_squares;
} setup;

/* The state that the setup writes. */
static checkpoint_state state_of(setup *s) {
  return (checkpoint_state){.epochs = 5,
                            .updates = 1234,
                            .params = s->params,
                            .velocity = s->velocity,
                            .squares = s->with_squares ? s->squares : NULL};
}

/* Writes a state as rank 0, and replaces the old one. */
static void write_state(const setup *s, const checkpoint_state *state) {
  fail why = {.text = ""};
  cr_assert(checkpoint_write(s->path, 0, &s->run, state, &why), "%s", why.text);
  cr_assert(checkpoint_publish(s->path, 0, &why), "%s", why.text);
}

static void make(setup *s, bool with_squares) {
  static const size_t sizes[] = {3, 4, 3};
  fail why = {.text = ""};
  files_folder(s->folder);
  snprintf(s->path, sizeof(s->path), "%s/check", s->folder);
  cr_assert(model_perceptron(&s->m, sizes, 3, &why));
  cr_assert_eq(s->m.params, PARAMS);
  s->run = (checkpoint_run){.model = &s->m, .seed = 7, .batch = 32, .data = 99};
  for (int i = 0; i < PARAMS; i++) {
    s->params[i] = 1.0f / (float)(i + 1);
    s->velocity[i] = (float)-i / 7;
    s->squares[i] = (float)i / 3;
  }
  s->with_squares = with_squares;
  checkpoint_state state = state_of(s);
  cr_assert(checkpoint_check(s->path, &why), "%s", why.text);
  write_state(s, &state);
}

/* Reading must fail, say so with the file's name, and change nothing. */
static void expect_bad(const setup *s, const checkpoint_run *run, const char *cause) {
  float params[PARAMS] = {0}, velocity[PARAMS] = {0}, zero[PARAMS] = {0};
  checkpoint_state state = {.epochs = 77, .updates = 78, .params = params, .velocity = velocity};
  fail why = {.text = ""};
  cr_assert_not(checkpoint_read(s->path, run, &state, &why), "%s", cause);
  cr_assert(strstr(why.text, s->path) && strstr(why.text, cause), "'%s' does not say '%s'",
            why.text, cause);
  cr_assert(state.epochs == 77 && state.updates == 78);
  cr_assert_arr_eq(params, zero, sizeof(zero));
  cr_assert_arr_eq(velocity, zero, sizeof(zero));
}

/* The checkpoint that `make` wrote must exist, complete. */
static void expect_good(const setup *s) {
  float params[PARAMS], velocity[PARAMS], squares[PARAMS];
  checkpoint_state state = {.params = params, .velocity = velocity};
  fail why = {.text = ""};
  state.squares = s->with_squares ? squares : NULL;
  cr_assert(checkpoint_read(s->path, &s->run, &state, &why), "%s", why.text);
  cr_assert(state.epochs == 5 && state.updates == 1234);
  cr_assert_arr_eq(params, s->params, sizeof(params));
  cr_assert_arr_eq(velocity, s->velocity, sizeof(velocity));
  if (s->with_squares)
    cr_assert_arr_eq(squares, s->squares, sizeof(squares));
}

Test(trainer_checkpoint, comes_back_exactly) {
  setup s;
  struct stat st;
  char temporary[128];
  for (int squares = 0; squares < 2; squares++) {
    make(&s, squares);
    expect_good(&s);
    snprintf(temporary, sizeof(temporary), "%s.0.tmp", s.path);
    cr_assert_neq(stat(temporary, &st), 0, "the temporary file was left");
    s.params[3] = 4;
    checkpoint_state state = state_of(&s);
    write_state(&s, &state); /* over the old one */
    expect_good(&s);
    files_remove(s.folder);
  }
}

/* Pending gradients may be in the file, wanted, both, or neither. */
Test(trainer_checkpoint, what_is_left_to_be_sent) {
  setup s;
  fail why = {.text = ""};
  float params[PARAMS], velocity[PARAMS], squares[PARAMS], left[PARAMS], got[PARAMS];
  for (int i = 0; i < PARAMS; i++)
    left[i] = (float)i / 5;
  for (int with = 0; with < 2; with++) {
    make(&s, with);
    checkpoint_state state = state_of(&s), back = {.params = params, .velocity = velocity};
    back.squares = with ? squares : NULL;
    back.pending = got;
    memset(got, 1, sizeof(got));
    memset(params, 0, sizeof(params));
    cr_assert(checkpoint_read(s.path, &s.run, &back, &why), "%s", why.text);
    cr_assert(got[0] == got[PARAMS - 1] && got[0] != left[0], "not in the file, and touched");
    cr_assert_arr_eq(params, s.params, sizeof(params));
    state.pending = left;
    write_state(&s, &state);
    expect_good(&s);
    memset(params, 0, sizeof(params));
    cr_assert(checkpoint_read(s.path, &s.run, &back, &why), "%s", why.text);
    cr_assert_arr_eq(got, left, sizeof(left));
    cr_assert_arr_eq(params, s.params, sizeof(params));
    files_remove(s.folder);
  }
}

Test(trainer_checkpoint, any_damage_is_noticed) {
  setup s;
  size_t bytes;
  make(&s, false);
  uint8_t *data = files_read(s.folder, "check", &bytes);
  for (size_t cut = 0; cut < bytes; cut++) {
    files_write(s.folder, "check", data, cut);
    expect_bad(&s, &s.run, "truncated");
  }
  for (size_t i = 0; i < bytes; i++) {
    data[i] ^= (uint8_t)(1u << (i % 8));
    files_write(s.folder, "check", data, bytes);
    expect_bad(&s, &s.run, "not loaded");
    data[i] ^= (uint8_t)(1u << (i % 8));
  }
  data[bytes] = 0; /* files_read() allocates room for more */
  files_write(s.folder, "check", data, bytes + 1);
  expect_bad(&s, &s.run, "corrupt");
  files_write(s.folder, "check", data, bytes);
  expect_good(&s);
  free(data);
  files_remove(s.folder);
}

Test(trainer_checkpoint, of_another_run) {
  setup s;
  static const size_t others[][3] = {{3, 3, 4}, {4, 3, 3}, {3, 4, 2}};
  fail why;
  make(&s, false);
  for (int i = 0; i < 3; i++) {
    model other;
    cr_assert(model_perceptron(&other, others[i], 3, &why));
    checkpoint_run run = s.run;
    run.model = &other;
    expect_bad(&s, &run, "--layers");
  }
  s.with_squares = true;
  float other[3][PARAMS];
  checkpoint_state state = {.params = other[0], .velocity = other[1], .squares = other[2]};
  cr_assert_not(checkpoint_read(s.path, &s.run, &state, &why));
  cr_assert(strstr(why.text, "--optimizer"), "%s", why.text);
  checkpoint_run run = s.run;
  run.seed++;
  expect_bad(&s, &run, "--seed 7, not 8");
  run = s.run;
  run.batch = 64;
  expect_bad(&s, &run, "--batch 32, not 64");
  run = s.run;
  run.data++;
  expect_bad(&s, &run, "another data set");
  files_write(s.folder, "check",
              "something else entirely, but long enough to be looked at: "
              "a checkpoint's header has eighty-eight bytes, so there are some more",
              110);
  expect_bad(&s, &s.run, "not a checkpoint");
  unlink(s.path);
  expect_bad(&s, &s.run, "no such checkpoint");
  files_remove(s.folder);
}

/* A failed write leaves the old checkpoint as it was. */
Test(trainer_checkpoint, failed_write_keeps_the_old_one) {
  setup s;
  char temporary[128];
  fail why = {.text = ""};
  make(&s, false);
  snprintf(temporary, sizeof(temporary), "%s.0.tmp", s.path);
  cr_assert_eq(mkdir(temporary, 0700), 0);
  float other[PARAMS] = {0};
  checkpoint_state state = {.epochs = 6, .params = other, .velocity = other};
  cr_assert_not(checkpoint_write(s.path, 0, &s.run, &state, &why));
  cr_assert(strstr(why.text, temporary), "%s", why.text);
  expect_good(&s);
  rmdir(temporary);
  const struct rlimit few = {.rlim_cur = 100, .rlim_max = RLIM_INFINITY};
  signal(SIGXFSZ, SIG_IGN);
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
  bool written = checkpoint_write(s.path, 0, &s.run, &state, &why);
  const struct rlimit all = {.rlim_cur = RLIM_INFINITY, .rlim_max = RLIM_INFINITY};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &all), 0);
  cr_assert_not(written);
  cr_assert(strstr(why.text, "File too large"), "%s", why.text);
  expect_good(&s);
  files_remove(s.folder);
}

/* Whoever may write to the folder can put a link in the way. It is not followed. */
Test(trainer_checkpoint, a_link_in_the_way_is_replaced) {
  setup s;
  char temporary[128], victim[128];
  struct stat st;
  fail why = {.text = ""};
  make(&s, false);
  snprintf(temporary, sizeof(temporary), "%s.0.tmp", s.path);
  snprintf(victim, sizeof(victim), "%s/victim", s.folder);
  int fd = open(victim, O_WRONLY | O_CREAT, 0600);
  cr_assert_eq(write(fd, "precious", 8), 8);
  close(fd);
  cr_assert_eq(symlink(victim, temporary), 0);
  float other[PARAMS] = {0};
  checkpoint_state state = {.epochs = 6, .params = other, .velocity = other};
  cr_assert(checkpoint_write(s.path, 0, &s.run, &state, &why), "%s", why.text);
  cr_assert_eq(stat(victim, &st), 0);
  cr_assert_eq(st.st_size, 8);
  files_remove(s.folder);
}

/* What was withdrawn cannot be published any more; the ranks from `end` on keep theirs. */
Test(trainer_checkpoint, withdrawn) {
  setup s;
  fail why = {.text = ""};
  float other[PARAMS] = {0};
  make(&s, false);
  checkpoint_state state = {.epochs = 6, .params = other, .velocity = other};
  for (int rank = 0; rank < 3; rank++)
    cr_assert(checkpoint_write(s.path, rank, &s.run, &state, &why), "%s", why.text);
  checkpoint_withdraw(s.path, 0, 2);
  for (int rank = 0; rank < 2; rank++) {
    cr_assert_not(checkpoint_publish(s.path, rank, &why));
    cr_assert(strstr(why.text, "continued without it"), "%s", why.text);
    expect_good(&s);
  }
  cr_assert(checkpoint_publish(s.path, 2, &why), "%s", why.text);
  checkpoint_state back = {.params = other, .velocity = other};
  cr_assert(checkpoint_read(s.path, &s.run, &back, &why) && back.epochs == 6);
  files_remove(s.folder);
}

Test(trainer_checkpoint, impossible_places_are_found_before_training) {
  char folder[64], path[128];
  fail why = {.text = ""};
  files_folder(folder);
  snprintf(path, sizeof(path), "%s/none/check", folder);
  cr_assert_not(checkpoint_check(path, &why));
  cr_assert(strstr(why.text, "No such file"), "%s", why.text);
  cr_assert_not(checkpoint_check(folder, &why));
  cr_assert(strstr(why.text, "not a regular file"), "%s", why.text);
  files_remove(folder);
}
