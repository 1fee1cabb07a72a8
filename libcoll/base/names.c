/* names.c: names of types and operations. */
#include "libcoll/base/names.h"

#include "coll/coll.h"

/* The name of a type of elements. */
const char *colli_type_name(int type) {
  static const char *const names[COLL_TYPE_COUNT] = {
      "int8",        "uint8",       "int16",     "uint16",    "int32",       "uint32",
      "int64",       "uint64",      "float16",   "bfloat16",  "float32",     "float64",
      "float8_e4m3", "float8_e5m2", "int32_loc", "int64_loc", "float32_loc", "float64_loc"};
  if (type >= COLL_TYPE_USER_BASE)
    return "a type of the caller's own";
  return type >= 0 && type < COLL_TYPE_COUNT ? names[type] : "unknown type";
}

/* The name of an operation. */
const char *colli_op_name(int op) {
  static const char *const names[COLL_OP_COUNT] = {"sum",  "prod",   "min",   "max",  "avg",
                                                   "band", "bor",    "bxor",  "land", "lor",
                                                   "lxor", "minloc", "maxloc"};
  if (op >= COLL_OP_USER_BASE)
    return "an operation of the caller's own";
  return op >= 0 && op < COLL_OP_COUNT ? names[op] : "unknown operation";
}
