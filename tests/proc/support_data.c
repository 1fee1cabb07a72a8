/*
 * support_data.c: inputs whose reduction is exact in any order, and what must come out.
 * Sums stay below 256 in magnitude, which every type holds exactly; products are small powers of
 * two.
 */
#include "support_data.h"

#include <string.h>

#include "libcoll/exec/reduce.h"

/* Inputs repeat after that many elements: a prime, so that nothing that the library cuts by powers
 * of two can be put in a wrong place unseen. */
#define PERIOD ((size_t)1021)

/* The number behind element `index` of a rank's input. */
static int value(size_t index, coll_op op, int rank, uint64_t seed) {
  uint64_t mix = (index + seed) * 2654435761u + (uint64_t)rank * 40503u;
  if (op == COLL_PROD)
    return (index + (size_t)rank + seed) % 7 == 0 ? 2 : 1;
  return (int)((mix >> 7) % 7) - 3;
}

/* Stores a small number as one element. */
static void store(void *buf, size_t index, coll_type type, double number) {
  int64_t integer = (int64_t)number;
  char *at = (char *)buf + index * coll_type_bytes(type);
  uint16_t half = type == COLL_FLOAT16 ? colli_float_to_half((float)number)
                                       : colli_float_to_bfloat((float)number);
  float single = (float)number;
  switch (type) {
  case COLL_FLOAT16:
  case COLL_BFLOAT16:
    memcpy(at, &half, sizeof(half));
    break;
  case COLL_FLOAT32:
    memcpy(at, &single, sizeof(single));
    break;
  case COLL_FLOAT64:
    memcpy(at, &number, sizeof(number));
    break;
  default: /* little-endian two's complement: the low bytes are the element */
    memcpy(at, &integer, coll_type_bytes(type));
  }
}

static int is_unsigned(coll_type type) {
  return type == COLL_UINT8 || type == COLL_UINT16 || type == COLL_UINT32 || type == COLL_UINT64;
}

static int is_float(coll_type type) {
  return type >= COLL_FLOAT16;
}

/* A number as an unsigned type of that many bytes reads it. */
static double as_unsigned(double number, size_t bytes) {
  if (number >= 0)
    return number;
  return bytes == 8 ? 18446744073709551616.0 + number : (double)(1ull << 8 * bytes) + number;
}

/* The average of a sum, as coll.h defines it. */
static void store_average(void *buf, size_t index, coll_type type, long sum, int nranks) {
  char *at = (char *)buf + index * coll_type_bytes(type);
  if (type == COLL_FLOAT64) {
    store(buf, index, type, (double)sum / nranks);
  } else if (is_float(type)) {
    store(buf, index, type, (float)sum * (1.0f / (float)nranks));
  } else if (is_unsigned(type)) {
    size_t bytes = coll_type_bytes(type);
    uint64_t mask = bytes == 8 ? ~0ull : (1ull << 8 * bytes) - 1;
    uint64_t average = ((uint64_t)sum & mask) / (uint64_t)nranks;
    memcpy(at, &average, bytes);
  } else {
    int64_t average = sum / nranks;
    memcpy(at, &average, coll_type_bytes(type));
  }
}

/* Stores what the reduction over all ranks must give. */
static void expect(void *buf, size_t index, coll_type type, coll_op op, int nranks, uint64_t seed,
                   size_t element) {
  long sum = 0, product = 1;
  int best = value(element, op, 0, seed);
  for (int rank = 0; rank < nranks; rank++) {
    int v = value(element, op, rank, seed);
    sum += v;
    product *= v;
    double a = is_unsigned(type) ? as_unsigned(v, 8) : v;
    double b = is_unsigned(type) ? as_unsigned(best, 8) : best;
    /* as_unsigned rounds near 2^64: negative numbers keep their order only as integers */
    int less = (v < 0) == (best < 0) ? v < best : a < b;
    if (op == COLL_MIN ? less : (op == COLL_MAX && !less))
      best = v;
  }
  if (op == COLL_AVG)
    store_average(buf, index, type, sum, nranks);
  else
    store(buf, index, type, (double)(op == COLL_SUM ? sum : op == COLL_PROD ? product : best));
}

void data_input(void *buf, size_t index, coll_type type, coll_op op, int rank, uint64_t seed) {
  store(buf, index, type, value(index, op, rank, seed));
}

/* Repeats the first PERIOD elements of a buffer until it is full. */
static void repeat(char *buf, size_t count, size_t bytes) {
  for (size_t done = PERIOD; done < count; done += PERIOD)
    memcpy(buf + done * bytes, buf, (count - done < PERIOD ? count - done : PERIOD) * bytes);
}

void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed) {
  for (size_t i = 0; i < count && i < PERIOD; i++)
    data_input(buf, i, type, op, rank, seed);
  repeat(buf, count, coll_type_bytes(type));
}

/* The number of elements of `buf` that differ from the periodic pattern. */
static size_t count_wrong(const char *buf, size_t count, size_t bytes, const char *pattern) {
  size_t wrong = 0;
  for (size_t done = 0; done < count; done += PERIOD) {
    size_t part = count - done < PERIOD ? count - done : PERIOD;
    if (memcmp(buf + done * bytes, pattern, part * bytes) == 0)
      continue;
    for (size_t i = 0; i < part; i++)
      wrong += memcmp(buf + (done + i) * bytes, pattern + i * bytes, bytes) != 0;
  }
  return wrong;
}

size_t data_wrong(const void *buf, size_t count, coll_type type, coll_op op, int nranks,
                  uint64_t seed) {
  char pattern[PERIOD * 8];
  for (size_t i = 0; i < PERIOD && i < count; i++)
    expect(pattern, i, type, op, nranks, seed, i);
  return count_wrong(buf, count, coll_type_bytes(type), pattern);
}

size_t data_wrong_copy(const void *buf, size_t count, coll_type type, coll_op op, int rank,
                       uint64_t seed) {
  char pattern[PERIOD * 8];
  for (size_t i = 0; i < PERIOD && i < count; i++)
    data_input(pattern, i, type, op, rank, seed);
  return count_wrong(buf, count, coll_type_bytes(type), pattern);
}
