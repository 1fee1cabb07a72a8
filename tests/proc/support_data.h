/* support_data.h: inputs whose reduction is exact in any order, and what must come out. */
#ifndef TESTS_SUPPORT_DATA_H
#define TESTS_SUPPORT_DATA_H

#include <coll/coll.h>

/* Writes element `index` of rank `rank`'s input. */
void data_input(void *buf, size_t index, coll_type type, coll_op op, int rank, uint64_t seed);

/* Fills a whole input vector. */
void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed);

/* The number of elements of `buf` that differ from the reduction over `nranks` ranks. */
size_t data_wrong(const void *buf, size_t count, coll_type type, coll_op op, int nranks,
                  uint64_t seed);

/* The number of elements of `buf` that differ from rank `rank`'s input. */
size_t data_wrong_copy(const void *buf, size_t count, coll_type type, coll_op op, int rank,
                       uint64_t seed);

#endif
