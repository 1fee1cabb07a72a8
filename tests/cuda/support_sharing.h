/* support_sharing.h: memory that the program has allocated in some way, and that ranks register. */
#ifndef TESTS_CUDA_SUPPORT_SHARING_H
#define TESTS_CUDA_SUPPORT_SHARING_H

#include "coll/coll.h"
#include "libcoll/gpu/cuda_load.h"

enum { SHARING_COUNT = 3000, SHARING_BYTES = SHARING_COUNT * sizeof(int32_t) };

/* All-reduces so many int32 in place in a stream, where the memory is, and checks the sum: 0. */
int sharing_add_up(coll_comm *comm, int rank, int nranks, const coll_registration *it, char *at);

/* This thread's stream. */
colli_cu_stream sharing_stream(void);

/* The driver's functions, of this process; calls that a failing one makes well before it fails. */
extern colli_cuda sharing_real;
extern int sharing_calls_left;

/* Defines fail_FIELD(), which takes the place of a function of the driver and fails then. */
#define SHARING_FAIL_AT(field, arguments, ...)                                                     \
  static colli_cu_result fail_##field arguments {                                                  \
    return sharing_calls_left-- > 0 ? sharing_real.field(__VA_ARGS__) : COLLI_CUDA_ERROR_UNKNOWN;  \
  }

/* Puts one of them into a table; its name. */
typedef const char *sharing_break(colli_cuda *cuda, int which);

/* Registers memory on ranks of which another one has such a function each time, which makes 0, 1
 * .. most - 1 calls well: no rank has the memory registered, and nothing is left. 0 if so. */
int sharing_refused(coll_comm *comm, int rank, int nranks, char *at, size_t bytes,
                    sharing_break *breaks, int which, int most);

#endif
