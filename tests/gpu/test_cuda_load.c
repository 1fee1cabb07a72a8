/* test_cuda_load.c: finding CUDA's driver: absent, too old, without a device, and as it should be.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/gpu/cuda_load.h"

#define FAKE_CUDA COLL_PLUGINS "/fake_cuda.so"

TestSuite(cuda_load, .timeout = 60);

/* Loads a library, which must fail as unsupported with these words, and leave nothing. */
static void refuses(const char *name, const char *words, const char *more) {
  colli_cuda cuda, zero = {0};
  coll_error error = {.size = sizeof(error)};
  memset(&cuda, 0xa5, sizeof(cuda));
  cr_assert_eq(colli_cuda_load(&cuda, name, &error), COLL_ERR_UNSUPPORTED);
  cr_assert_eq(error.status, COLL_ERR_UNSUPPORTED);
  cr_assert(strstr(error.message, words) && strstr(error.message, more), "%s", error.message);
  cr_assert_arr_eq(&cuda, &zero, sizeof(cuda));
  cr_assert_eq(colli_cuda_load(&cuda, name, NULL), COLL_ERR_UNSUPPORTED);
}

Test(cuda_load, absent) {
  refuses("libcoll_no_such_driver.so.1", "libcoll_no_such_driver.so.1", "install");
}

Test(cuda_load, other_library) {
  refuses("libm.so.6", "libm.so.6 has no cuInit", "driver for CUDA 11.4 or newer");
}

Test(cuda_load, real_one_or_none) {
  colli_cuda cuda;
  coll_error error = {.size = sizeof(error)};
  void *real = dlopen(COLLI_CUDA_LIBRARY, RTLD_NOW);
  coll_status status = colli_cuda_load(&cuda, COLLI_CUDA_LIBRARY, &error);
  cr_assert(status == COLL_OK || status == COLL_ERR_UNSUPPORTED, "%s", error.message);
  cr_assert(real || strstr(error.message, COLLI_CUDA_LIBRARY), "%s", error.message);
  colli_cuda_close(&cuda);
  colli_cuda_close(&cuda);
}

Test(cuda_load, complete) {
  colli_cuda cuda;
  coll_error error = {.size = sizeof(error)};
  cr_assert_eq(colli_cuda_load(&cuda, FAKE_CUDA, &error), COLL_OK, "%s", error.message);
  cr_assert_eq(cuda.driver_version, 12020);
#define FOUND(field, name, suffix, version, arguments) cr_assert(cuda.field, #name);
  COLLI_CUDA_ENTRIES(FOUND)
  cr_assert_eq(cuda.stream_query(NULL), COLLI_CUDA_SUCCESS);
  cr_assert_str_eq(colli_cuda_result_name(&cuda, COLLI_CUDA_ERROR_NO_DEVICE),
                   "CUDA_ERROR_NO_DEVICE");
  cr_assert_str_eq(colli_cuda_result_name(&cuda, 12345), "unknown");
  colli_cuda_close(&cuda);
  cr_assert(!cuda.handle && !cuda.stream_query);
}

Test(cuda_load, too_old) {
  setenv("FAKE_CUDA_LACKS", "cuMemAlloc", 1);
  refuses(FAKE_CUDA, "fake_cuda.so has no cuMemAlloc_v2", "driver for CUDA 11.4 or newer");
}

Test(cuda_load, optional) {
  colli_cuda cuda;
  coll_error error = {.size = sizeof(error)};
  setenv("FAKE_CUDA_LACKS", "cuFuncLoad", 1);
  cr_assert_eq(colli_cuda_load(&cuda, FAKE_CUDA, &error), COLL_OK, "%s", error.message);
  cr_assert(!cuda.func_load && cuda.launch_kernel);
  colli_cuda_close(&cuda);
}

Test(cuda_load, only_exported) {
  colli_cuda cuda;
  coll_error error = {.size = sizeof(error)};
  setenv("FAKE_CUDA_LACKS", "cuStreamQuery", 1);
  cr_assert_eq(colli_cuda_load(&cuda, FAKE_CUDA, &error), COLL_OK, "%s", error.message);
  cr_assert_eq(cuda.stream_query(NULL), COLLI_CUDA_ERROR_NOT_READY);
  colli_cuda_close(&cuda);
}

Test(cuda_load, no_device) {
  setenv("FAKE_CUDA_INIT", "100", 1);
  refuses(FAKE_CUDA, "cuInit failed with error 100, CUDA_ERROR_NO_DEVICE (no description)",
          "nvidia-smi");
}
