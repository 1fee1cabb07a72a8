/* driver_entry.c: cuGetProcAddress(). The library's symbols are the functions themselves. */
#include <stddef.h>
#include <string.h>

#include "driver.h"

typedef void (*any_fn)(void);

/* A function, and the version of CUDA that brought this form of it. */
typedef struct entry {
  const char *name;
  any_fn function;
  int version;
} entry;

#define ENTRY(field, name, suffix, version, arguments) {#name, (any_fn)name##suffix, version},
static const entry entries[] = {COLLI_CUDA_ENTRIES(ENTRY) FAKE_CUDA_EXTRA(ENTRY){
    "cuGetProcAddress", (any_fn)cuGetProcAddress_v2, 12000}};

colli_cu_result cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags,
                                    colli_cu_query_result *found) {
  colli_cu_query_result status = COLLI_CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
  if (!name || !function || flags > 2)
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  *function = NULL;
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    if (strcmp(entries[i].name, name) != 0)
      continue;
    status = COLLI_CU_GET_PROC_ADDRESS_SUCCESS;
    if (entries[i].version > version)
      status = COLLI_CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
    else
      memcpy(function, &entries[i].function, sizeof(*function));
  }
  if (found)
    *found = status;
  return *function || found ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_NOT_FOUND;
}
