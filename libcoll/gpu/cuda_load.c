/* cuda_load.c: finds the functions of CUDA's driver. */
#include "libcoll/gpu/cuda_load.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

#include "libcoll/base/error.h"

/* A function of the table: what it is called, and in which form it is wanted. */
typedef struct entry {
  const char *name, *symbol; /* for cuGetProcAddress() and for dlsym() */
  int version;
  size_t offset;
} entry;

#define ENTRY(field, name, suffix, version, arguments)                                             \
  {#name, #name #suffix, version, offsetof(colli_cuda, field)},
static const entry entries[] = {COLLI_CUDA_ENTRIES(ENTRY)};

/* cuGetProcAddress() as of CUDA 12.0. */
typedef colli_cu_result (*find_fn)(const char *name, void **function, int version, uint64_t flags,
                                   colli_cu_query_result *found);

/*
 * The address of a function, or NULL. The driver is asked first: it may have forms that the library
 * does not export. Drivers before CUDA 12.0 have another form of that function, which is not used:
 * their library exports all that is required.
 */
static void *find(void *handle, find_fn ask, const entry *wanted) {
  void *function = NULL;
  colli_cu_query_result found;
  if (ask && ask(wanted->name, &function, wanted->version, COLLI_CU_GET_PROC_ADDRESS_DEFAULT,
                 &found) != COLLI_CUDA_SUCCESS)
    function = NULL;
  return function ? function : dlsym(handle, wanted->symbol);
}

/* Fills in the functions. UNSUPPORTED if one is missing that every driver in use has. */
static coll_status find_all(colli_cuda *cuda, const char *name, coll_error *error) {
  find_fn ask;
  void *symbol = dlsym(cuda->handle, "cuGetProcAddress_v2");
  memcpy(&ask, &symbol, sizeof(ask));
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    symbol = find(cuda->handle, ask, &entries[i]);
    if (!symbol && entries[i].version <= COLLI_CUDA_OLDEST)
      return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                             "%s has no %s; install an NVIDIA driver for CUDA %d.%d or newer", name,
                             entries[i].symbol, COLLI_CUDA_OLDEST / 1000,
                             COLLI_CUDA_OLDEST % 1000 / 10);
    memcpy((char *)cuda + entries[i].offset, &symbol, sizeof(symbol));
  }
  return COLL_OK;
}

/* Initialises the driver. */
static coll_status start(colli_cuda *cuda, const char *name, coll_error *error) {
  colli_cu_result result = cuda->init(0);
  const char *function = "cuInit";
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuDriverGetVersion";
    result = cuda->driver_get_version(&cuda->driver_version);
  }
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  return colli_error_set(
      error, COLL_ERR_UNSUPPORTED, NULL,
      "%s: %s failed with error %d, %s (%s); nvidia-smi shows whether the driver works "
      "and has a device",
      name, function, result, colli_cuda_result_name(cuda, result),
      colli_cuda_result_text(cuda, result));
}

coll_status colli_cuda_load(colli_cuda *cuda, const char *name, coll_error *error) {
  memset(cuda, 0, sizeof(*cuda));
  cuda->handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!cuda->handle) {
    const char *reason = dlerror();
    return colli_error_set(
        error, COLL_ERR_UNSUPPORTED, NULL,
        "CUDA's driver cannot be loaded (%s); install the NVIDIA driver (Debian: "
        "libcuda1)",
        reason ? reason : name);
  }
  coll_status status = find_all(cuda, name, error);
  if (status == COLL_OK)
    status = start(cuda, name, error);
  if (status != COLL_OK)
    colli_cuda_close(cuda);
  return status;
}

void colli_cuda_close(colli_cuda *cuda) {
  if (cuda->handle)
    dlclose(cuda->handle);
  memset(cuda, 0, sizeof(*cuda));
}

const char *colli_cuda_result_name(const colli_cuda *cuda, colli_cu_result result) {
  const char *text = NULL;
  bool known = cuda->get_error_name && cuda->get_error_name(result, &text) == COLLI_CUDA_SUCCESS;
  return known && text ? text : "unknown";
}

const char *colli_cuda_result_text(const colli_cuda *cuda, colli_cu_result result) {
  const char *text = NULL;
  bool known =
      cuda->get_error_string && cuda->get_error_string(result, &text) == COLLI_CUDA_SUCCESS;
  return known && text ? text : "no description";
}

coll_status colli_cuda_fail(const colli_cuda *cuda, coll_error *error, const char *function,
                            int device, colli_cu_result result) {
  colli_error_set(error, COLL_ERR_SYSTEM, NULL,
                  "%s on GPU %d failed with error %d, %s (%s); a kernel of the program may have "
                  "failed before, which compute-sanitizer shows",
                  function, device, result, colli_cuda_result_name(cuda, result),
                  colli_cuda_result_text(cuda, result));
  if (error)
    strncpy(error->syscall, function, sizeof(error->syscall) - 1);
  return COLL_ERR_SYSTEM;
}
