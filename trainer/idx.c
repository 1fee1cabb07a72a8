/* idx.c: reads image and label files in IDX format, plain or compressed with gzip. */
#include "trainer/idx.h"

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
/* Deflate turns one byte into at most about 1,032. A header that claims more is wrong, and is
 * refused before memory is allocated for it. */
#define DEFLATE_RATIO 1040u
#define INPUT_BYTES   (64 * 1024)

/*
 * An open file. zlib's own file functions do not notice a checksum that is cut off at the end of
 * the file, so we do not use them.
 */
typedef struct idx_file {
  char path[PATH_MAX];
  int fd;
  bool packed; /* compressed with gzip */
  bool ended;  /* the compressed data has ended, with the right checksum */
  z_stream z;
  uint64_t most_bytes; /* upper bound of the contents, from the file's size */
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
    /* Nonblocking: opening a named pipe must not hang. */
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

/* Reads the next raw bytes of the file; fewer only at its end. False: see why. */
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

/* Reads more compressed bytes if all are used up. */
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

/* Closes the file and frees it. */
static void file_close(idx_file *file) {
  if (!file)
    return;
  if (file->packed)
    inflateEnd(&file->z);
  if (file->fd >= 0)
    close(file->fd);
  free(file);
}

/* Finds out whether the file is compressed, and if so prepares to inflate it. */
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
  return got == bytes || fail_set(why, "%s: truncated: at least %zu bytes are missing at the end",
                                  file->path, bytes - got);
}

/* Checks that nothing follows. Only this makes zlib check the checksum. */
static bool file_end(idx_file *file, fail *why) {
  char extra;
  size_t got = 0;
  if (!read_some(file, &extra, 1, &got, why) || (file->packed && !refill(file, why)))
    return false;
  bool more = got > 0 || (file->packed && file->z.avail_in > 0);
  return !more || fail_set(why, "%s: longer than its header says", file->path);
}

/* Reads the magic number and `count` sizes, and checks that the file can hold that much. */
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
      return fail_set(why, "%s: the header says that it is empty (a size of 0)", file->path);
    if (__builtin_mul_overflow(bytes, dims[i], &bytes) || bytes > file->most_bytes)
      return fail_set(why, "%s: the header promises more than the file holds: truncated or corrupt",
                      file->path);
  }
  return true;
}

/* Maps the contents of an uncompressed file, after its header. */
static bool map_contents(idx_file *file, size_t bytes, file_bytes *whole, uint8_t **contents,
                         fail *why) {
  off_t header = lseek(file->fd, 0, SEEK_CUR);
  if (!file_map(whole, file->path, why))
    return false;
  if (header < 0 || whole->bytes < (size_t)header + bytes)
    return fail_set(why, "%s: truncated: at least %zu bytes are missing at the end", file->path,
                    (size_t)header + bytes - whole->bytes);
  if (whole->bytes > (size_t)header + bytes)
    return fail_set(why, "%s: longer than its header says", file->path);
  *contents = whole->data + header;
  return true;
}

/* Reads one whole file: header, contents, end. */
static bool read_file(dataset *d, idx_file *file, uint32_t magic, size_t *dims, size_t count,
                      uint8_t **contents, fail *why) {
  size_t bytes = 1;
  if (!read_header(file, magic, dims, count, why))
    return false;
  for (size_t i = 0; i < count; i++)
    bytes *= dims[i];
  file_bytes *whole = &d->file[d->files++];
  if (!file->packed)
    return map_contents(file, bytes, whole, contents, why);
  *whole = (file_bytes){.data = malloc(bytes), .bytes = bytes};
  *contents = whole->data;
  if (!whole->data)
    return fail_memory(why, file->path);
  return file_read(file, whole->data, bytes, why) && file_end(file, why);
}

/* Reads the images of a set, and their size into *rows and *cols. */
static bool load_images(dataset *d, sample_set *set, const char *folder, const char *name,
                        size_t *rows, size_t *cols, fail *why) {
  size_t dims[3] = {0, 0, 0};
  uint8_t *images = NULL;
  idx_file *file = file_open(folder, name, why);
  bool ok = file && read_file(d, file, IDX_IMAGES, dims, 3, &images, why);
  file_close(file);
  set->count = set->per_file = dims[0];
  set->inputs[0] = images;
  set->input_step = dims[1] * dims[2];
  *rows = dims[1];
  *cols = dims[2];
  return ok;
}

/* Reads the labels of a set; its images have been read. */
static bool load_labels(dataset *d, sample_set *set, const char *folder, const char *name,
                        fail *why) {
  size_t count = 0;
  uint8_t *labels = NULL;
  idx_file *file = file_open(folder, name, why);
  bool ok = file && read_file(d, file, IDX_LABELS, &count, 1, &labels, why);
  if (ok && count != set->count)
    ok = fail_set(why, "%s: %zu labels, but there are %zu images", file->path, count, set->count);
  for (size_t i = 0; ok && i < count; i++)
    if (labels[i] >= d->classes)
      d->classes = (size_t)labels[i] + 1;
  file_close(file);
  set->labels[0] = labels;
  set->label_step = 1;
  return ok;
}

bool idx_load(dataset *d, const char *folder, fail *why) {
  size_t rows, cols, test_rows, test_cols;
  if (!load_images(d, &d->train, folder, "train-images-idx3-ubyte", &rows, &cols, why) ||
      !load_labels(d, &d->train, folder, "train-labels-idx1-ubyte", why) ||
      !load_images(d, &d->test, folder, "t10k-images-idx3-ubyte", &test_rows, &test_cols, why) ||
      !load_labels(d, &d->test, folder, "t10k-labels-idx1-ubyte", why))
    return false;
  if (rows != test_rows || cols != test_cols)
    return fail_set(why, "%s: training images are %zu x %zu, test images %zu x %zu", folder, rows,
                    cols, test_rows, test_cols);
  d->inputs = rows * cols;
  d->positions = 1;
  d->side = rows == cols ? rows : 0;
  d->channels = 1;
  return true;
}
