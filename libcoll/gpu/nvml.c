/* nvml.c: finds the functions of NVIDIA's management library. */
#include "libcoll/gpu/nvml.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "libcoll/base/error.h"

/* A function of the table. */
typedef struct entry {
  const char *symbol;
  bool required;
  size_t offset;
} entry;

#define ENTRY(field, name, suffix, required, arguments)                                            \
  {#name #suffix, required, offsetof(colli_nvml, field)},
static const entry entries[] = {COLLI_NVML_ENTRIES(ENTRY)};

/* Fills in the functions. */
static coll_status find_all(colli_nvml *nvml, const char *name, coll_error *error) {
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    void *symbol = dlsym(nvml->handle, entries[i].symbol);
    if (!symbol && entries[i].required)
      return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL, "%s has no %s", name,
                             entries[i].symbol);
    memcpy((char *)nvml + entries[i].offset, &symbol, sizeof(symbol));
  }
  return COLL_OK;
}

coll_status colli_nvml_load(colli_nvml *nvml, const char *name, coll_error *error) {
  memset(nvml, 0, sizeof(*nvml));
  nvml->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (!nvml->handle) {
    const char *reason = dlerror();
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL, "%s", reason ? reason : name);
  }
  coll_status status = find_all(nvml, name, error);
  const colli_nvml_result result = status == COLL_OK ? nvml->init() : COLLI_NVML_SUCCESS;
  if (result != COLLI_NVML_SUCCESS)
    status = colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL, "%s: nvmlInit failed with error %d",
                             name, result);
  if (status != COLL_OK) {
    dlclose(nvml->handle);
    memset(nvml, 0, sizeof(*nvml));
  }
  return status;
}

void colli_nvml_close(colli_nvml *nvml) {
  if (!nvml->handle)
    return;
  nvml->shutdown();
  dlclose(nvml->handle);
  memset(nvml, 0, sizeof(*nvml));
}
