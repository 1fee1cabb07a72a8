/*
 * data.h: whole buffers of the numbers of number.h: inputs of collectives, what must come out, and
 * bytes of messages. All tests take their data from here, so that one place says what they can see.
 */
#ifndef TESTS_COMMON_DATA_H
#define TESTS_COMMON_DATA_H

#include <coll/coll.h>
#include <stdbool.h>

/* Buffers repeat after that many elements, to be quick: a prime, so that nothing that the library
 * cuts by powers of two can be put in a wrong place unseen. */
#define DATA_PERIOD ((size_t)1021)

/* Fills rank `rank`'s input of an operation. */
void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed);

/* Fills what reducing the inputs of ranks 0 .. nranks-1 must give. */
void data_reduce(void *buf, size_t count, coll_type type, coll_op op, int nranks, uint64_t seed);

/* The number of elements of `buf` that differ from what data_reduce() fills. */
size_t data_wrong(const void *buf, size_t count, coll_type type, coll_op op, int nranks,
                  uint64_t seed);

/* The number of elements of `buf` that differ from what data_fill() fills. */
size_t data_wrong_copy(const void *buf, size_t count, coll_type type, coll_op op, int rank,
                       uint64_t seed);

/* Repeats the first DATA_PERIOD elements until the buffer is full. */
void data_repeat(void *buf, size_t count, size_t bytes);

/* The number of elements of `buf` that differ from a period that repeats. */
size_t data_differing(const void *buf, size_t count, size_t bytes, const void *period);

/* Fills a message with bytes that belong to `number`, and tells whether a message has them. */
void data_fill_bytes(void *buf, size_t bytes, uint64_t number);
bool data_are_bytes(const void *buf, size_t bytes, uint64_t number);

#endif
