/* test_trainer_options.c: the command line, the progress bar, the metrics, and which rank is to
 * blame. */
#include "tests/unit/trainer_files.h"
#include "trainer/options.h"
#include "trainer/ranks.h"
#include "trainer/report.h"
#include "trainer/strategies/strategy.h"

#include <criterion/criterion.h>

/* Parses words separated by blanks. */
static options_result parse(options *o, const char *line, fail *why) {
  static char words[512];
  char *argv[32] = {"coll_train"};
  int argc = 1;
  snprintf(words, sizeof(words), "%s", line);
  for (char *word = strtok(words, " "); word; word = strtok(NULL, " "))
    argv[argc++] = word;
  why->text[0] = '\0';
  return options_parse(o, argc, argv, why);
}

Test(trainer_options, good_ones) {
  options o;
  fail why;
  cr_assert_eq(parse(&o, "", &why), OPTIONS_RUN);
  cr_assert_eq(o.size_count, 4);
  cr_assert(o.sizes[0] == 784 && o.sizes[1] == 256 && o.sizes[2] == 128 && o.sizes[3] == 10);
  uint64_t fingerprint = options_fingerprint(&o);
  cr_assert_eq(parse(&o, "--metrics m --quiet --checkpoint c --resume", &why), OPTIONS_RUN);
  cr_assert_eq(options_fingerprint(&o), fingerprint, "these need not be equal on all ranks");
  cr_assert(o.quiet && o.resume);
  cr_assert_eq(parse(&o,
                     "--data d --layers 3,2 --epochs 9 --batch=17 --lr 1e-3 --lr-decay 1 "
                     "--momentum 0 --weight-decay 0 --seed 18446744073709551615 --bucket-bytes 1 "
                     "--threads-per-rank 2",
                     &why),
               OPTIONS_RUN, "%s", why.text);
  cr_assert_str_eq(o.data, "d");
  cr_assert(o.size_count == 2 && o.sizes[0] == 3 && o.sizes[1] == 2);
  cr_assert(o.epochs == 9 && o.batch == 17 && o.seed == UINT64_MAX && o.bucket_bytes == 1);
  cr_assert(o.lr == 1e-3f && o.lr_decay == 1 && o.momentum == 0 && o.weight_decay == 0);
  cr_assert_eq(o.threads_per_rank, 2);
  cr_assert_eq(parse(&o, "--help", &why), OPTIONS_HELP);
  cr_assert_eq(parse(&o, "--version", &why), OPTIONS_VERSION);
}

Test(trainer_options, ranks_with_other_options_are_told_apart) {
  static const char *const lines[] = {"",
                                      "--layers 784,10",
                                      "--epochs 2",
                                      "--batch 64",
                                      "--lr 0.1",
                                      "--lr-decay 0.9",
                                      "--seed 2",
                                      "--momentum 0.5",
                                      "--weight-decay 0",
                                      "--bucket-bytes 5",
                                      "--wire int8",
                                      "--wire topk",
                                      "--wire topk:0.5"};
  uint64_t seen[13];
  for (int i = 0; i < 13; i++) {
    options o;
    fail why;
    cr_assert_eq(parse(&o, lines[i], &why), OPTIONS_RUN);
    seen[i] = options_fingerprint(&o);
    for (int j = 0; j < i; j++)
      cr_assert_neq(seen[i], seen[j], "'%s' and '%s'", lines[i], lines[j]);
  }
}

Test(trainer_options, bad_ones) {
  static const struct {
    const char *line, *word;
  } bad[] = {
      {"--batch 0", "--batch 0"},
      {"--batch -1", "--batch -1"},
      {"--batch 1e3", "whole number"},
      {"--batch 2147483648", "whole number"},
      {"--batch 99999999999999999999", "whole number"},
      {"--epochs 0", "--epochs"},
      {"--epochs x", "--epochs"},
      {"--seed -1", "--seed"},
      {"--seed 18446744073709551616", "--seed"},
      {"--lr 0", "--lr 0"},
      {"--lr 1e-60", "--lr"},
      {"--lr nan", "--lr nan"},
      {"--lr inf", "--lr inf"},
      {"--lr 1x", "--lr 1x"},
      {"--lr-decay 1.5", "--lr-decay"},
      {"--momentum 1.1", "--momentum"},
      {"--momentum -0.1", "--momentum"},
      {"--weight-decay -1", "--weight-decay"},
      {"--bucket-bytes 0", "--bucket-bytes"},
      {"--wire int4", "--wire int4: must be"},
      {"--wire topk:2", "the part"},
      {"--threads-per-rank 0", "--threads-per-rank"},
      {"--layers 784", "--layers 784"},
      {"--layers 784,", "--layers"},
      {"--layers ,784", "--layers"},
      {"--layers 784,,10", "--layers"},
      {"--layers 784,0,10", "--layers"},
      {"--layers 784;10", "--layers"},
      {"--layers 784,-10", "--layers"},
      {"--layers 784,9999999999", "--layers"},
      {"--data=", "--data"},
      {"--resume", "--checkpoint"},
      {"--batch", "--batch: needs a value"},
      {"--nonsense", "--nonsense"},
      {"--m 1", "ambiguous"},
      {"--quiet=1", "--quiet: takes no value"},
      {"-q", "-q"},
      {"stray", "stray"},
      {"--strategy grid --clip 1", "--clip: has no meaning with --strategy grid"},
      {"--strategy ps-sharded --clip 1", "--clip: has no meaning with --strategy ps-sharded"},
      {"--strategy ps-bounded --clip 1", "--clip: has no meaning with --strategy ps-bounded"},
      {"--accumulate 2 --strategy tensor", "--accumulate: has no meaning with --strategy tensor"},
  };
  for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
    options o;
    fail why;
    cr_assert_eq(parse(&o, bad[i].line, &why), OPTIONS_BAD, "'%s' was accepted", bad[i].line);
    cr_assert(strstr(why.text, bad[i].word), "'%s' does not say '%s'", why.text, bad[i].word);
    cr_assert_null(strchr(why.text, '\n'));
  }
}

/* Whether an option is accepted exactly if the table says that something reads it, when another
 * option has a certain value. Its other requirements are met. */
static void check_pair(const option_row *row, const char *other, const char *value) {
  options o;
  fail why;
  char line[256], want[96];
  const char *mine = row->kind == OPTION_FLAG ? "" : row->initial ? row->initial : "0:2";
  int used = snprintf(line, sizeof(line), "--%s %s --%s %s", other, value, row->name, mine);
  bool fits = true;
  for (int k = 0; k < OPTION_NEEDS && row->needs[k].option; k++) {
    const option_need *need = &row->needs[k];
    const char *words = need->words ? need->words : "file";
    if (strcmp(need->option, other) == 0)
      fits = option_word(words, value) >= 0;
    else
      used += snprintf(line + used, sizeof(line) - (size_t)used, " --%s %.*s", need->option,
                       (int)strcspn(words, "|"), words);
  }
  cr_assert_eq(parse(&o, line, &why), fits ? OPTIONS_RUN : OPTIONS_BAD, "'%s': %s", line, why.text);
  snprintf(want, sizeof(want), "--%s: has no meaning with --%s %s", row->name, other, value);
  cr_assert(fits || strstr(why.text, want), "'%s': %s", line, why.text);
}

/* Every option with every strategy and every model: it is accepted if the table says that something
 * reads it, and refused otherwise. */
Test(trainer_options, foreign_ones_are_refused) {
  static const char *const models[] = {"perceptron", "lenet", "transformer"};
  for (const option_row *row = option_rows; row->name; row++) {
    for (size_t i = 0; strategy_at(i) && strcmp(row->name, "strategy") != 0; i++)
      check_pair(row, "strategy", strategy_at(i)->name);
    for (int i = 0; i < 3 && strcmp(row->name, "model") != 0; i++)
      check_pair(row, "model", models[i]);
  }
}

/* The names in the table exist: with a wrong name an option would always be refused. */
Test(trainer_options, table_names_what_there_is) {
  for (const option_row *row = option_rows; row->name; row++)
    for (int k = 0; k < OPTION_NEEDS; k++) {
      char words[128], line[160];
      options o;
      fail why;
      snprintf(words, sizeof(words), "%s", row->needs[k].words ? row->needs[k].words : "");
      for (char *word = words, *next; *word; word = next) {
        next = word + strcspn(word, "|");
        next += *next ? (*next = '\0', 1) : 0;
        snprintf(line, sizeof(line), "--%s %s", row->needs[k].option, word);
        cr_assert_eq(parse(&o, line, &why), OPTIONS_RUN, "%s: %s", row->name, why.text);
      }
    }
}

/* A message names the range as it is. */
Test(trainer_options, range_of_the_seed) {
  options o;
  fail why;
  cr_assert_eq(parse(&o, "--seed 18446744073709551615", &why), OPTIONS_RUN);
  cr_assert_eq(parse(&o, "--seed 18446744073709551616", &why), OPTIONS_BAD);
  cr_assert_str_eq(why.text, "--seed 18446744073709551616: must be a whole number from 0 to "
                             "18446744073709551615");
}

Test(trainer_progress, fits_every_width) {
  progress p = {.epochs = 4, .first_epoch = 1, .samples = 1000, .begin_s = 100};
  progress_state state = {
      .epoch = 2, .samples = 500, .loss = 0.5, .accuracy = 0.825, .wait_share = 0.07};
  char text[201];
  for (size_t width = 1; width <= 200; width++) {
    size_t length = progress_format(text, sizeof(text), width, &p, &state, 110);
    cr_assert_leq(length, width);
    cr_assert_eq(strlen(text), length);
  }
  /* 500 samples in 10 s; 2,500 are left of epochs 2 to 4. */
  static const char *const words[] = {"epoch 2/4",        "50 %",     "loss 0.5000",
                                      "accuracy 82.50 %", "ETA 50 s", "50 samples/s",
                                      "waiting 7 %",      "#."};
  for (int i = 0; i < 8; i++)
    cr_assert(strstr(text, words[i]), "'%s' lacks '%s'", text, words[i]);
  progress_format(text, sizeof(text), 60, &p, &state, 110);
  cr_assert_null(strchr(text, '#'), "no room for a bar");
  p.begin_s = 0; /* the longest text: it must fit into an ordinary terminal together with the bar */
  p.samples = 60000000;
  state.samples = 30000000;
  progress_format(text, sizeof(text), 79, &p, &state, 110);
  cr_assert(strstr(text, "[######.......]") && strstr(text, "273k/s") && strstr(text, "ETA 9 min"),
            "%s", text);
  state.samples = 0; /* nothing done yet: no rate, and no division by zero */
  progress_format(text, sizeof(text), 200, &p, &state, 100);
}

Test(trainer_metrics, lines_are_added_or_begun_anew) {
  char folder[64], path[96];
  fail why = {.text = ""};
  size_t bytes;
  metrics m = {.path = NULL};
  options o = {.metrics = path};
  epoch_result r = {.epoch = 3, .train_loss = 0.1, .weights_hash = 0xabc};
  files_folder(folder);
  snprintf(path, sizeof(path), "%s/metrics", folder);
  for (int i = 0; i < 3; i++) {
    cr_assert(metrics_open(&m, &o, &why), "%s", why.text);
    cr_assert(i < 2 || metrics_restart(&m, &why));
    cr_assert(metrics_epoch(&m, &r, &why));
    metrics_close(&m);
    uint8_t *text = files_read(folder, "metrics", &bytes);
    text[bytes] = '\0';
    size_t lines = 0;
    for (size_t j = 0; j < bytes; j++)
      lines += text[j] == '\n';
    cr_assert_eq(lines, i == 1 ? 2 : 1);
    cr_assert(strstr((char *)text, "\"epoch\":3,") &&
              strstr((char *)text, "\"train_loss\":0.10000000000000001,") &&
              strstr((char *)text, "\"weights_hash\":\"0000000000000abc\"}\n"));
    free(text);
  }
  o.metrics = "/dev/full";
  cr_assert(metrics_open(&m, &o, &why));
  cr_assert_not(metrics_epoch(&m, &r, &why));
  cr_assert(strstr(why.text, "/dev/full: write: No space"), "%s", why.text);
  metrics_close(&m);
  o.metrics = folder;
  cr_assert_not(metrics_open(&m, &o, &why));
  files_remove(folder);
}

Test(trainer_agree, the_majority_is_right) {
  cr_assert_eq(agree_reference((uint64_t[]){5}, 1), 0);
  cr_assert_eq(agree_reference((uint64_t[]){5, 6}, 2), 0);
  cr_assert_eq(agree_reference((uint64_t[]){6, 5, 5}, 3), 1);
  cr_assert_eq(agree_reference((uint64_t[]){1, 2, 3, 3, 2, 3}, 6), 2);
}
