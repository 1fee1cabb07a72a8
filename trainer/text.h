/* text.h: reads any text for models that tell the next byte. */
#ifndef TRAINER_TEXT_H
#define TRAINER_TEXT_H

#include "trainer/dataset.h"

/*
 * Maps a file and cuts it into samples of `places` bytes, the last tenth of them for the test. The
 * label of a byte is the byte behind it; symbols are the different bytes of the file, numbered in
 * their order. What was taken is in d->file, also on failure.
 */
bool text_load(dataset *d, const char *path, size_t places, fail *why);

#endif
