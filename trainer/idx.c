/* idx.c: reads image and label files in IDX format, plain or compressed with gzip. */
#include "trainer/idx.h"

#include "trainer/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#define IDX_IMAGES 0x00000803u /* unsigned bytes, three dimensions */
#define IDX_LABELS 0x00000801u /* unsigned bytes, one dimension */
/* Deflate cannot make more than about 1,032 bytes from one: a header that claims more is wrong,
 * and is found out before memory is taken for it. */
#define DEFLATE_RATIO 1040u
#define READ_BYTES    ((unsigned)1 << 30)

typedef struct idx_file {
  char path[PATH_MAX];
  gzFile gz;
  uint64_t most_bytes; /* what a file of this size can hold at most */
} idx_file;

/* Opens a descriptor of FOLDER/NAME or FOLDER/NAME.gz and leaves the path in file->path. */
static int open_either(idx_file *file, const char *folder, const char *name, fail *why) {
  const char *endings[] = {"", ".gz"};
  for (int i = 0; i < 2; i++) {
    int length = snprintf(file->path, sizeof(file->path), "%s/%s%s", folder, name, endings[i]);
    if (length < 0 || (size_t)length >= sizeof(file->path)) {
      fail_set(why, "%.200s...: the path is too long", folder);
      return -1;
    }
    /* Not blocking: a named pipe in the file's place must not stop us for ever. */
    int fd = open(file->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd >= 0)
      return fd;
    if (errno != ENOENT) {
      fail_set(why, "%s: %s", file->path, strerror(errno));
      return -1;
    }
  }
  fail_set(why,
           "%s/%s: no such file, neither plain nor with .gz: name the right folder with --data",
           folder, name);
  return -1;
}

/* Opens the file for reading through zlib, which also reads plain files. */
static bool file_open(idx_file *file, const char *folder, const char *name, fail *why) {
  struct stat st;
  int fd = open_either(file, folder, name, why);
  if (fd < 0)
    return false;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return fail_set(why, "%s: not a regular file", file->path);
  }
  file->gz = gzdopen(fd, "rb");
  if (!file->gz) {
    close(fd);
    return fail_memory(why, file->path);
  }
  gzbuffer(file->gz, 256 * 1024);
  file->most_bytes = (uint64_t)st.st_size * (gzdirect(file->gz) ? 1u : DEFLATE_RATIO);
  return true;
}

/* Says why zlib stopped early. */
static bool short_read(const idx_file *file, uint64_t missing, fail *why) {
  int code = 0;
  const char *text = gzerror(file->gz, &code);
  if (code == Z_ERRNO)
    return fail_set(why, "%s: read: %s", file->path, strerror(errno));
  if (code != Z_OK && code != Z_BUF_ERROR && code != Z_STREAM_END)
    return fail_set(why, "%s: corrupt (zlib: %s): get the file again", file->path, text);
  return fail_set(why, "%s: truncated: at least %llu bytes are missing at its end", file->path,
                  (unsigned long long)missing);
}

/* Reads `bytes` bytes. */
static bool file_read(idx_file *file, void *buf, size_t bytes, fail *why) {
  size_t done = 0;
  while (done < bytes) {
    size_t left = bytes - done;
    int got = gzread(file->gz, (char *)buf + done, left < READ_BYTES ? (unsigned)left : READ_BYTES);
    if (got <= 0)
      return short_read(file, left, why);
    done += (size_t)got;
  }
  return true;
}

/* Makes sure that nothing follows; only this makes zlib compare its checksum. */
static bool file_end(idx_file *file, fail *why) {
  char extra;
  int code = Z_OK;
  int got = gzread(file->gz, &extra, 1);
  if (got > 0)
    return fail_set(why, "%s: longer than its header says", file->path);
  const char *text = gzerror(file->gz, &code);
  if (got == 0 && code == Z_OK)
    return true;
  return fail_set(why, "%s: corrupt (zlib: %s): get the file again", file->path,
                  code == Z_BUF_ERROR ? "the end is missing" : text);
}

/* Reads the magic number and `count` sizes, and checks that so much can be in the file. */
static bool read_header(idx_file *file, uint32_t magic, size_t *dims, size_t count, fail *why) {
  unsigned char raw[16];
  uint64_t bytes = 1;
  if (!file_read(file, raw, 4, why))
    return false;
  uint32_t found = (uint32_t)raw[0] << 24 | (uint32_t)raw[1] << 16 | (uint32_t)raw[2] << 8 | raw[3];
  if (found != magic)
    return fail_set(why, "%s: not an IDX file of %s: magic number 0x%08x, expected 0x%08x",
                    file->path, magic == IDX_IMAGES ? "images" : "labels", found, magic);
  if (!file_read(file, raw, 4 * count, why))
    return false;
  for (size_t i = 0; i < count; i++) {
    const unsigned char *p = raw + 4 * i;
    dims[i] = (size_t)p[0] << 24 | (size_t)p[1] << 16 | (size_t)p[2] << 8 | p[3];
    if (dims[i] == 0)
      return fail_set(why, "%s: its header says that it is empty (a size of 0)", file->path);
    if (__builtin_mul_overflow(bytes, dims[i], &bytes) || bytes > file->most_bytes)
      return fail_set(why, "%s: its header promises more than the file holds: truncated or corrupt",
                      file->path);
  }
  return true;
}

/* Reads the whole of one file: header, contents, end. Gives its contents in *contents. */
static bool read_file(idx_file *file, uint32_t magic, size_t *dims, size_t count,
                      uint8_t **contents, fail *why) {
  size_t bytes = 1;
  if (!read_header(file, magic, dims, count, why))
    return false;
  for (size_t i = 0; i < count; i++)
    bytes *= dims[i];
  uint8_t *memory = malloc(bytes);
  if (!memory)
    return fail_memory(why, file->path);
  if (!file_read(file, memory, bytes, why) || !file_end(file, why)) {
    free(memory);
    return false;
  }
  *contents = memory;
  return true;
}

/* Reads the images of a set. */
static bool load_images(idx_set *set, const char *folder, const char *name, fail *why) {
  idx_file file = {.gz = NULL};
  size_t dims[3] = {0, 0, 0};
  if (!file_open(&file, folder, name, why))
    return false;
  bool ok = read_file(&file, IDX_IMAGES, dims, 3, &set->images, why);
  gzclose_r(file.gz);
  set->count = dims[0];
  set->rows = dims[1];
  set->cols = dims[2];
  if (ok && set->count > UINT32_MAX / 2)
    return fail_set(why, "%s: %zu images are more than fit", file.path, set->count);
  return ok;
}

/* Reads the labels of a set whose images are there, and checks them. */
static bool load_labels(idx_set *set, const char *folder, const char *name, size_t classes,
                        fail *why) {
  idx_file file = {.gz = NULL};
  size_t count = 0;
  if (!file_open(&file, folder, name, why))
    return false;
  bool ok = read_file(&file, IDX_LABELS, &count, 1, &set->labels, why);
  gzclose_r(file.gz);
  if (!ok)
    return false;
  if (count != set->count)
    return fail_set(why, "%s: %zu labels, but there are %zu images", file.path, count, set->count);
  for (size_t i = 0; i < count; i++)
    if (set->labels[i] >= classes)
      return fail_set(why,
                      "%s: label %u of sample %zu is out of range: the last layer has %zu outputs",
                      file.path, set->labels[i], i, classes);
  return true;
}

/* A number that differs when the contents differ (CRC-32 of each file, hashed together). */
static uint64_t fingerprint(const idx_data *data) {
  const idx_set *sets[] = {&data->train, &data->test};
  uint64_t hash = HASH_START;
  for (int i = 0; i < 2; i++) {
    uint64_t words[] = {sets[i]->count, sets[i]->rows, sets[i]->cols,
                        crc32_z(0, sets[i]->images, sets[i]->count * sets[i]->rows * sets[i]->cols),
                        crc32_z(0, sets[i]->labels, sets[i]->count)};
    hash = hash_bytes(hash, words, sizeof(words));
  }
  return hash;
}

bool idx_load(idx_data *data, const char *folder, size_t classes, fail *why) {
  memset(data, 0, sizeof(*data));
  bool ok = load_images(&data->train, folder, "train-images-idx3-ubyte", why) &&
            load_labels(&data->train, folder, "train-labels-idx1-ubyte", classes, why) &&
            load_images(&data->test, folder, "t10k-images-idx3-ubyte", why) &&
            load_labels(&data->test, folder, "t10k-labels-idx1-ubyte", classes, why);
  if (ok && (data->train.rows != data->test.rows || data->train.cols != data->test.cols))
    ok = fail_set(why, "%s: training images are %zu x %zu, test images %zu x %zu", folder,
                  data->train.rows, data->train.cols, data->test.rows, data->test.cols);
  if (ok)
    data->fingerprint = fingerprint(data);
  else
    idx_free(data);
  return ok;
}

void idx_free(idx_data *data) {
  free(data->train.images);
  free(data->train.labels);
  free(data->test.images);
  free(data->test.labels);
  memset(data, 0, sizeof(*data));
}
