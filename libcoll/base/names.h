/* names.h: names of types and operations, for messages and tools. */
#ifndef COLLI_BASE_NAMES_H
#define COLLI_BASE_NAMES_H

#include "coll/coll_types.h"

/* "float32" ...; never NULL: a number that names no type gives "unknown type". */
const char *colli_type_name(int type);

/* "sum" ...; never NULL. */
const char *colli_op_name(coll_op op);

#endif
