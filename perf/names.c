/* names.c: the names of types and operations. */
#include <string.h>

#include "perf.h"

/* nccl-tests' names. The first name of a type is the one that is printed. */
static const struct {
  const char *name;
  int type;
} types[] = {{"int8", COLL_INT8},
             {"uint8", COLL_UINT8},
             {"int16", COLL_INT16},
             {"uint16", COLL_UINT16},
             {"int32", COLL_INT32},
             {"uint32", COLL_UINT32},
             {"int64", COLL_INT64},
             {"uint64", COLL_UINT64},
             {"half", COLL_FLOAT16},
             {"bfloat16", COLL_BFLOAT16},
             {"float", COLL_FLOAT32},
             {"double", COLL_FLOAT64},
             {"float16", COLL_FLOAT16},
             {"float32", COLL_FLOAT32},
             {"float64", COLL_FLOAT64},
             {"float8_e4m3", COLL_FLOAT8_E4M3},
             {"float8_e5m2", COLL_FLOAT8_E5M2},
             {"int32_loc", COLL_INT32_LOC},
             {"int64_loc", COLL_INT64_LOC},
             {"float32_loc", COLL_FLOAT32_LOC},
             {"float64_loc", COLL_FLOAT64_LOC},
             {"int32_loc64", COLL_INT32_LOC64},
             {"float32_loc64", COLL_FLOAT32_LOC64},
             {"f8e4m3", COLL_FLOAT8_E4M3},
             {"f8e5m2", COLL_FLOAT8_E5M2},
             {"all", PERF_ALL}};
static const struct {
  const char *name;
  int op;
} ops[] = {{"sum", COLL_SUM},       {"prod", COLL_PROD}, {"min", COLL_MIN},
           {"max", COLL_MAX},       {"avg", COLL_AVG},   {"band", COLL_BAND},
           {"bor", COLL_BOR},       {"bxor", COLL_BXOR}, {"land", COLL_LAND},
           {"lor", COLL_LOR},       {"lxor", COLL_LXOR}, {"minloc", COLL_MINLOC},
           {"maxloc", COLL_MAXLOC}, {"all", PERF_ALL}};

const char *perf_type_name(int type) {
  for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
    if (types[i].type == type)
      return types[i].name;
  return "none";
}

const char *perf_op_name(int op) {
  for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
    if (ops[i].op == op)
      return ops[i].name;
  return "none";
}

int perf_type_named(const char *name) {
  for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
    if (strcmp(types[i].name, name) == 0)
      return types[i].type;
  return PERF_NO_NAME;
}

int perf_op_named(const char *name) {
  for (size_t i = 0; i < sizeof(ops) / sizeof(*ops); i++)
    if (strcmp(ops[i].name, name) == 0)
      return ops[i].op;
  return PERF_NO_NAME;
}
