/*
 * fake_cuda.c: a library that looks like CUDA's driver and does nothing, for test_cuda_load.c.
 * Its cuGetProcAddress() knows all functions but $FAKE_CUDA_LACKS, and cuInit() returns
 * $FAKE_CUDA_INIT. Of the functions themselves it exports only cuStreamQuery.
 */
#include <stdlib.h>
#include <string.h>

#include "libcoll/gpu/cuda_abi.h"
#include "libcoll/gpu/cuda_entries.h"

#define EXPORTED __attribute__((visibility("default")))
#pragma GCC diagnostic ignored "-Wunused-parameter"

typedef void (*any_fn)(void);

/* Functions without effect. */
#define NO_EFFECT(field, name, suffix, version, arguments)                                         \
  static colli_cu_result no_##field arguments {                                                    \
    return COLLI_CUDA_SUCCESS;                                                                     \
  }
COLLI_CUDA_ENTRIES(NO_EFFECT)

/* Those that a test looks at. */
static colli_cu_result fake_init(unsigned flags) {
  const char *result = getenv("FAKE_CUDA_INIT");
  return result ? atoi(result) : COLLI_CUDA_SUCCESS;
}
static colli_cu_result fake_version(int *version) {
  *version = 12020;
  return COLLI_CUDA_SUCCESS;
}
static colli_cu_result fake_name(colli_cu_result error, const char **text) {
  *text = error == COLLI_CUDA_ERROR_NO_DEVICE ? "CUDA_ERROR_NO_DEVICE" : NULL;
  return *text ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_INVALID_VALUE;
}

typedef struct known {
  const char *name;
  any_fn function;
} known;

#define KNOWN(field, name, suffix, version, arguments) {#name, (any_fn)no_##field},
static const known functions[] = {{"cuInit", (any_fn)fake_init},
                                  {"cuDriverGetVersion", (any_fn)fake_version},
                                  {"cuGetErrorName", (any_fn)fake_name},
                                  COLLI_CUDA_ENTRIES(KNOWN)};

EXPORTED colli_cu_result cuStreamQuery(colli_cu_stream stream);
EXPORTED colli_cu_result cuStreamQuery(colli_cu_stream stream) {
  return COLLI_CUDA_ERROR_NOT_READY;
}

EXPORTED colli_cu_result cuGetProcAddress_v2(const char *name, void **function, int version,
                                             uint64_t flags, colli_cu_query_result *found);
EXPORTED colli_cu_result cuGetProcAddress_v2(const char *name, void **function, int version,
                                             uint64_t flags, colli_cu_query_result *found) {
  const char *lacks = getenv("FAKE_CUDA_LACKS");
  *function = NULL;
  *found = COLLI_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (lacks && strcmp(lacks, name) == 0)
    return COLLI_CUDA_SUCCESS; /* as drivers do */
  for (size_t i = 0; i < sizeof(functions) / sizeof(*functions) && !*function; i++)
    if (strcmp(functions[i].name, name) == 0)
      memcpy(function, &functions[i].function, sizeof(*function));
  *found = COLLI_CU_GET_PROC_ADDRESS_SUCCESS;
  return COLLI_CUDA_SUCCESS;
}
