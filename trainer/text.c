/* text.c: reads any text for models that tell the next byte. */
#include "trainer/text.h"

bool text_load(dataset *d, const char *path, size_t places, fail *why) {
  bool there[256] = {false};
  if (!file_map(&d->file[0], path, why))
    return false;
  const file_bytes *file = &d->file[d->files++];
  for (size_t i = 0; i < file->bytes; i++)
    there[file->data[i]] = true;
  for (int b = 0; b < 256; b++)
    if (there[b])
      d->number_of[b] = (uint8_t)d->classes++;
  size_t count = file->bytes > 0 ? (file->bytes - 1) / places : 0, test = count / 10;
  if (test == 0)
    return fail_set(why, "%s: %zu bytes make %zu samples of %zu bytes, and 10 are needed at least",
                    path, file->bytes, count, places);
  d->inputs = d->positions = places;
  d->text = true;
  d->train = (sample_set){.count = count - test,
                          .per_file = count,
                          .inputs = {file->data},
                          .labels = {file->data + 1},
                          .input_step = places,
                          .label_step = places};
  d->test = d->train;
  d->test.count = test;
  d->test.inputs[0] += d->train.count * places;
  d->test.labels[0] += d->train.count * places;
  return true;
}
