/* trainer_files.h: small made-up data sets in IDX files, for the trainer's tests. */
#ifndef TESTS_TRAINER_FILES_H
#define TESTS_TRAINER_FILES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define FILES_SIDE    6 /* images of 6 x 6 pixels */
#define FILES_CLASSES 4
#define FILES_TRAIN   203 /* a prime: batches and shards never divide evenly */
#define FILES_TEST    61

/* A fresh empty folder below /tmp; its name goes to `folder`. */
static inline void files_folder(char folder[64]) {
  strcpy(folder, "/tmp/coll-trainer-XXXXXX");
  if (!mkdtemp(folder))
    abort();
}

/* Removes a folder of plain files. */
static inline void files_remove(const char *folder) {
  char command[256];
  snprintf(command, sizeof(command), "rm -rf '%s'", folder);
  if (strncmp(folder, "/tmp/coll-trainer-", 18) != 0 || system(command) != 0)
    abort();
}

/* Writes a file. */
static inline void files_raw(const char *folder, const char *name, const void *data, size_t bytes) {
  char path[512];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "wb");
  if (!file || fwrite(data, 1, bytes, file) != bytes || fclose(file) != 0)
    abort();
}

/* Writes a file, compressed if the name ends with .gz. */
static inline void files_write(const char *folder, const char *name, const void *data,
                               size_t bytes) {
  char path[512];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  size_t length = strlen(name);
  if (length < 3 || strcmp(name + length - 3, ".gz") != 0) {
    files_raw(folder, name, data, bytes);
    return;
  }
  gzFile gz = gzopen(path, "wb9");
  if (!gz || gzwrite(gz, data, (unsigned)bytes) != (int)bytes || gzclose(gz) != Z_OK)
    abort();
}

/* Removes a file. */
static inline void files_unlink(const char *folder, const char *name) {
  char path[512];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  if (unlink(path) != 0)
    abort();
}

/* Reads a whole file; the caller frees it. */
static inline uint8_t *files_read(const char *folder, const char *name, size_t *bytes) {
  char path[512];
  snprintf(path, sizeof(path), "%s/%s", folder, name);
  FILE *file = fopen(path, "rb");
  uint8_t *data = malloc(1 << 22);
  if (!file || !data)
    abort();
  *bytes = fread(data, 1, 1 << 22, file);
  fclose(file);
  return data;
}

/* A number in IDX's byte order. */
static inline void files_put32(uint8_t *at, uint32_t value) {
  for (int i = 0; i < 4; i++)
    at[i] = (uint8_t)(value >> (24 - 8 * i));
}

/* Pseudorandom numbers, the same on every machine. */
static inline uint32_t files_noise(uint32_t *state) {
  *state = *state * 1664525u + 1013904223u;
  return *state >> 16;
}

/* The class of a made-up sample. */
static inline size_t files_class(size_t sample) {
  return (sample * 7 + sample / 5) % FILES_CLASSES;
}

/* Makes an image file: each class lights one quarter of the picture, half hidden by noise. The
 * caller frees it. */
static inline uint8_t *files_images(size_t count, uint32_t noise, size_t *bytes) {
  *bytes = 16 + count * FILES_SIDE * FILES_SIDE;
  uint8_t *data = malloc(*bytes);
  if (!data)
    abort();
  uint8_t *p = data + 16;
  files_put32(data, 0x803);
  files_put32(data + 4, (uint32_t)count);
  files_put32(data + 8, FILES_SIDE);
  files_put32(data + 12, FILES_SIDE);
  for (size_t i = 0; i < count; i++)
    for (int y = 0; y < FILES_SIDE; y++)
      for (int x = 0; x < FILES_SIDE; x++) {
        size_t quarter = (size_t)(2 * (y >= FILES_SIDE / 2) + (x >= FILES_SIDE / 2));
        uint32_t light = quarter == files_class(i) ? 90 : 0;
        *p++ = (uint8_t)(light + files_noise(&noise) % 160);
      }
  return data;
}

/* Makes the label file for files_images(). The caller frees it. */
static inline uint8_t *files_labels(size_t count, size_t *bytes) {
  *bytes = 8 + count;
  uint8_t *data = malloc(*bytes);
  if (!data)
    abort();
  files_put32(data, 0x801);
  files_put32(data + 4, (uint32_t)count);
  for (size_t i = 0; i < count; i++)
    data[8 + i] = (uint8_t)files_class(i);
  return data;
}

/* Writes all four files; `ending` is "" or ".gz". */
static inline void files_make(const char *folder, const char *ending) {
  static const struct {
    const char *images, *labels;
    size_t count;
  } sets[] = {{"train-images-idx3-ubyte", "train-labels-idx1-ubyte", FILES_TRAIN},
              {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte", FILES_TEST}};
  for (uint32_t i = 0; i < 2; i++) {
    char name[64];
    size_t bytes;
    uint8_t *data = files_images(sets[i].count, i + 1, &bytes);
    snprintf(name, sizeof(name), "%s%s", sets[i].images, ending);
    files_write(folder, name, data, bytes);
    free(data);
    data = files_labels(sets[i].count, &bytes);
    snprintf(name, sizeof(name), "%s%s", sets[i].labels, ending);
    files_write(folder, name, data, bytes);
    free(data);
  }
}

#endif
