/* data.c: whole buffers of the numbers of number.h. */
#include "data.h"

#include <stdlib.h>
#include <string.h>

#include "number.h"

void data_repeat(void *buf, size_t count, size_t bytes) {
  for (size_t done = DATA_PERIOD; done < count;) {
    size_t more = done < count - done ? done : count - done;
    memcpy((char *)buf + done * bytes, buf, more * bytes);
    done += more;
  }
}

size_t data_differing(const void *buf, size_t count, size_t bytes, const void *period) {
  size_t differing = 0;
  for (size_t done = 0; done < count; done += DATA_PERIOD) {
    const char *at = (const char *)buf + done * bytes;
    size_t part = count - done < DATA_PERIOD ? count - done : DATA_PERIOD;
    if (memcmp(at, period, part * bytes) == 0)
      continue;
    for (size_t i = 0; i < part; i++)
      differing += memcmp(at + i * bytes, (const char *)period + i * bytes, bytes) != 0;
  }
  return differing;
}

void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed) {
  size_t bytes = coll_type_bytes(type);
  for (size_t i = 0; i < count && i < DATA_PERIOD; i++)
    number_input((char *)buf + i * bytes, type, (int)op, rank, i, seed);
  data_repeat(buf, count, bytes);
}

void data_reduce(void *buf, size_t count, coll_type type, coll_op op, int nranks, uint64_t seed) {
  size_t bytes = coll_type_bytes(type);
  for (size_t i = 0; i < count && i < DATA_PERIOD; i++)
    number_reduce((char *)buf + i * bytes, type, (int)op, 0, nranks - 1, i, seed);
  data_repeat(buf, count, bytes);
}

/* Memory for the elements that a buffer repeats. */
static void *period_of(size_t bytes) {
  void *period = malloc(DATA_PERIOD * bytes);
  if (!period)
    abort();
  return period;
}

size_t data_wrong(const void *buf, size_t count, coll_type type, coll_op op, int nranks,
                  uint64_t seed) {
  size_t bytes = coll_type_bytes(type);
  void *period = period_of(bytes);
  data_reduce(period, count < DATA_PERIOD ? count : DATA_PERIOD, type, op, nranks, seed);
  size_t wrong = data_differing(buf, count, bytes, period);
  free(period);
  return wrong;
}

size_t data_wrong_copy(const void *buf, size_t count, coll_type type, coll_op op, int rank,
                       uint64_t seed) {
  size_t bytes = coll_type_bytes(type);
  void *period = period_of(bytes);
  data_fill(period, count < DATA_PERIOD ? count : DATA_PERIOD, type, op, rank, seed);
  size_t wrong = data_differing(buf, count, bytes, period);
  free(period);
  return wrong;
}

void data_fill_bytes(void *buf, size_t bytes, uint64_t number) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = number_hash(number, i, 0, 0);
    memcpy((char *)buf + i, &word, bytes - i < 8 ? bytes - i : 8);
  }
}

bool data_are_bytes(const void *buf, size_t bytes, uint64_t number) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t word = number_hash(number, i, 0, 0);
    if (memcmp((const char *)buf + i, &word, bytes - i < 8 ? bytes - i : 8) != 0)
      return false;
  }
  return true;
}
