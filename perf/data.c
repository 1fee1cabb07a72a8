/*
 * data.c: inputs whose reduction is exact in any order, so that the tolerance is zero. Sums fit
 * into 8 bits, those of float8 into 2. In a product at most one rank contributes a factor of 2.
 */
#include <math.h>
#include <string.h>

#include "perf.h"

#define ELEMENT_MAX 16                 /* bytes */
#define FAR         ((int64_t)1 << 40) /* the least location that needs 64 bits */

/* Whether an operation supports a type. */
bool perf_takes(int type, int op) {
  if (op >= COLL_MINLOC)
    return type >= COLL_INT32_LOC;
  return type <= COLL_UINT64 || (type <= COLL_FLOAT8_E5M2 && op <= COLL_AVG);
}

/* After how many elements the inputs repeat. */
static size_t period_of(int op, int nranks) {
  return op == COLL_PROD ? (size_t)nranks : 4;
}

/* The number from which an element of a rank's input is made. */
static int value_of(size_t index, int type, int op, int rank, int nranks) {
  if (op == COLL_PROD)
    return index % (size_t)nranks == (size_t)rank ? 2 : 1;
  if (type == COLL_FLOAT8_E4M3 || type == COLL_FLOAT8_E5M2)
    return rank < 8 ? (int)((index + (size_t)rank) % 2) : 0;
  if (rank >= 127)
    return 0;
  return (int)((index * 7 + (size_t)rank * 3) % (nranks <= 42 ? 4 : 2));
}

/* Converts a number of 0 or more to a small float of so many bits, to nearest even. */
static uint16_t encode(double number, int exponent_bits, int mantissa_bits) {
  int bias = (1 << (exponent_bits - 1)) - 1, exponent;
  if (number == 0)
    return 0;
  frexp(number, &exponent);
  exponent = exponent - 1 > 1 - bias ? exponent - 1 : 1 - bias;
  double steps = rint(ldexp(number, mantissa_bits - exponent));
  return (uint16_t)(steps + ldexp(exponent + bias - 1, mantissa_bits));
}

/* Stores a value with a location; padding stays as it is. */
static void store_loc(void *element, int type, double number, int rank) {
  switch (type) {
  case COLL_INT32_LOC:
    *(coll_int32_loc *)element = (coll_int32_loc){(int32_t)number, rank};
    break;
  case COLL_INT64_LOC:
    *(coll_int64_loc *)element = (coll_int64_loc){(int64_t)number, rank};
    break;
  case COLL_FLOAT32_LOC:
    *(coll_float32_loc *)element = (coll_float32_loc){(float)number, rank};
    break;
  case COLL_FLOAT64_LOC:
    *(coll_float64_loc *)element = (coll_float64_loc){number, rank};
    break;
  case COLL_INT32_LOC64:
    ((coll_int32_loc64 *)element)->value = (int32_t)number;
    ((coll_int32_loc64 *)element)->index = FAR + rank;
    break;
  default:
    ((coll_float32_loc64 *)element)->value = (float)number;
    ((coll_float32_loc64 *)element)->index = FAR + rank;
  }
}

/*
 * Stores a number as element `index`; integers are truncated. `rank` is the location in LOC types.
 */
static void store(void *buf, size_t index, int type, double number, int rank) {
  union {
    uint64_t integer;
    uint16_t small;
    float single;
    double number;
    char bytes[ELEMENT_MAX];
  } element;
  size_t bytes = coll_type_bytes((coll_type)type);
  memset(&element, 0, sizeof(element));
  switch (type) {
  case COLL_FLOAT16:
    element.small = encode(number, 5, 10);
    break;
  case COLL_BFLOAT16:
    element.small = encode(number, 8, 7);
    break;
  case COLL_FLOAT8_E4M3:
    element.small = encode(number, 4, 3);
    break;
  case COLL_FLOAT8_E5M2:
    element.small = encode(number, 5, 2);
    break;
  case COLL_FLOAT32:
    element.single = (float)number;
    break;
  case COLL_FLOAT64:
    element.number = number;
    break;
  default:
    if (type >= COLL_INT32_LOC)
      store_loc(&element, type, number, rank);
    else
      element.integer = (uint64_t)number;
  }
  memcpy((char *)buf + index * bytes, &element, bytes);
}

void perf_fill(void *buf, size_t count, int type, int op, int rank, int nranks) {
  size_t bytes = coll_type_bytes((coll_type)type), period = period_of(op, nranks);
  size_t done = count < period ? count : period;
  for (size_t i = 0; i < done; i++)
    store(buf, i, type, value_of(i, type, op, rank, nranks), rank);
  while (done < count) {
    size_t more = done < count - done ? done : count - done;
    memcpy((char *)buf + done * bytes, buf, more * bytes);
    done += more;
  }
}

/* Combines one value with the result so far. */
static int combine(int a, int b, int op) {
  switch (op) {
  case COLL_MIN:
  case COLL_MINLOC:
    return b < a ? b : a;
  case COLL_MAX:
  case COLL_MAXLOC:
    return b > a ? b : a;
  case COLL_BAND:
    return a & b;
  case COLL_BOR:
    return a | b;
  case COLL_BXOR:
    return a ^ b;
  case COLL_LAND:
    return a && b;
  case COLL_LOR:
    return a || b;
  case COLL_LXOR:
    return !a != !b;
  default:
    return a + b;
  }
}

/* Stores the reduction of an element over ranks 0 .. upto-1. */
static void store_reduced(void *want, size_t index, int type, int op, int upto, int nranks) {
  int result = value_of(index, type, op, 0, nranks), from = 0;
  if (op >= COLL_LAND && op <= COLL_LXOR)
    result = result != 0;
  for (int rank = 1; rank < upto; rank++) {
    int before = result;
    result = combine(result, value_of(index, type, op, rank, nranks), op);
    if (result != before)
      from = rank; /* of equal values the lowest rank's counts */
  }
  double number = result;
  if (op == COLL_AVG)
    number = type == COLL_FLOAT64   ? (double)result / nranks
             : type >= COLL_FLOAT16 ? (double)((float)result * (1.0f / (float)nranks))
                                    : (double)(result / nranks);
  store(want, 0, type, number, from);
}

long long perf_wrong(const void *buf, size_t count, size_t first, int type, int op, int upto,
                     int nranks) {
  size_t bytes = coll_type_bytes((coll_type)type), period = period_of(op, nranks);
  char want[4][ELEMENT_MAX];
  long long wrong = 0;
  if (op == COLL_PROD) { /* rank r contributes the factor 2 in every element whose index is r modulo
                            nranks */
    store(want[0], 0, type, 2, 0);
    store(want[1], 0, type, 1, 0);
  }
  for (size_t i = 0; i < count; i++) {
    size_t index = (first + i) % period;
    if (op != COLL_PROD && i < period)
      store_reduced(want[index], index, type, op, upto, nranks);
    size_t at = op != COLL_PROD ? index : index >= (size_t)upto;
    wrong += memcmp((const char *)buf + i * bytes, want[at], bytes) != 0;
  }
  return wrong;
}

long long perf_wrong_copy(const void *buf, size_t count, size_t first, int type, int rank,
                          int nranks) {
  size_t bytes = coll_type_bytes((coll_type)type), period = period_of(COLL_SUM, nranks);
  char want[4][ELEMENT_MAX];
  long long wrong = 0;
  for (size_t i = 0; i < count; i++) {
    size_t index = (first + i) % period;
    if (i < period)
      store(want[index], 0, type, value_of(index, type, COLL_SUM, rank, nranks), rank);
    wrong += memcmp((const char *)buf + i * bytes, want[index], bytes) != 0;
  }
  return wrong;
}
