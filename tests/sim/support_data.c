/*
 * support_data.c: integers take all values and wrap around; floats are small whole numbers, whose
 * sums and products are exact in every type, so that there is one right answer.
 */
#include "support_data.h"

#include <stdbool.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "libcoll/exec/reduce.h"

/* Random bits for one element of one rank. */
static uint64_t bits_of(size_t index, int rank, uint64_t seed) {
  colli_prng prng = {seed * 1000003 + index * 8191 + (uint64_t)rank};
  return colli_prng_next(&prng);
}

static bool is_float(coll_type type) {
  return type >= COLL_FLOAT16;
}

static bool is_signed(coll_type type) {
  return type == COLL_INT8 || type == COLL_INT16 || type == COLL_INT32 || type == COLL_INT64;
}

/* A small whole number: -3 .. 3, or 1 and seldom 2 for products. */
static double small(uint64_t bits, coll_op op, int rank) {
  if (op == COLL_PROD)
    return (bits >> 32) % 16 == 0 && rank % 2 ? 2 : 1;
  return (double)((bits >> 32) % 7) - 3;
}

/* Writes a float of any width. */
static void put_float(char *at, coll_type type, double number) {
  uint16_t half = 0;
  float single = (float)number;
  if (type == COLL_FLOAT64)
    memcpy(at, &number, 8);
  else if (type == COLL_FLOAT32)
    memcpy(at, &single, 4);
  else {
    half = type == COLL_FLOAT16 ? colli_float_to_half(single) : colli_float_to_bfloat(single);
    memcpy(at, &half, 2);
  }
}

/* The value of an integer of that type whose low bits are `bits`. */
static int64_t widen(uint64_t bits, coll_type type) {
  unsigned shift = 64 - 8 * (unsigned)coll_type_bytes(type);
  return is_signed(type) ? (int64_t)(bits << shift) >> shift : (int64_t)(bits << shift >> shift);
}

/* a op b for integers of that type. */
static uint64_t combine_bits(uint64_t a, uint64_t b, coll_type type, coll_op op) {
  int64_t wa = widen(a, type), wb = widen(b, type);
  bool less = is_signed(type) ? wa < wb : (uint64_t)wa < (uint64_t)wb;
  switch (op) {
  case COLL_PROD:
    return a * b;
  case COLL_MIN:
    return less ? a : b;
  case COLL_MAX:
    return less ? b : a;
  default:
    return a + b;
  }
}

/* a op b for floats. */
static double combine_floats(double a, double b, coll_op op) {
  switch (op) {
  case COLL_PROD:
    return a * b;
  case COLL_MIN:
    return a < b ? a : b;
  case COLL_MAX:
    return a < b ? b : a;
  default:
    return a + b;
  }
}

/* One element of the result, of floats. */
static void reduce_float(char *at, size_t index, coll_type type, coll_op op, int nranks,
                         uint64_t seed) {
  double value = small(bits_of(index, 0, seed), op, 0);
  for (int rank = 1; rank < nranks; rank++)
    value = combine_floats(value, small(bits_of(index, rank, seed), op, rank), op);
  if (op == COLL_AVG && type == COLL_FLOAT64)
    value /= nranks;
  else if (op == COLL_AVG)
    value = (float)value * (1.0f / (float)nranks);
  put_float(at, type, value);
}

/* One element of the result, of integers. */
static void reduce_integer(char *at, size_t index, coll_type type, coll_op op, int nranks,
                           uint64_t seed) {
  uint64_t value = bits_of(index, 0, seed);
  for (int rank = 1; rank < nranks; rank++)
    value = combine_bits(value, bits_of(index, rank, seed), type, op);
  if (op == COLL_AVG && is_signed(type))
    value = (uint64_t)(widen(value, type) / nranks);
  else if (op == COLL_AVG)
    value = (uint64_t)widen(value, type) / (uint64_t)nranks;
  memcpy(at, &value, coll_type_bytes(type));
}

/* Fills one rank's input. */
void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed) {
  size_t bytes = coll_type_bytes(type);
  for (size_t i = 0; i < count; i++) {
    uint64_t bits = bits_of(i, rank, seed);
    if (is_float(type))
      put_float((char *)buf + i * bytes, type, small(bits, op, rank));
    else
      memcpy((char *)buf + i * bytes, &bits, bytes);
  }
}

/* Fills in the expected reduction of all ranks' inputs. */
void data_reduce(void *buf, size_t count, coll_type type, coll_op op, int nranks, uint64_t seed) {
  size_t bytes = coll_type_bytes(type);
  for (size_t i = 0; i < count; i++) {
    if (is_float(type))
      reduce_float((char *)buf + i * bytes, i, type, op, nranks, seed);
    else
      reduce_integer((char *)buf + i * bytes, i, type, op, nranks, seed);
  }
}
