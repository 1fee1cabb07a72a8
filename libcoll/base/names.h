/* names.h: names of types and operations, for messages and tools. */
#ifndef COLLI_BASE_NAMES_H
#define COLLI_BASE_NAMES_H

#include "coll/coll_types.h"

/* "float32" ...; never NULL: a number that names no type gives "unknown type". */
const char *colli_type_name(int type);

/* "sum" ...; never NULL. */
const char *colli_op_name(coll_op op);

/* Bytes of the predefined types. */
extern const unsigned char colli_type_sizes[COLL_TYPE_COUNT];

/* coll_type_bytes() without a call, for where each message asks. */
static inline size_t colli_type_bytes(int type) {
  if (__builtin_expect((unsigned)type < COLL_TYPE_COUNT, 1))
    return colli_type_sizes[type];
  const int bytes = type > COLL_TYPE_USER_BASE ? type - COLL_TYPE_USER_BASE : 0;
  return bytes <= COLL_TYPE_USER_BYTES_MAX ? (size_t)bytes : 0;
}

#endif
