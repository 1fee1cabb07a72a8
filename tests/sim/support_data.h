/* support_data.h: inputs for collectives and, in the plainest way, their expected results. */
#ifndef TESTS_SIM_SUPPORT_DATA_H
#define TESTS_SIM_SUPPORT_DATA_H

#include "coll/coll.h"

/* Fills `count` elements: a rank's input for the operation identified by `seed`. */
void data_fill(void *buf, size_t count, coll_type type, coll_op op, int rank, uint64_t seed);

/* Fills in the expected reduction of all ranks' inputs. */
void data_reduce(void *buf, size_t count, coll_type type, coll_op op, int nranks, uint64_t seed);

#endif
