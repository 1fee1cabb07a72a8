/* test_trainer_data.c: CIFAR-10 and text, from good and damaged files. */
#include "tests/unit/trainer_files.h"
#include "trainer/dataset.h"

#include <criterion/criterion.h>

#define RECORD  3073
#define RECORDS 7 /* of each file */

/* Byte j of record i of file f. */
static uint8_t cifar_byte(int f, int i, int j) {
  return (uint8_t)(j == 0 ? (f + i) % 10 : (j * 7 + i * 3 + f) % 251);
}

/* Writes one of the files with `records` records. */
static void write_batch(const char *folder, int f, int records) {
  static uint8_t bytes[RECORDS * RECORD];
  char name[32];
  for (int i = 0; i < records; i++)
    for (int j = 0; j < RECORD; j++)
      bytes[i * RECORD + j] = cifar_byte(f, i, j);
  snprintf(name, sizeof(name), f < 5 ? "data_batch_%d.bin" : "test_batch.bin", f + 1);
  files_raw(folder, name, bytes, (size_t)records * RECORD);
}

/* A fresh folder with all six files. */
static void make_cifar(char folder[64]) {
  files_folder(folder);
  for (int f = 0; f < 6; f++)
    write_batch(folder, f, RECORDS);
}

/* Loading must fail with a line that contains both words. */
static void expect_bad(const char *path, size_t places, const char *first, const char *second) {
  dataset d;
  fail why = {.text = ""};
  cr_assert_not(dataset_load(&d, path, places, &why), "accepted in spite of: %s", second);
  cr_assert(strstr(why.text, first) && strstr(why.text, second), "%s", why.text);
  cr_assert_eq(d.files, 0);
  cr_assert_null(d.file[0].data);
}

Test(trainer_data, cifar) {
  char folder[64];
  dataset d;
  fail why = {.text = ""};
  static float inputs[3072];
  make_cifar(folder);
  cr_assert(dataset_load(&d, folder, 64, &why), "%s", why.text);
  cr_assert(d.train.count == 5 * RECORDS && d.test.count == RECORDS && d.inputs == 3072);
  cr_assert(d.side == 32 && d.channels == 3 && d.classes == 10 && d.positions == 1 && !d.text);
  for (int i = 0; i < 6 * RECORDS; i++) {
    bool test = i >= 5 * RECORDS;
    const sample_set *set = test ? &d.test : &d.train;
    size_t index = (size_t)(test ? i - 5 * RECORDS : i);
    uint8_t label;
    dataset_inputs(&d, set, index, 2, 1, inputs);
    dataset_labels(&d, set, index, &label);
    cr_assert_eq(label, cifar_byte(i / RECORDS, i % RECORDS, 0));
    for (int place = 0; place < 1024; place++)
      for (int c = 0; c < 3; c++)
        cr_assert_eq(inputs[place * 3 + c],
                     2.0f * cifar_byte(i / RECORDS, i % RECORDS, 1 + c * 1024 + place) + 1);
  }
  dataset_free(&d);
  files_remove(folder);
}

Test(trainer_data, damaged_cifar) {
  char folder[64], name[96];
  size_t bytes;
  make_cifar(folder);
  write_batch(folder, 2, RECORDS - 1);
  expect_bad(folder, 1, "data_batch_3.bin", "6 records, but the first file has 7");
  write_batch(folder, 2, RECORDS);
  uint8_t *batch = files_read(folder, "data_batch_4.bin", &bytes);
  files_raw(folder, "data_batch_4.bin", batch, bytes - 1);
  expect_bad(folder, 1, "data_batch_4.bin", "no whole number of records");
  batch[2 * RECORD] = 10;
  files_raw(folder, "data_batch_4.bin", batch, bytes);
  expect_bad(folder, 1, "data_batch_4.bin", "record 2 has label 10");
  free(batch);
  write_batch(folder, 3, RECORDS);
  files_unlink(folder, "test_batch.bin");
  expect_bad(folder, 1, "test_batch.bin", "No such file");
  files_raw(folder, "test_batch.bin", "", 0);
  expect_bad(folder, 1, "test_batch.bin", "empty");
  snprintf(name, sizeof(name), "%s/test_batch.bin", folder);
  expect_bad(name, 1, "test_batch.bin", "empty");
  files_remove(folder);
}

Test(trainer_data, text) {
  static const char words[] = "to be or not to be: that is the question; whether it is nobler";
  char folder[64], path[96];
  fail why = {.text = ""};
  dataset d;
  loader ld;
  float inputs[4];
  uint8_t labels[4], byte_of[256];
  files_folder(folder);
  files_raw(folder, "text", words, sizeof(words) - 1);
  snprintf(path, sizeof(path), "%s/text", folder);
  cr_assert(dataset_load(&d, path, 4, &why), "%s", why.text);
  size_t count = (sizeof(words) - 2) / 4;
  cr_assert(d.text && d.inputs == 4 && d.positions == 4 && d.side == 0);
  cr_assert(d.test.count == count / 10 && d.train.count == count - count / 10);
  size_t different = 0;
  for (int b = 0; b < 256; b++)
    if (memchr(words, b, sizeof(words) - 1)) {
      cr_assert_eq(d.number_of[b], different);
      byte_of[different++] = (uint8_t)b;
    }
  cr_assert_eq(d.classes, different);
  for (size_t i = 0; i < count; i++) {
    bool test = i >= d.train.count;
    const sample_set *set = test ? &d.test : &d.train;
    dataset_inputs(&d, set, test ? i - d.train.count : i, 9, 9, inputs);
    dataset_labels(&d, set, test ? i - d.train.count : i, labels);
    for (size_t j = 0; j < 4; j++) {
      cr_assert_eq(byte_of[(size_t)inputs[j]], words[4 * i + j]);
      cr_assert_eq(byte_of[labels[j]], words[4 * i + j + 1]);
    }
  }
  cr_assert(loader_create(&ld, &d, 1, 5, &why), "%s", why.text);
  loader_destroy(&ld);
  dataset_free(&d);
  expect_bad(path, 7, "text", "10 are needed");
  files_remove(folder);
}
