/* number.c: the elements of tests' inputs, and the reference reductions of them. */
#include "number.h"

#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "libcoll/exec/stage.h"

uint64_t number_hash(uint64_t a, uint64_t b, uint64_t c, uint64_t d) {
  uint64_t h = a * 0x9e3779b97f4a7c15ull ^ b * 0xc2b2ae3d27d4eb4full;
  h ^= c * 0x165667b19e3779f9ull ^ d * 0x27d4eb2f165667c5ull;
  h = (h ^ h >> 31) * 0xbf58476d1ce4e5b9ull;
  h = (h ^ h >> 27) * 0x94d049bb133111ebull;
  return h ^ h >> 31;
}

static int is_float(coll_type type) {
  return type >= COLL_FLOAT16 && type <= COLL_FLOAT8_E5M2;
}

static int is_unsigned(coll_type type) {
  return type <= COLL_UINT64 && type % 2 == 1;
}

/* Stores a number as a float type. */
static void store_float(void *element, coll_type type, double number) {
  float single = (float)number;
  if (type == COLL_FLOAT64)
    memcpy(element, &number, 8);
  else if (type == COLL_FLOAT32)
    memcpy(element, &single, 4);
  else
    colli_stage_narrow(colli_kernels_for(COLLI_ISA_PORTABLE), element, &single, 1, type);
}

static int is_float8(coll_type type) {
  return type == COLL_FLOAT8_E4M3 || type == COLL_FLOAT8_E5M2;
}

/* A rank's number where results are rounded. */
static int small(coll_type type, int op, int rank, uint64_t index, uint64_t seed) {
  uint64_t h = number_hash(seed, index, (uint64_t)rank, 7), turn = index + (uint64_t)rank + seed;
  int most = type == COLL_FLOAT32 || type == COLL_FLOAT64 ? 100 : 3;
  if (op == COLL_PROD)
    return (turn % (is_float8(type) ? 4 : 7) == 0 ? 2 : 1) * (h % 2 ? 1 : -1);
  if (is_float8(type) && op != COLL_MIN && op != COLL_MAX)
    return turn % 3 == 0 ? (int)(h % 3) - 1 : 0;
  return (int)(h % (uint64_t)(2 * most + 1)) - most;
}

/* A rank's integer, as a 64-bit pattern. */
static uint64_t integer(int op, int rank, uint64_t index, uint64_t seed) {
  uint64_t h = number_hash(seed, index, (uint64_t)rank, 9);
  return (op == COLL_LAND || op == COLL_LOR || op == COLL_LXOR) && h % 3 == 0 ? 0 : h;
}

/* An index of 64 bits, in the order of the given ones; the low half alone has the reverse order. */
static int64_t far_index(int index) {
  return ((int64_t)index - 4) * ((1ll << 33) - 1);
}

/* Writes the number and the index of a LOC element, at any address; padding is 0, as in results. */
static void store_loc(void *element, coll_type type, int value, int index) {
  const int64_t far = far_index(index);
  const float real = (float)value;
  const coll_int32_loc i32 = {value, index};
  const coll_int64_loc i64 = {value, far};
  const coll_float32_loc f32 = {real, index};
  const coll_float64_loc f64 = {value, far};
  memset(element, 0, coll_type_bytes(type));
  if (type == COLL_INT32_LOC)
    memcpy(element, &i32, sizeof(i32));
  else if (type == COLL_INT64_LOC)
    memcpy(element, &i64, sizeof(i64));
  else if (type == COLL_FLOAT32_LOC)
    memcpy(element, &f32, sizeof(f32));
  else if (type == COLL_FLOAT64_LOC)
    memcpy(element, &f64, sizeof(f64));
  else
    memcpy((char *)element + 8, &far, 8);
  if (type == COLL_INT32_LOC64)
    memcpy(element, &value, 4);
  else if (type == COLL_FLOAT32_LOC64)
    memcpy(element, &(float){(float)value}, 4);
}

static int loc_value(int rank, uint64_t index, uint64_t seed) {
  return (int)(number_hash(seed, index, (uint64_t)rank, 11) % 5) - 2;
}

/* Of equal values the smaller index must win, which is not always the lower rank's. */
static int loc_index(int rank, uint64_t index) {
  return (int)((uint64_t)rank * 7 + index) % 16;
}

void number_input(void *element, coll_type type, int op, int rank, uint64_t index, uint64_t seed) {
  if (op < 0 || type > COLL_TYPE_USER_BASE) {
    size_t bytes = coll_type_bytes(type);
    for (size_t done = 0; done < bytes; done += 8) {
      uint64_t h = number_hash(seed, index, (uint64_t)rank, done);
      memcpy((char *)element + done, &h, bytes - done < 8 ? bytes - done : 8);
    }
  } else if (op == COLL_MINLOC || op == COLL_MAXLOC) {
    store_loc(element, type, loc_value(rank, index, seed), loc_index(rank, index));
    if (type == COLL_INT32_LOC64 || type == COLL_FLOAT32_LOC64)
      memset((char *)element + 4, 0x80 + rank, 4); /* padding */
  } else if (is_float(type)) {
    store_float(element, type, small(type, op, rank, index, seed));
  } else {
    uint64_t value = integer(op, rank, index, seed);
    memcpy(element, &value, coll_type_bytes(type)); /* little-endian: the low bytes */
  }
}

/* left after right of two maps; the third word counts the maps. */
static void compose(const void *left, const void *right, void *result) {
  uint32_t a[3], b[3], r[3];
  memcpy(a, left, sizeof(a));
  memcpy(b, right, sizeof(b));
  r[0] = a[0] * b[0];
  r[1] = a[0] * b[1] + a[1];
  r[2] = a[2] + b[2];
  memcpy(result, r, sizeof(r));
}

void number_affine(const void *left, const void *right, void *result, size_t bytes) {
  size_t done = 0;
  for (; bytes - done >= 12; done += 12)
    compose((const char *)left + done, (const char *)right + done, (char *)result + done);
  memmove((char *)result + done, (const char *)left + done, bytes - done);
}

void number_add_bytes(const void *left, const void *right, void *result, size_t bytes) {
  const unsigned char *a = left, *b = right;
  unsigned char *r = result;
  for (size_t i = 0; i < bytes; i++)
    r[i] = (unsigned char)(a[i] + b[i]);
}

/* The float reduction. */
static void reduce_float(void *result, coll_type type, int op, int first, int last, uint64_t index,
                         uint64_t seed) {
  int sum = 0, least = 0, most = 0, n = last - first + 1;
  double product = 1;
  for (int rank = first; rank <= last; rank++) {
    int v = small(type, op, rank, index, seed);
    sum += v;
    product *= v;
    least = rank == first || v < least ? v : least;
    most = rank == first || v > most ? v : most;
  }
  double number = op == COLL_PROD ? product : op == COLL_MIN ? least : op == COLL_MAX ? most : sum;
  if (op == COLL_AVG)
    number = type == COLL_FLOAT64 ? sum / (double)n : (float)sum * (1.0f / (float)n);
  store_float(result, type, number);
}

/* An integer pattern as a number of its type, sign or not: whether a < b. */
static int less(uint64_t a, uint64_t b, coll_type type) {
  int shift = 64 - 8 * (int)coll_type_bytes(type);
  a <<= shift;
  b <<= shift;
  return is_unsigned(type) ? a < b : (int64_t)a < (int64_t)b;
}

/* An integer pattern, cut to its type and widened again, divided by n. */
static uint64_t divided(uint64_t sum, coll_type type, int n) {
  int shift = 64 - 8 * (int)coll_type_bytes(type);
  if (is_unsigned(type))
    return (sum << shift >> shift) / (uint64_t)n;
  return (uint64_t)(((int64_t)(sum << shift) >> shift) / n);
}

/* One integer combined with what is there already. */
static uint64_t combine(uint64_t a, uint64_t b, coll_type type, int op) {
  uint64_t mask = ~0ull >> (64 - 8 * coll_type_bytes(type));
  switch (op) {
  case COLL_PROD:
    return a * b;
  case COLL_MIN:
    return less(b, a, type) ? b : a;
  case COLL_MAX:
    return less(a, b, type) ? b : a;
  case COLL_BAND:
    return a & b;
  case COLL_BOR:
    return a | b;
  case COLL_BXOR:
    return a ^ b;
  case COLL_LAND:
    return (a & mask) != 0 && (b & mask) != 0;
  case COLL_LOR:
    return (a & mask) != 0 || (b & mask) != 0;
  case COLL_LXOR:
    return ((a & mask) != 0) != ((b & mask) != 0);
  default:
    return a + b;
  }
}

/* The best value and its smallest index. */
static void reduce_loc(void *result, coll_type type, int op, int first, int last, uint64_t index,
                       uint64_t seed) {
  int best = first;
  for (int rank = first + 1; rank <= last; rank++) {
    int v = loc_value(rank, index, seed), b = loc_value(best, index, seed);
    int better = op == COLL_MINLOC ? v < b : v > b;
    if (better || (v == b && loc_index(rank, index) < loc_index(best, index)))
      best = rank;
  }
  store_loc(result, type, loc_value(best, index, seed), loc_index(best, index));
}

void number_reduce(void *result, coll_type type, int op, int first, int last, uint64_t index,
                   uint64_t seed) {
  if (type > COLL_TYPE_USER_BASE) {
    size_t bytes = coll_type_bytes(type);
    char *next = malloc(bytes);
    number_input(result, type, op, first, index, seed);
    for (int rank = first + 1; rank <= last; rank++) {
      number_input(next, type, op, rank, index, seed);
      if (op == (int)CASE_OP_BYTES)
        number_add_bytes(result, next, result, bytes);
      else
        number_affine(result, next, result, bytes);
    }
    free(next);
  } else if (op == COLL_MINLOC || op == COLL_MAXLOC) {
    reduce_loc(result, type, op, first, last, index, seed);
  } else if (is_float(type)) {
    reduce_float(result, type, op, first, last, index, seed);
  } else {
    uint64_t value = integer(op, first, index, seed);
    if (op >= COLL_LAND && op <= COLL_LXOR)
      value = combine(value, 1, type, COLL_LAND);
    for (int rank = first + 1; rank <= last; rank++)
      value = combine(value, integer(op, rank, index, seed), type, op);
    if (op == COLL_AVG)
      value = divided(value, type, last - first + 1);
    memcpy(result, &value, coll_type_bytes(type));
  }
}
