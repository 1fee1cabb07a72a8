/* file.h: a whole file in memory. */
#ifndef TRAINER_FILE_H
#define TRAINER_FILE_H

#include "trainer/fail.h"

#include <stddef.h>
#include <stdint.h>

/* Bytes of a file, mapped or copied. */
typedef struct file_bytes {
  uint8_t *data;
  size_t bytes;
  bool mapped;
} file_bytes;

/* Maps a regular file that is not empty, to read; on failure nothing is left open. */
bool file_map(file_bytes *file, const char *path, fail *why);

/* Gives the bytes back; harmless on zeroes. */
void file_free(file_bytes *file);

#endif
