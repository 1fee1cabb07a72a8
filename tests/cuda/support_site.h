/*
 * support_site.h: a call that is made once or again and again, on new data each time, with buffers
 * anywhere; the reference is a plain one. Unlike the cases of case.h, functions of a stream may
 * write the input and check the result, and a graph may make the call.
 */
#ifndef TESTS_CUDA_SUPPORT_SITE_H
#define TESTS_CUDA_SUPPORT_SITE_H

#include "support_registered.h"

/* What is called: the same on all ranks. */
typedef struct site_plan {
  case_coll coll;
  coll_type type;
  coll_op op;
  int root;
  size_t count; /* in v-forms about that many */
  bool in_place;
  uint64_t shape;     /* decides lengths and gaps in v-forms */
  bool registered[2]; /* the buffers are, if there is room */
} site_plan;

/* Where a buffer is. */
typedef enum site_place {
  SITE_NEAR,
  SITE_ODD,
  SITE_FAR,
  SITE_ON_HOST,
  SITE_PLACES,
  SITE_REGISTERED = SITE_PLACES
} site_place;

/* A call on a rank, with its buffers. */
typedef struct site site;

/* On the device that the calling thread uses. In place, both buffers are at the first place.
 * Registered ones are in the arena; all ranks make and free sites that have some in one order. */
site *site_make(const site_plan *plan, int rank, int nranks, const site_place places[2],
                arena *registered);
void site_free(site *it);

/* Writes the input that belongs to `salt`, and to the other bytes what no result has: it is in the
 * buffers after a push, in a stream or (NULL) at once. Functions of streams may call this. */
void site_fill(const site *it, uint64_t salt);
void site_push(const site *it, void *stream);

/* After a pull: whether the result is that of the inputs of `salt`, and nothing else was written;
 * says what is wrong. Functions of streams may call this. */
void site_pull(const site *it, void *stream);
bool site_check(const site *it, uint64_t salt);

/* Makes the call: CASE_BLOCKING, CASE_GROUPED, CASE_NONBLOCKING, or CASE_STREAMED. */
coll_status site_call(const site *it, case_form form, coll_comm *comm, void *stream,
                      coll_request **request);

/* Makes the call on a stream again and again, at once or as one graph, on new data each time, and
 * checks each result: 0, or a rank's failure code, which says what is wrong. */
int site_repeat(const site *it, bool captured, uint64_t times, coll_comm *comm, int rank,
                void *stream);

#endif
