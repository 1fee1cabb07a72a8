/* idx.c: reads image and label files in IDX format, plain or compressed with gzip. */
#include "trainer/dataset.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#define IDX_IMAGES 0x00000803u /* unsigned bytes, three dimensions */
#define IDX_LABELS 0x00000801u /* unsigned bytes, one dimension */
/* Deflate turns one byte into at most about 1,032. A header that claims more is wrong, and is
 * refused before memory is allocated for it. */
#define DEFLATE_RATIO 1040u

/* A file on disk: an IDX header of `head` bytes with `count` sizes, and that many bytes. */
typedef struct idx_file {
  char path[PATH_MAX];
  uint32_t magic;
  size_t count, dims[3], head, bytes;
  file_bytes raw;
} idx_file;

/* Maps FOLDER/NAME, or else FOLDER/NAME.gz. */
static bool map_either(idx_file *file, const char *folder, const char *name, fail *why) {
  char packed[64];
  snprintf(packed, sizeof(packed), "%s.gz", name);
  if (!file_path(file->path, folder, name, why) ||
      (access(file->path, F_OK) != 0 && !file_path(file->path, folder, packed, why)))
    return false;
  if (access(file->path, F_OK) == 0 || errno != ENOENT)
    return file_map(&file->raw, file->path, why);
  return fail_set(why,
                  "%s/%s: no such file, neither plain nor with .gz: name the right folder with "
                  "--data",
                  folder, name);
}

/* A number in IDX's byte order. */
static uint32_t number_at(const uint8_t *p) {
  return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* Reads a header of which `got` bytes are there; the whole file has at most `most` bytes. */
static bool read_header(idx_file *file, const uint8_t *head, size_t got, uint64_t most, fail *why) {
  uint64_t bytes = 1;
  if (got >= 4 && number_at(head) != file->magic)
    return fail_set(why, "%s: not an IDX file of %s: magic number 0x%08x, expected 0x%08x",
                    file->path, file->magic == IDX_IMAGES ? "images" : "labels", number_at(head),
                    file->magic);
  if (got < file->head)
    return fail_set(why, "%s: truncated: at least %zu bytes are missing at the end", file->path,
                    file->head - got);
  for (size_t i = 0; i < file->count; i++) {
    file->dims[i] = number_at(head + 4 + 4 * i);
    if (file->dims[i] == 0)
      return fail_set(why, "%s: the header says that it is empty (a size of 0)", file->path);
    if (__builtin_mul_overflow(bytes, file->dims[i], &bytes) || bytes > most)
      return fail_set(why, "%s: the header promises more than the file holds: truncated or corrupt",
                      file->path);
  }
  file->bytes = bytes;
  return true;
}

/* Whether `got` bytes are as many as the header says. */
static bool check_length(const idx_file *file, size_t got, fail *why) {
  if (got < file->bytes)
    return fail_set(why, "%s: truncated: at least %zu bytes are missing at the end", file->path,
                    file->bytes - got);
  return got == file->bytes || fail_set(why, "%s: longer than its header says", file->path);
}

/*
 * Unpacks up to `bytes` bytes; *got are fewer only at the end. zlib's own file functions are not
 * used: they do not notice when a file lacks a part of the checksum at its very end.
 */
static bool unpack(const idx_file *file, z_stream *z, uint8_t *to, size_t bytes, size_t *got,
                   fail *why) {
  const uint8_t *end = file->raw.data + file->raw.bytes;
  int code = Z_OK;
  for (*got = 0; *got < bytes && code == Z_OK; *got = (size_t)(z->next_out - to)) {
    size_t left = (size_t)(end - z->next_in), room = bytes - *got;
    z->next_out = to + *got;
    z->avail_in = left < UINT_MAX ? (unsigned)left : UINT_MAX; /* zlib counts in 32 bits */
    z->avail_out = room < UINT_MAX ? (unsigned)room : UINT_MAX;
    code = inflate(z, Z_NO_FLUSH);
  }
  if (code == Z_BUF_ERROR)
    return fail_set(why, "%s: truncated: the compressed data has no end", file->path);
  return code == Z_OK || code == Z_STREAM_END ||
         fail_set(why, "%s: corrupt (zlib: %s): get the file again", file->path,
                  z->msg ? z->msg : zError(code));
}

/* The contents of a compressed file. The byte behind the last makes zlib look at the checksum. */
static bool read_packed(idx_file *file, z_stream *z, file_bytes *whole, fail *why) {
  uint8_t head[16], more;
  size_t got = 0, extra = 0;
  if (!unpack(file, z, head, file->head, &got, why) ||
      !read_header(file, head, got, (uint64_t)file->raw.bytes * DEFLATE_RATIO, why))
    return false;
  *whole = (file_bytes){.data = malloc(file->bytes), .bytes = file->bytes};
  if (!whole->data)
    return fail_memory(why, file->path);
  if (!unpack(file, z, whole->data, file->bytes, &got, why) || !check_length(file, got, why) ||
      !unpack(file, z, &more, 1, &extra, why))
    return false;
  return check_length(file, got + extra + (z->next_in < file->raw.data + file->raw.bytes), why);
}

/* Reads one whole file. On failure d->file still lists what was mapped or allocated. */
static bool read_idx(dataset *d, idx_file *file, const char *folder, const char *name,
                     const uint8_t **contents, fail *why) {
  file->head = 4 + 4 * file->count;
  if (!map_either(file, folder, name, why))
    return false;
  file_bytes *raw = &file->raw, *whole = &d->file[d->files++];
  if (raw->bytes < 2 || raw->data[0] != 0x1f || raw->data[1] != 0x8b) {
    *whole = *raw;
    *contents = raw->data + file->head;
    return read_header(file, raw->data, raw->bytes, raw->bytes, why) &&
           check_length(file, raw->bytes - file->head, why);
  }
  z_stream z = {.next_in = raw->data};
  bool ok = inflateInit2(&z, MAX_WBITS + 16) == Z_OK || /* 16: with gzip's header and checksum */
            fail_memory(why, file->path);
  ok = ok && read_packed(file, &z, whole, why);
  inflateEnd(&z);
  file_free(raw);
  *contents = whole->data;
  return ok;
}

/* Reads the images and the labels of a set; gives the images' size. */
static bool load_set(dataset *d, sample_set *set, const char *folder, const char *kind,
                     size_t size[2], fail *why) {
  char name[64];
  idx_file images = {.magic = IDX_IMAGES, .count = 3}, labels = {.magic = IDX_LABELS, .count = 1};
  snprintf(name, sizeof(name), "%s-images-idx3-ubyte", kind);
  if (!read_idx(d, &images, folder, name, &set->inputs[0], why))
    return false;
  snprintf(name, sizeof(name), "%s-labels-idx1-ubyte", kind);
  if (!read_idx(d, &labels, folder, name, &set->labels[0], why))
    return false;
  set->count = set->per_file = images.dims[0];
  if (labels.dims[0] != set->count)
    return fail_set(why, "%s: %zu labels, but there are %zu images", labels.path, labels.dims[0],
                    set->count);
  for (size_t i = 0; i < set->count; i++)
    if (set->labels[0][i] >= d->classes)
      d->classes = (size_t)set->labels[0][i] + 1;
  memcpy(size, images.dims + 1, 2 * sizeof(size[0]));
  set->input_step = size[0] * size[1];
  set->label_step = 1;
  return true;
}

bool idx_load(dataset *d, const char *folder, fail *why) {
  size_t train[2], test[2];
  if (!load_set(d, &d->train, folder, "train", train, why) ||
      !load_set(d, &d->test, folder, "t10k", test, why))
    return false;
  if (memcmp(train, test, sizeof(train)) != 0)
    return fail_set(why, "%s: training images are %zu x %zu, test images %zu x %zu", folder,
                    train[0], train[1], test[0], test[1]);
  d->inputs = train[0] * train[1];
  d->positions = d->channels = 1;
  d->side = train[0] == train[1] ? train[0] : 0;
  return true;
}
