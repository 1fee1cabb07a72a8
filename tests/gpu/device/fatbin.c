/* fatbin.c: reads fat binaries: a header, and images with a header each. */
#include <stdlib.h>
#include <string.h>

#include "cubin.h"

enum {
  MAGIC = 0xba55ed50,
  KIND_SASS = 2,
  FLAG_LZ4 = 0x2000, /* compressed: one block in the format of LZ4 */
  FLAG_ZSTD = 0x8000,
  MOST_BYTES = 64 << 20 /* of an image */
};

typedef struct file_header {
  uint32_t magic;
  uint16_t version, header_bytes;
  uint64_t bytes; /* of all images */
} file_header;

typedef struct image_header {
  uint16_t kind, version;
  uint32_t header_bytes;
  uint64_t payload_bytes; /* with padding */
  uint32_t packed_bytes;  /* 0: it is not compressed */
  uint32_t unknown;
  uint16_t minor, major;
  uint32_t arch;
  uint32_t name_offset, name_bytes;
  uint64_t flags;
  uint64_t unknown_too;
  uint64_t bytes; /* once it is unpacked; 0: it is not compressed */
} image_header;

_Static_assert(sizeof(file_header) == 16 && sizeof(image_header) == 64, "as fatbinary has them");

bool fatbin_is(const void *image) {
  uint32_t magic;
  memcpy(&magic, image, sizeof(magic));
  return magic == MAGIC;
}

bool fatbin_get(const void *fatbin, int number, fatbin_image *out) {
  file_header file;
  image_header image;
  memcpy(&file, fatbin, sizeof(file));
  const uint8_t *at = (const uint8_t *)fatbin + file.header_bytes, *end = at + file.bytes;
  for (int i = 0;; i++) {
    if ((size_t)(end - at) < sizeof(image))
      return false;
    memcpy(&image, at, sizeof(image));
    const size_t room = (size_t)(end - at);
    if (image.header_bytes < sizeof(image) || image.header_bytes > room ||
        image.payload_bytes > room - image.header_bytes || image.packed_bytes > image.payload_bytes)
      return false;
    if (i == number)
      break;
    at += image.header_bytes + image.payload_bytes;
  }
  const bool packed = image.flags & (FLAG_LZ4 | FLAG_ZSTD);
  *out = (fatbin_image){
      .sass = image.kind == KIND_SASS,
      .arch = (int)image.arch,
      .flags = image.flags,
      .payload = at + image.header_bytes,
      .payload_bytes = packed ? image.packed_bytes : image.payload_bytes,
      .bytes = packed ? image.bytes : image.payload_bytes,
  };
  return true;
}

/* A block that is being unpacked. */
typedef struct block {
  const uint8_t *from, *from_end;
  uint8_t *begin, *to, *to_end;
} block;

/* Reads a length, of which four bits are in `first`: while they or a byte are all ones, the next
 * byte is added. False if the block ends. */
static bool read_length(block *b, unsigned first, size_t *length) {
  *length = first;
  for (unsigned byte = first == 15 ? 255 : 0; byte == 255; *length += byte) {
    if (b->from == b->from_end)
      return false;
    byte = *b->from++;
  }
  return true;
}

/* Copies bytes that are in the block itself. */
static bool copy_literals(block *b, size_t length) {
  if (length > (size_t)(b->from_end - b->from) || length > (size_t)(b->to_end - b->to))
    return false;
  memcpy(b->to, b->from, length);
  b->from += length;
  b->to += length;
  return true;
}

/* Copies bytes that were there before; the last ones may be those that this copies first. */
static bool copy_match(block *b, size_t distance, size_t length) {
  if (distance == 0 || distance > (size_t)(b->to - b->begin) ||
      length > (size_t)(b->to_end - b->to))
    return false;
  for (; length > 0; length--, b->to++)
    *b->to = b->to[-(ptrdiff_t)distance];
  return true;
}

/* Unpacks a block: literals and matches in turn. The last literals have no match behind them. */
static bool unpack(block *b) {
  size_t length;
  while (b->from < b->from_end) {
    const unsigned token = *b->from++;
    if (!read_length(b, token >> 4, &length) || !copy_literals(b, length))
      return false;
    if (b->from == b->from_end)
      break;
    if (b->from_end - b->from < 2)
      return false;
    const size_t distance = (size_t)b->from[0] | (size_t)b->from[1] << 8;
    b->from += 2;
    if (!read_length(b, token & 15, &length) || !copy_match(b, distance, length + 4))
      return false;
  }
  return b->to == b->to_end;
}

uint8_t *fatbin_unpack(const fatbin_image *image) {
  if (image->flags & FLAG_ZSTD || image->bytes == 0 || image->bytes > MOST_BYTES)
    return NULL;
  uint8_t *out = malloc(image->bytes);
  block b = {image->payload, image->payload + image->payload_bytes, out, out, out + image->bytes};
  if (out && !(image->flags & FLAG_LZ4)) {
    memcpy(out, image->payload, image->bytes);
  } else if (out && !unpack(&b)) {
    free(out);
    out = NULL;
  }
  return out;
}
