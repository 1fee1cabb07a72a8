/* test_trainer_idx.c: IDX files, good ones and all kinds of bad ones; batches made from them. */
#include "tests/unit/trainer_files.h"
#include "trainer/dataset.h"

#include <criterion/criterion.h>
#include <dirent.h>
#include <math.h>
#include <sys/stat.h>

#define IMAGES "train-images-idx3-ubyte"
#define LABELS "train-labels-idx1-ubyte"

/* Open descriptors of this process. */
static int open_files(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (dir && readdir(dir))
    count++;
  closedir(dir);
  return count;
}

/* Loading must fail with a line that contains both words, and leave nothing open or allocated. */
static void expect_bad(const char *folder, const char *file, const char *cause) {
  fail why = {.text = ""};
  dataset data;
  int before = open_files();
  cr_assert_not(dataset_load(&data, folder, 64, &why), "%s %s was accepted", file, cause);
  cr_assert(strstr(why.text, file), "'%s' does not name %s", why.text, file);
  cr_assert(strstr(why.text, cause), "'%s' does not say '%s'", why.text, cause);
  cr_assert_null(strchr(why.text, '\n'));
  cr_assert_null(data.train.inputs[0]);
  cr_assert_eq(open_files(), before);
}

/* Writes a changed copy of a file and expects a failure. */
static void expect_bad_file(const char *folder, const char *file, const void *bytes, size_t count,
                            const char *cause) {
  files_write(folder, file, bytes, count);
  expect_bad(folder, file, cause);
}

Test(trainer_idx, reads_plain_and_compressed) {
  for (int i = 0; i < 2; i++) {
    char folder[64];
    fail why = {.text = ""};
    dataset data;
    files_folder(folder);
    files_make(folder, i ? ".gz" : "");
    cr_assert(dataset_load(&data, folder, 64, &why), "%s", why.text);
    cr_assert_eq(data.train.count, FILES_TRAIN);
    cr_assert_eq(data.test.count, FILES_TEST);
    cr_assert(data.side == FILES_SIDE && data.inputs == FILES_SIDE * FILES_SIDE);
    cr_assert(data.classes == FILES_CLASSES && data.positions == 1 && !data.text);
    size_t bytes;
    uint8_t *images = files_images(FILES_TRAIN, 1, &bytes);
    cr_assert_arr_eq(data.train.inputs[0], images + 16, bytes - 16);
    for (size_t s = 0; s < FILES_TRAIN; s++)
      cr_assert_eq(data.train.labels[0][s], files_class(s));
    uint64_t fingerprint = data.fingerprint;
    dataset_free(&data);
    /* One different pixel changes the fingerprint. */
    images[bytes - 1] ^= 1;
    files_write(folder, i ? IMAGES ".gz" : IMAGES, images, bytes);
    cr_assert(dataset_load(&data, folder, 64, &why));
    cr_assert_neq(data.fingerprint, fingerprint);
    dataset_free(&data);
    free(images);
    files_remove(folder);
  }
}

Test(trainer_idx, missing) {
  char folder[64];
  files_folder(folder);
  expect_bad(folder, IMAGES, "no such file");
  files_make(folder, "");
  static const char *const names[] = {IMAGES, LABELS, "t10k-images-idx3-ubyte",
                                      "t10k-labels-idx1-ubyte"};
  for (int i = 0; i < 4; i++) {
    char path[128];
    snprintf(path, sizeof(path), "%s/%s", folder, names[i]);
    files_unlink(folder, names[i]);
    expect_bad(folder, names[i], "no such file");
    cr_assert_eq(mkdir(path, 0700), 0);
    expect_bad(folder, names[i], "not a regular file");
    cr_assert_eq(rmdir(path), 0);
    cr_assert_eq(mkfifo(path, 0600), 0); /* must not block on a pipe without a writer */
    expect_bad(folder, names[i], "not a regular file");
    cr_assert_eq(unlink(path), 0);
    files_make(folder, "");
  }
  files_remove(folder);
}

Test(trainer_idx, wrong_header) {
  char folder[64];
  files_folder(folder);
  files_make(folder, "");
  size_t bytes, label_bytes;
  uint8_t *good = files_images(FILES_TRAIN, 1, &bytes), *bad = malloc(bytes);
  uint8_t *labels = files_labels(FILES_TRAIN, &label_bytes);
  expect_bad_file(folder, IMAGES, labels, label_bytes, "magic number 0x00000801");
  for (size_t dim = 0; dim < 3; dim++) {
    memcpy(bad, good, bytes);
    files_put32(bad + 4 + 4 * dim, 0);
    expect_bad_file(folder, IMAGES, bad, bytes, "empty");
    files_put32(bad + 4 + 4 * dim, 0xffffffffu);
    expect_bad_file(folder, IMAGES, bad, bytes, "promises more");
  }
  memset(bad + 4, 0xff, 12); /* the product does not fit 64 bits */
  expect_bad_file(folder, IMAGES, bad, bytes, "promises more");
  files_put32(good + 4, FILES_TRAIN - 1);
  expect_bad_file(folder, IMAGES, good, bytes, "longer than its header says");
  files_write(folder, IMAGES, good, bytes - FILES_SIDE * FILES_SIDE);
  expect_bad(folder, LABELS, "203 labels, but there are 202 images");
  files_make(folder, "");
  free(good);
  free(bad);
  free(labels);
  files_remove(folder);
}

Test(trainer_idx, test_set_of_another_size) {
  char folder[64];
  files_folder(folder);
  files_make(folder, "");
  size_t bytes;
  uint8_t *images = files_images(FILES_TEST, 1, &bytes);
  files_put32(images + 8, FILES_SIDE / 2);
  files_put32(images + 12, FILES_SIDE * 2);
  files_write(folder, "t10k-images-idx3-ubyte", images, bytes);
  expect_bad(folder, folder, "6 x 6, test images 3 x 12");
  free(images);
  files_remove(folder);
}

/* A truncated file is noticed, wherever it ends. */
Test(trainer_idx, truncated_anywhere) {
  char folder[64];
  files_folder(folder);
  files_make(folder, "");
  size_t bytes;
  uint8_t *images = files_images(FILES_TRAIN, 1, &bytes);
  for (size_t cut = 0; cut < bytes; cut += cut < 40 ? 1 : 311)
    expect_bad_file(folder, IMAGES, images, cut, "truncated");
  free(images);
  files_make(folder, ".gz");
  files_unlink(folder, IMAGES); /* plain files would win */
  files_unlink(folder, LABELS);
  uint8_t *packed = files_read(folder, LABELS ".gz", &bytes);
  for (size_t cut = 0; cut < bytes; cut++) {
    files_raw(folder, LABELS ".gz", packed, cut);
    expect_bad(folder, LABELS ".gz", "");
  }
  packed[bytes] = 0; /* files_read() allocates room for more */
  files_raw(folder, LABELS ".gz", packed, bytes + 1);
  expect_bad(folder, LABELS ".gz", "longer");
  free(packed);
  files_remove(folder);
}

/* The same at the end of a file that zlib cannot unpack in one go. */
Test(trainer_idx, large_file_without_its_last_bytes) {
  enum { COUNT = 20000 };
  char folder[64];
  size_t bytes;
  files_folder(folder);
  files_make(folder, ".gz");
  uint8_t *images = files_images(COUNT, 1, &bytes);
  files_write(folder, IMAGES ".gz", images, bytes);
  free(images);
  uint8_t *packed = files_read(folder, IMAGES ".gz", &bytes);
  for (size_t missing = 1; missing < 12; missing++) {
    files_raw(folder, IMAGES ".gz", packed, bytes - missing);
    expect_bad(folder, IMAGES ".gz", "truncated");
  }
  for (size_t i = 1; i <= 8; i++) {
    packed[bytes - i] ^= 1;
    files_raw(folder, IMAGES ".gz", packed, bytes);
    expect_bad(folder, IMAGES ".gz", "corrupt");
    packed[bytes - i] ^= 1;
  }
  free(packed);
  files_remove(folder);
}

/* A flipped bit anywhere after the first ten bytes of a gzip file (name, time, ...) is noticed. */
Test(trainer_idx, damaged_anywhere) {
  char folder[64];
  files_folder(folder);
  files_make(folder, ".gz");
  size_t bytes;
  uint8_t *packed = files_read(folder, LABELS ".gz", &bytes);
  for (size_t i = 10; i < bytes; i++) {
    packed[i] ^= (uint8_t)(1u << (i % 8));
    files_raw(folder, LABELS ".gz", packed, bytes);
    expect_bad(folder, LABELS ".gz", i + 8 >= bytes ? "corrupt" : "");
    packed[i] ^= (uint8_t)(1u << (i % 8));
  }
  free(packed);
  files_remove(folder);
}

/* ---- batches -------------------------------------------------------------------------------- */

Test(trainer_loader, shards_cover_everything_evenly) {
  for (size_t total = 0; total < 50; total++)
    for (int n = 1; n < 20; n++) {
      size_t next = 0;
      for (int r = 0; r < n; r++) {
        shard part = shard_of(total, r, n);
        cr_assert_eq(part.first, next);
        cr_assert(part.count == total / (size_t)n || part.count == total / (size_t)n + 1);
        next += part.count;
      }
      cr_assert_eq(next, total);
    }
}

/* Data in which each image encodes its sample number. */
static dataset numbered(uint8_t *images, uint8_t *labels) {
  for (size_t i = 0; i < FILES_TRAIN; i++) {
    images[2 * i] = (uint8_t)(i / 16);
    images[2 * i + 1] = (uint8_t)(i % 16);
    labels[i] = (uint8_t)i;
  }
  sample_set set = {.count = FILES_TRAIN,
                    .per_file = FILES_TRAIN,
                    .inputs = {images},
                    .labels = {labels},
                    .input_step = 2,
                    .label_step = 1};
  return (dataset){.train = set, .test = set, .inputs = 2, .positions = 1};
}

Test(trainer_loader, every_rank_count_sees_the_same_batches) {
  static uint8_t images[2 * FILES_TRAIN], labels[FILES_TRAIN];
  dataset data = numbered(images, labels);
  loader one;
  fail why;
  cr_assert(loader_create(&one, &data, 5, 16, &why));
  cr_assert_eq(loader_steps(&one), 13);
  cr_assert_eq(loader_batch_size(&one, 12), FILES_TRAIN - 12 * 16);
  for (uint64_t epoch = 0; epoch < 3; epoch++) {
    int seen[FILES_TRAIN] = {0};
    loader_epoch(&one, epoch);
    for (size_t step = 0; step < loader_steps(&one); step++) {
      size_t size = loader_batch_size(&one, step);
      float whole[32], parts[32];
      uint8_t whole_labels[16], part_labels[16];
      loader_train(&one, step * 16, size, whole, whole_labels);
      for (int n = 2; n < 20; n += 3) { /* also more ranks than samples */
        for (int r = 0; r < n; r++) {
          shard part = shard_of(size, r, n);
          loader_train(&one, step * 16 + part.first, part.count, parts + 2 * part.first,
                       part_labels + part.first);
        }
        cr_assert_arr_eq(whole, parts, 2 * size * sizeof(float));
        cr_assert_arr_eq(whole_labels, part_labels, size);
      }
      for (size_t i = 0; i < size; i++)
        seen[whole_labels[i]]++;
    }
    for (size_t i = 0; i < FILES_TRAIN; i++)
      cr_assert_eq(seen[i], 1, "epoch %zu has sample %zu %d times", (size_t)epoch, i, seen[i]);
  }
  loader_destroy(&one);
}

Test(trainer_loader, order_depends_on_seed_and_epoch_alone) {
  static uint8_t images[2 * FILES_TRAIN], labels[FILES_TRAIN];
  dataset data = numbered(images, labels);
  loader a, b;
  fail why;
  size_t bytes = FILES_TRAIN * sizeof(uint32_t);
  cr_assert(loader_create(&a, &data, 5, 16, &why) && loader_create(&b, &data, 5, 32, &why));
  loader_epoch(&a, 0);
  loader_epoch(&a, 3); /* b starts there, as a resumed run does */
  loader_epoch(&b, 3);
  cr_assert_arr_eq(a.order, b.order, bytes);
  loader_epoch(&b, 4);
  cr_assert_neq(memcmp(a.order, b.order, bytes), 0);
  loader_destroy(&b);
  cr_assert(loader_create(&b, &data, 6, 16, &why));
  loader_epoch(&b, 3);
  cr_assert_neq(memcmp(a.order, b.order, bytes), 0);
  loader_destroy(&a);
  loader_destroy(&b);
}

Test(trainer_loader, inputs_have_mean_0_and_deviation_1) {
  static uint8_t images[2 * FILES_TRAIN], labels[FILES_TRAIN];
  dataset data = numbered(images, labels);
  loader ld;
  fail why;
  static float inputs[2 * FILES_TRAIN];
  static uint8_t got[FILES_TRAIN];
  double sum = 0, squares = 0;
  cr_assert(loader_create(&ld, &data, 1, FILES_TRAIN, &why));
  loader_train(&ld, 0, FILES_TRAIN, inputs, got);
  for (size_t i = 0; i < 2 * FILES_TRAIN; i++) {
    sum += inputs[i];
    squares += (double)inputs[i] * inputs[i];
  }
  cr_assert_float_eq(sum / (2 * FILES_TRAIN), 0, 1e-5);
  cr_assert_float_eq(squares / (2 * FILES_TRAIN), 1, 1e-5);
  loader_test(&ld, (shard){10, 2}, inputs, got);
  cr_assert_eq(got[0], 10);
  cr_assert_float_eq(inputs[1], images[21] * ld.scale + ld.offset, 1e-6);
  loader_destroy(&ld);
}
