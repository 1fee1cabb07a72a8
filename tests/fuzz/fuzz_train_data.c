/* fuzz_train_data.c: a data set's file: IDX, plain or compressed, or CIFAR-10. The first byte says
 * which of its files it is. */
#include "fuzz.h"
#include "trainer/dataset.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  static const char *const names[] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                      "t10k-images-idx3-ubyte", "train-images-idx3-ubyte.gz",
                                      "data_batch_1.bin"};
  /* The other files are good: two pictures of 2 x 2 pixels. */
  static const uint8_t images[] = {0, 0, 8, 3, 0, 0, 0, 2, 0, 0, 0, 2,
                                   0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8};
  static const uint8_t labels[] = {0, 0, 8, 1, 0, 0, 0, 2, 0, 1};
  char folder[128];
  fail why = {.text = ""};
  dataset set;
  if (bytes == 0)
    return 0;
  size_t which = data[0] % (sizeof(names) / sizeof(*names));
  strcpy(folder, fuzz_file("t10k-labels-idx1-ubyte", labels, sizeof(labels)));
  *strrchr(folder, '/') = '\0';
  for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
    remove(fuzz_file(names[i], labels, 0));
  if (which < 4) {
    fuzz_file(names[2], images, sizeof(images));
    fuzz_file(names[1], labels, sizeof(labels));
    if (which != 0 && which != 3)
      fuzz_file(names[0], images, sizeof(images));
  }
  fuzz_file(names[which], data + 1, bytes - 1);
  if (dataset_load(&set, folder, 64, &why))
    dataset_free(&set);
  return 0;
}
