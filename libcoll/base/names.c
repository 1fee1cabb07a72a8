/* names.c: the constants of the public headers, as names and sizes. */
#include "libcoll/base/names.h"

#include "coll/coll.h"

/* The name of a type of elements. */
const char *colli_type_name(int type) {
  static const char *const names[COLL_TYPE_COUNT] = {
      "int8",      "uint8",       "int16",       "uint16",      "int32",
      "uint32",    "int64",       "uint64",      "float16",     "bfloat16",
      "float32",   "float64",     "float8_e4m3", "float8_e5m2", "int32_loc",
      "int64_loc", "float32_loc", "float64_loc", "int32_loc64", "float32_loc64"};
  if (type >= COLL_TYPE_USER_BASE)
    return "a type of the caller's own";
  return type >= 0 && type < COLL_TYPE_COUNT ? names[type] : "unknown type";
}

/* The name of an operation. */
const char *colli_op_name(coll_op op) {
  static const char *const names[COLL_OP_COUNT] = {"sum",  "prod",   "min",   "max",  "avg",
                                                   "band", "bor",    "bxor",  "land", "lor",
                                                   "lxor", "minloc", "maxloc"};
  return op >= 0 && op < COLL_OP_COUNT ? names[op] : "unknown operation";
}

int coll_version(void) {
  return COLL_VERSION;
}

const char *coll_status_name(coll_status status) {
  static const char *const names[] = {"COLL_OK",
                                      "COLL_IN_PROGRESS",
                                      "COLL_ERR_INVALID_ARGUMENT",
                                      "COLL_ERR_INVALID_USAGE",
                                      "COLL_ERR_SYSTEM",
                                      "COLL_ERR_NO_MEMORY",
                                      "COLL_ERR_TIMEOUT",
                                      "COLL_ERR_PEER_LOST",
                                      "COLL_ERR_MISMATCH",
                                      "COLL_ERR_ABORTED",
                                      "COLL_ERR_AUTH",
                                      "COLL_ERR_UNREACHABLE",
                                      "COLL_ERR_PROTOCOL",
                                      "COLL_ERR_UNSUPPORTED",
                                      "COLL_ERR_INTERNAL"};
  int number = (int)status;
  return number >= 0 && number <= COLL_ERR_INTERNAL ? names[number] : "unknown coll_status";
}

const unsigned char colli_type_sizes[COLL_TYPE_COUNT] = {
    [COLL_INT8] = 1,         [COLL_UINT8] = 1,         [COLL_INT16] = 2,
    [COLL_UINT16] = 2,       [COLL_INT32] = 4,         [COLL_UINT32] = 4,
    [COLL_INT64] = 8,        [COLL_UINT64] = 8,        [COLL_FLOAT16] = 2,
    [COLL_BFLOAT16] = 2,     [COLL_FLOAT32] = 4,       [COLL_FLOAT64] = 8,
    [COLL_FLOAT8_E4M3] = 1,  [COLL_FLOAT8_E5M2] = 1,   [COLL_INT32_LOC] = 8,
    [COLL_INT64_LOC] = 16,   [COLL_FLOAT32_LOC] = 8,   [COLL_FLOAT64_LOC] = 16,
    [COLL_INT32_LOC64] = 16, [COLL_FLOAT32_LOC64] = 16};

size_t coll_type_bytes(coll_type type) {
  return colli_type_bytes((int)type);
}
