/*
 * lanes.h: from the operation on one element to that on the elements of 16 bytes. Elements are the
 * bits of their values, in unsigned numbers. Shifts take vectors apart, because unions would put
 * them into memory.
 */
#ifndef COLLI_GPU_KERNELS_LANES_H
#define COLLI_GPU_KERNELS_LANES_H

#include "libcoll/gpu/kernels/device.h"

/* f on each element of two words of 32 bits, by the bits of an element. */
#define COLL_WORD_8(f, a, b)                                                                       \
  ((uint32_t)f((uint8_t)(a), (uint8_t)(b)) |                                                       \
   (uint32_t)f((uint8_t)((a) >> 8), (uint8_t)((b) >> 8)) << 8 |                                    \
   (uint32_t)f((uint8_t)((a) >> 16), (uint8_t)((b) >> 16)) << 16 |                                 \
   (uint32_t)f((uint8_t)((a) >> 24), (uint8_t)((b) >> 24)) << 24)
#define COLL_WORD_16(f, a, b)                                                                      \
  ((uint32_t)f((uint16_t)(a), (uint16_t)(b)) |                                                     \
   (uint32_t)f((uint16_t)((a) >> 16), (uint16_t)((b) >> 16)) << 16)
#define COLL_WORD_32(f, a, b) f(a, b)

/* Words `low` and `low + 1` of a vector as one number, and such numbers as a vector. */
#define COLL_LONG(v, low) ((v)[low] | (uint64_t)(v)[(low) + 1] << 32)
COLL_DEVICE coll_vec coll_of_longs(uint64_t x, uint64_t y) {
  return (coll_vec){(uint32_t)x, (uint32_t)(x >> 32), (uint32_t)y, (uint32_t)(y >> 32)};
}

/* The words of a vector, each made by WORD. */
#define COLL_WORDS(WORD, f, x, y)                                                                  \
  ((coll_vec){WORD(f, (x)[0], (y)[0]), WORD(f, (x)[1], (y)[1]), WORD(f, (x)[2], (y)[2]),           \
              WORD(f, (x)[3], (y)[3])})
#define COLL_LANES_8(f, x, y)  COLL_WORDS(COLL_WORD_8, f, x, y)
#define COLL_LANES_16(f, x, y) COLL_WORDS(COLL_WORD_16, f, x, y)
#define COLL_LANES_32(f, x, y) COLL_WORDS(COLL_WORD_32, f, x, y)
#define COLL_LANES_64(f, x, y)                                                                     \
  coll_of_longs(f(COLL_LONG(x, 0), COLL_LONG(y, 0)), f(COLL_LONG(x, 2), COLL_LONG(y, 2)))

/* Loads and stores one element, which is the first of the vector; the rest means nothing. */
COLL_DEVICE coll_vec coll_load_elem_8(uint64_t at) {
  return (coll_vec){coll_load_8(at), 0, 0, 0};
}
COLL_DEVICE void coll_store_elem_8(uint64_t at, coll_vec v) {
  coll_store_8(at, (uint8_t)v[0]);
}
COLL_DEVICE coll_vec coll_load_elem_16(uint64_t at) {
  return (coll_vec){coll_load_16(at), 0, 0, 0};
}
COLL_DEVICE void coll_store_elem_16(uint64_t at, coll_vec v) {
  coll_store_16(at, (uint16_t)v[0]);
}
COLL_DEVICE coll_vec coll_load_elem_32(uint64_t at) {
  return (coll_vec){coll_load_32(at), 0, 0, 0};
}
COLL_DEVICE void coll_store_elem_32(uint64_t at, coll_vec v) {
  coll_store_32(at, v[0]);
}
COLL_DEVICE coll_vec coll_load_elem_64(uint64_t at) {
  return (coll_vec){coll_load_32(at), coll_load_32(at + 4), 0, 0};
}
COLL_DEVICE void coll_store_elem_64(uint64_t at, coll_vec v) {
  coll_store_32(at, v[0]);
  coll_store_32(at + 4, v[1]);
}
COLL_DEVICE coll_vec coll_load_elem_128(uint64_t at) {
  return (coll_vec){coll_load_32(at), coll_load_32(at + 4), coll_load_32(at + 8),
                    coll_load_32(at + 12)};
}
COLL_DEVICE void coll_store_elem_128(uint64_t at, coll_vec v) {
  coll_store_elem_64(at, v);
  coll_store_32(at + 8, v[2]);
  coll_store_32(at + 12, v[3]);
}

#endif
