/*
 * trace_spans.h: the items that begin and end operations, made once for all operations that differ
 * in nothing but their numbers and times: programs repeat operations.
 */
#ifndef COLLI_TRACE_TRACE_SPANS_H
#define COLLI_TRACE_TRACE_SPANS_H

#include "libcoll/exec/event.h"
#include "libcoll/trace/trace_items.h"

#define COLLI_TRACE_LANES 64
#define COLLI_TRACE_SPANS 16  /* that are kept */
#define COLLI_TRACE_SPAN  384 /* bytes of one */
#define COLLI_TRACE_END   64  /* of its end */

/* What the items of equal operations have in common. */
typedef struct colli_trace_key {
  uint64_t word[3]; /* of the tag, without what is of one operation only; of a message, word[1]
                       is the address of its name */
  uint64_t communicator;
  uint64_t place; /* lane, and peer of a message */
} colli_trace_key;

/* The item that begins equal operations. */
typedef struct colli_trace_span {
  colli_trace_key key;
  size_t bytes; /* 0: none */
  uint8_t item[COLLI_TRACE_SPAN + COLLI_ITEM_SPARE];
} colli_trace_span;

/* The item that ends operations of a lane. */
typedef struct colli_trace_end {
  size_t bytes; /* 0: the lane is not named yet */
  uint8_t item[COLLI_TRACE_END + COLLI_ITEM_SPARE];
} colli_trace_end;

typedef struct colli_trace_spans {
  colli_trace_span kept[COLLI_TRACE_SPANS];
  colli_trace_end ends[COLLI_TRACE_LANES];
} colli_trace_spans;

/* Writes that an operation begins in a lane; false if the file is full. */
bool colli_trace_begin(colli_trace_spans *spans, colli_trace_items *items, int lane,
                       const colli_observation *seen, uint64_t time_ns);

/* Writes that the operation in a lane ends; there is room for that. */
void colli_trace_finish(colli_trace_spans *spans, colli_trace_items *items, int lane,
                        coll_status status, uint64_t time_ns);

#endif
