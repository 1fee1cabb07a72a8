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

/* Maps a regular, non-empty file for reading; on failure nothing is left open. */
bool file_map(file_bytes *file, const char *path, fail *why);

/* Unmaps or frees the bytes; does nothing if *file is all zero. */
void file_free(file_bytes *file);

#endif
