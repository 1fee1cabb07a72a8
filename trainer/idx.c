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
#define INPUT_BYTES   (64 * 1024)

/*
 * An open file. zlib's own file functions are not used: they do not notice when a file lacks a part
 * of the checksum at its very end.
 */
typedef struct idx_file {
  char path[PATH_MAX];
  int fd;
  bool packed; /* with gzip */
  bool ended;  /* the compressed data came to its end, and its checksum was right */
  z_stream z;
  uint64_t most_bytes; /* what a file of this size can hold at most */
  unsigned char input[INPUT_BYTES];
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

/* Reads what comes next in the file as it is; fewer bytes only at its end. False: see why. */
static bool read_raw(idx_file *file, void *buf, size_t bytes, size_t *got, fail *why) {
  *got = 0;
  while (*got < bytes) {
    ssize_t now = read(file->fd, (char *)buf + *got, bytes - *got);
    if (now < 0 && errno == EINTR)
      continue;
    if (now < 0)
      return fail_set(why, "%s: read: %s", file->path, strerror(errno));
    if (now == 0)
      break;
    *got += (size_t)now;
  }
  return true;
}

/* Gets more compressed bytes when all were used. */
static bool refill(idx_file *file, fail *why) {
  size_t got = 0;
  if (file->z.avail_in > 0)
    return true;
  if (!read_raw(file, file->input, sizeof(file->input), &got, why))
    return false;
  file->z.next_in = file->input;
  file->z.avail_in = (unsigned)got;
  return true;
}

/* Closes the file and frees what goes with it. */
static void file_close(idx_file *file) {
  if (!file)
    return;
  if (file->packed)
    inflateEnd(&file->z);
  if (file->fd >= 0)
    close(file->fd);
  free(file);
}

/* Looks whether the file is compressed, and makes ready for that. */
static bool find_kind(idx_file *file, fail *why) {
  if (!refill(file, why))
    return false;
  if (file->z.avail_in < 2 || file->input[0] != 0x1f || file->input[1] != 0x8b)
    return lseek(file->fd, 0, SEEK_SET) == 0 ||
           fail_set(why, "%s: seek: %s", file->path, strerror(errno));
  if (inflateInit2(&file->z, MAX_WBITS + 16) != Z_OK) /* 16: with gzip's header and checksum */
    return fail_memory(why, file->path);
  file->packed = true;
  return true;
}

/* Opens a file; release it with file_close(). NULL: see why. */
static idx_file *file_open(const char *folder, const char *name, fail *why) {
  struct stat st;
  idx_file *file = calloc(1, sizeof(*file));
  if (!file) {
    fail_memory(why, name);
    return NULL;
  }
  file->fd = open_either(file, folder, name, why);
  bool ok = file->fd >= 0;
  if (ok && (fstat(file->fd, &st) != 0 || !S_ISREG(st.st_mode)))
    ok = fail_set(why, "%s: not a regular file", file->path);
  if (!ok || !find_kind(file, why)) {
    file_close(file);
    return NULL;
  }
  file->most_bytes = (uint64_t)st.st_size * (file->packed ? DEFLATE_RATIO : 1u);
  return file;
}

/* Unpacks up to `bytes` bytes; fewer only at the end of the compressed data. */
static bool unpack(idx_file *file, void *buf, size_t bytes, size_t *got, fail *why) {
  *got = 0;
  while (*got < bytes && !file->ended) {
    size_t left = bytes - *got;
    if (!refill(file, why))
      return false;
    if (file->z.avail_in == 0)
      return fail_set(why, "%s: truncated: the compressed data has no end", file->path);
    unsigned room = left < UINT_MAX ? (unsigned)left : UINT_MAX;
    file->z.next_out = (unsigned char *)buf + *got;
    file->z.avail_out = room;
    int code = inflate(&file->z, Z_NO_FLUSH);
    *got += room - file->z.avail_out;
    file->ended = code == Z_STREAM_END;
    if (code != Z_OK && code != Z_STREAM_END)
      return fail_set(why, "%s: corrupt (zlib: %s): get the file again", file->path,
                      file->z.msg ? file->z.msg : zError(code));
  }
  return true;
}

/* Reads up to `bytes` bytes of contents; fewer only at their end. */
static bool read_some(idx_file *file, void *buf, size_t bytes, size_t *got, fail *why) {
  return file->packed ? unpack(file, buf, bytes, got, why) : read_raw(file, buf, bytes, got, why);
}

/* Reads exactly `bytes` bytes. */
static bool file_read(idx_file *file, void *buf, size_t bytes, fail *why) {
  size_t got = 0;
  if (!read_some(file, buf, bytes, &got, why))
    return false;
  return got == bytes || fail_set(why, "%s: truncated: at least %zu bytes are missing at its end",
                                  file->path, bytes - got);
}

/* Makes sure that nothing follows; only this makes zlib look at the checksum. */
static bool file_end(idx_file *file, fail *why) {
  char extra;
  size_t got = 0;
  if (!read_some(file, &extra, 1, &got, why) || (file->packed && !refill(file, why)))
    return false;
  bool more = got > 0 || (file->packed && file->z.avail_in > 0);
  return !more || fail_set(why, "%s: longer than its header says", file->path);
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
  size_t dims[3] = {0, 0, 0};
  idx_file *file = file_open(folder, name, why);
  bool ok = file && read_file(file, IDX_IMAGES, dims, 3, &set->images, why);
  file_close(file);
  set->count = dims[0];
  set->rows = dims[1];
  set->cols = dims[2];
  return ok;
}

/* Reads the labels of a set whose images are there, and checks them. */
static bool load_labels(idx_set *set, const char *folder, const char *name, size_t classes,
                        fail *why) {
  size_t count = 0;
  idx_file *file = file_open(folder, name, why);
  bool ok = file && read_file(file, IDX_LABELS, &count, 1, &set->labels, why);
  if (ok && count != set->count)
    ok = fail_set(why, "%s: %zu labels, but there are %zu images", file->path, count, set->count);
  for (size_t i = 0; ok && i < count; i++)
    if (set->labels[i] >= classes)
      ok = fail_set(why,
                    "%s: label %u of sample %zu is out of range: the last layer has %zu outputs",
                    file->path, set->labels[i], i, classes);
  file_close(file);
  return ok;
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
