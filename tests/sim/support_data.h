/* support_data.h: inputs for collectives and, by the plainest means, what must come out. */
#ifndef TESTS_SIM_SUPPORT_DATA_H
#define TESTS_SIM_SUPPORT_DATA_H

#include "coll/coll.h"

/* Fills `count` elements: rank's input of the operation that `seed` stands for. */
void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed);

/* Fills what reducing the inputs of all ranks must give. */
void data_reduce(void *buf, size_t count, coll_type type, coll_op op, int nranks, uint64_t seed);

#endif
