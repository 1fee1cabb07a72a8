/*
 * data.c: inputs whose reduction is exact in any order, so that the tolerance is zero. Sums are
 * kept within 8 bits; of all ranks at most one gives a factor 2.
 */
#include <string.h>

#include "perf.h"

/* The number behind an element of a rank's input. */
static int value_of(size_t index, int op, int rank, int nranks) {
  if (op == COLL_PROD)
    return index % (size_t)nranks == (size_t)rank ? 2 : 1;
  if (rank >= 127)
    return 0;
  return (int)((index * 7 + (size_t)rank * 3) % (nranks <= 42 ? 4 : 2));
}

/* float32 to IEEE binary16, to nearest even; for finite numbers in its normal range and 0. */
static uint16_t to_half(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof(bits));
  uint32_t sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest == 0)
    return (uint16_t)sign;
  rest -= 112u << 23;
  rest += 0xfff + (rest >> 13 & 1);
  return (uint16_t)(sign | rest >> 13);
}

/* float32 to bfloat16, to nearest even; not for NaN. */
static uint16_t to_bfloat(float number) {
  uint32_t bits;
  memcpy(&bits, &number, sizeof(bits));
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/* Stores a number as element `index`; integers are cut toward zero. */
static void store(void *buf, size_t index, int type, double number) {
  float single = (float)number;
  uint16_t half = type == COLL_FLOAT16 ? to_half(single) : to_bfloat(single);
  uint64_t integer = (uint64_t)number;
  size_t bytes = coll_type_bytes((coll_type)type);
  const void *from = type == COLL_FLOAT64   ? (const void *)&number
                     : type == COLL_FLOAT32 ? (const void *)&single
                     : type >= COLL_FLOAT16 ? (const void *)&half
                                            : (const void *)&integer;
  memcpy((char *)buf + index * bytes, from, bytes);
}

void perf_fill(void *buf, size_t count, int type, int op, int rank, int nranks) {
  for (size_t i = 0; i < count; i++)
    store(buf, i, type, value_of(i, op, rank, nranks));
}

/* What the reduction over ranks 0 .. upto-1 gives for an element. */
static double reduced(size_t index, int type, int op, int upto, int nranks) {
  int best = value_of(index, op, 0, nranks), sum = 0;
  for (int rank = 0; rank < upto; rank++) {
    int v = value_of(index, op, rank, nranks);
    sum += v;
    if (op == COLL_MIN ? v < best : op == COLL_MAX && v > best)
      best = v;
  }
  if (op == COLL_SUM)
    return sum;
  if (op != COLL_AVG)
    return best;
  return type == COLL_FLOAT64   ? (double)sum / nranks
         : type >= COLL_FLOAT16 ? (double)((float)sum * (1.0f / (float)nranks))
                                : (double)(sum / nranks);
}

long long perf_wrong(const void *buf, size_t count, size_t first, int type, int op, int upto,
                     int nranks) {
  size_t bytes = coll_type_bytes((coll_type)type);
  /* Results repeat: those of products after nranks elements, all others after 4. */
  size_t period = op == COLL_PROD ? (size_t)nranks : 4;
  char want[4][8];
  long long wrong = 0;
  if (op == COLL_PROD) { /* rank r's factor 2 is in every element r of nranks */
    store(want[0], 0, type, 2);
    store(want[1], 0, type, 1);
  }
  for (size_t i = 0; i < count; i++) {
    size_t index = (first + i) % period;
    if (op != COLL_PROD && i < period)
      store(want[index], 0, type, reduced(index, type, op, upto, nranks));
    size_t at = op != COLL_PROD ? index : index >= (size_t)upto;
    wrong += memcmp((const char *)buf + i * bytes, want[at], bytes) != 0;
  }
  return wrong;
}

long long perf_wrong_copy(const void *buf, size_t count, size_t first, int type, int rank,
                          int nranks) {
  size_t bytes = coll_type_bytes((coll_type)type);
  char want[4][8];
  long long wrong = 0;
  for (size_t i = 0; i < count; i++) {
    size_t index = (first + i) % 4;
    if (i < 4)
      store(want[index], 0, type, value_of(index, COLL_SUM, rank, nranks));
    wrong += memcmp((const char *)buf + i * bytes, want[index], bytes) != 0;
  }
  return wrong;
}
