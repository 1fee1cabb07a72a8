/*
 * case.h: one call of any collective, in any form, with any type and operation, against a
 * plain reference.
 */
#ifndef TESTS_COMMON_CASE_H
#define TESTS_COMMON_CASE_H

#include <coll/coll.h>
#include <stdbool.h>

#define CASE_MAX_RANKS 64

typedef enum case_coll {
  CASE_ALLREDUCE,
  CASE_REDUCE,
  CASE_REDUCE_SCATTER,
  CASE_REDUCE_SCATTERV,
  CASE_SCAN,
  CASE_EXSCAN,
  CASE_BROADCAST, /* from here on nothing is reduced */
  CASE_ALLGATHER,
  CASE_ALLGATHERV,
  CASE_GATHER,
  CASE_GATHERV,
  CASE_SCATTER,
  CASE_SCATTERV,
  CASE_ALLTOALL,
  CASE_ALLTOALLV,
  CASE_BARRIER,
  CASE_COLLS
} case_coll;

typedef enum case_form {
  CASE_BLOCKING,
  CASE_NONBLOCKING,
  CASE_PERSISTENT,
  CASE_GROUPED,
  CASE_FORMS,
  CASE_STREAMED = CASE_FORMS, /* on a stream of the case's device, as is the next */
  CASE_STREAMED_GROUP
} case_form;

/* Memory of another kind than the host's, for a case's buffers. */
typedef struct case_device {
  void *(*take)(size_t bytes);
  void (*give)(void *memory);
  void (*write)(void *memory, const void *from, size_t bytes);
  void (*read)(void *to, const void *memory, size_t bytes);
  void (*await)(void *stream); /* until it has done everything */
} case_device;

/* in_place: 0 no, 1 as NCCL has it, 2 as MPI has it (another place in reduce-scatter only). */
typedef struct test_case {
  case_coll coll;
  case_form form;
  coll_type type;
  coll_op op; /* CASE_OP_AFFINE: an operation of the test's own that does not commute */
  int root;
  int in_place;
  size_t count; /* as in the call; in v-forms about that many */
  uint64_t seed;
  void *memory[2];           /* this rank's, for input and output; NULL: the case allocates */
  size_t capacity;           /* bytes of each */
  const case_device *device; /* or NULL */
  void *stream;              /* of it */
  bool in_device[2];         /* which of the two is there; ... */
} test_case;

/* The composition of maps x -> a x + b modulo 2^32, on elements of type CASE_TYPE_AFFINE, or of as
 * many maps as fit any other type of the caller's. */
#define CASE_OP_AFFINE   ((coll_op)-2)
#define CASE_TYPE_AFFINE COLL_TYPE_USER(12)

/* The sum of bytes modulo 256, on elements of a type of the caller's; it commutes. */
#define CASE_OP_BYTES ((coll_op)-3)

/* Whether an operation takes a type (as docs/types.md says). */
int case_takes(coll_type type, coll_op op);

#define CASE_MAX_AT_ONCE 16

/*
 * Runs `count` cases of one form, all under way at once but for blocking ones, on this rank; 0, or
 * 1 after saying what went wrong. All ranks make the same call.
 */
int case_run(coll_comm *comm, int rank, int nranks, const test_case *cases, int count);

/* Like case_run(), but calls may fail: *status is that of the first that did, and the result is 1
 * only if what a call gave with COLL_OK, or memory beside it, is wrong. */
int case_try(coll_comm *comm, int rank, int nranks, const test_case *cases, int count,
             coll_status *status);

/* A case under way. */
typedef struct case_state case_state;

/* Makes the call of a case. Nonblocking: starts it; persistent: makes the request; grouped: a
 * blocking call, for use inside a group (*request is NULL then, as with blocking ones). Then either
 * case_end() after the operation is complete, or case_discard(). */
coll_status case_begin(coll_comm *comm, int rank, int nranks, const test_case *c,
                       case_state **state, coll_request **request);

/* Checks the result (unless the operation failed: done false) and frees everything; 0, or 1 after
 * saying what is wrong. */
int case_end(case_state *state, bool done);
void case_discard(case_state *state);

/* The operations behind CASE_OP_AFFINE and CASE_OP_BYTES; never freed. Any thread. */
coll_op case_affine(void);
coll_op case_bytes(void);

/* "allgatherv, persistent, float16, 3 ranks, ..." */
const char *case_text(const test_case *c, int nranks, char text[160]);

#endif
