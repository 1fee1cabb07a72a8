/*
 * test_programs.c: loading the library's kernels on the fake driver: all of them are there, each
 * call of the driver that fails is reported, and everything is given back.
 */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/gpu/code.h"
#include "support_sum.h"

enum { LIMIT_S = 60, BEGUN = 4 /* calls of the driver that begin() makes */ };

TestSuite(programs, .timeout = 200);

/* The driver, and what the program holds of it. */
typedef struct bench {
  use u;
  uint64_t (*held)(void);
} bench;

/* Loads the driver and makes a context of device 0 current. */
static void begin(bench *b) {
  use_load(&b->u);
  use_device(&b->u, 0);
  void *symbol = dlsym(b->u.cuda.handle, "fake_gpu_held");
  CHECK(symbol);
  memcpy(&b->held, &symbol, sizeof(symbol));
}

/* ---- what is loaded -------------------------------------------------------------------------- */

/* Whether a text is one of those in the library. */
static bool is_embedded(const char *text) {
  for (int i = 0; i < COLLI_GPU_FILE_COUNT; i++)
    if (strcmp(colli_gpu_ptx[i], text) == 0)
      return true;
  return false;
}

Test(programs, every_file) {
  static char text[1 << 20];
  DIR *folder = opendir(COLL_KERNELS);
  int files = 0;
  cr_assert(folder);
  for (struct dirent *entry = readdir(folder); entry; entry = readdir(folder)) {
    const size_t length = strlen(entry->d_name);
    if (length < 4 || strcmp(entry->d_name + length - 4, ".ptx") != 0)
      continue;
    char path[1024];
    snprintf(path, sizeof(path), "%s/%s", COLL_KERNELS, entry->d_name);
    FILE *file = fopen(path, "r");
    cr_assert(file);
    text[fread(text, 1, sizeof(text) - 1, file)] = 0;
    fclose(file);
    cr_assert(is_embedded(text), "%s is not in libcoll/gpu/code.h, or another one is", path);
    files++;
  }
  closedir(folder);
  cr_assert_eq(files, COLLI_GPU_FILE_COUNT);
}

Test(programs, two_devices) {
  bench b;
  colli_gpu_programs *programs[2];
  uint32_t *places[2];
  colli_cu_context contexts[2];
  setenv("GPU_DEVICES", "2", 1);
  begin(&b);
  for (int i = 1; i >= 0; i--) {
    use_device(&b.u, i);
    contexts[i] = b.u.context;
    places[i] = use_memory(&b.u, 1);
  }
  const uint64_t before = b.held();
  for (int i = 0; i < 2; i++) {
    OK(b.u.cuda.ctx_set_current(contexts[i]));
    cr_assert_eq(colli_gpu_programs_load(&b.u.cuda, i, &programs[i], NULL), COLL_OK);
  }
  cr_assert_eq(b.held(), before + 2 * COLLI_GPU_FILE_COUNT);
  cr_assert_eq(sum_element(&b.u, programs[1], places[1], NULL), COLL_OK);
  cr_assert_eq(sum_element(&b.u, programs[0], places[1], NULL),
               COLL_ERR_SYSTEM); /* another context's */
  OK(b.u.cuda.ctx_set_current(contexts[0]));
  cr_assert_eq(sum_element(&b.u, programs[0], places[0], NULL), COLL_OK);
  colli_gpu_programs_free(&b.u.cuda, programs[0]);
  cr_assert_eq(b.held(), before + COLLI_GPU_FILE_COUNT);
  OK(b.u.cuda.ctx_set_current(contexts[1]));
  cr_assert_eq(sum_element(&b.u, programs[1], places[1], NULL), COLL_OK);
  colli_gpu_programs_free(&b.u.cuda, programs[1]);
  colli_gpu_programs_free(&b.u.cuda, NULL);
  cr_assert_eq(b.held(), before);
}

/* ---- what fails ------------------------------------------------------------------------------ */

/* In a child, whose driver fails at a call: 0 if that made loading fail as it should, 1 if the
 * launch, 2 if PTX was loaded because SASS could not be. */
static int fails_at(const char *call) {
  bench b;
  coll_error error = COLL_ERROR_INIT;
  colli_gpu_programs *programs;
  setenv("GPU_FAIL", call, 1);
  begin(&b);
  const uint64_t before = b.held();
  const bool loaded = colli_gpu_programs_load(&b.u.cuda, 0, &programs, &error) == COLL_OK;
  CHECK(loaded == (programs != NULL));
  CHECK(b.held() == before + (loaded ? COLLI_GPU_FILE_COUNT : 0));
  if (loaded) {
    const struct coll_gpu_meet nobody = {.nranks = 1};
    const bool instead = strstr(colli_gpu_programs_origin(programs), "CUDA_ERROR_UNKNOWN");
    if (instead)
      CHECK(sum_element(&b.u, programs, use_memory(&b.u, 1), &error) == COLL_OK);
    else
      CHECK(colli_gpu_launch_meet(&b.u.cuda, programs, NULL, &nobody, &error) != COLL_OK);
    colli_gpu_programs_free(&b.u.cuda, programs);
    CHECK(b.held() == before + instead);
    if (instead)
      return 2;
  }
  CHECK(error.status == COLL_ERR_SYSTEM && strstr(error.message, "CUDA_ERROR_UNKNOWN"));
  CHECK(strncmp(error.syscall, "cu", 2) == 0 && strstr(error.message, error.syscall));
  CHECK(strstr(error.message, "on GPU 0"));
  CHECK(!loaded || strcmp(error.syscall, "cuLaunchKernelEx") == 0);
  return loaded;
}

/* The same by number, counted from the first call of loading. */
static int fails_at_call(int call) {
  char text[16];
  int status;
  snprintf(text, sizeof(text), "%d", BEGUN + call);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(LIMIT_S);
    _exit(fails_at(text));
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status), "call %d", call);
  return WEXITSTATUS(status);
}

Test(programs, each_call) {
  const int functions = 2 + 138, calls = 1 + COLLI_GPU_FILE_COUNT + 2 * functions;
  const int stride = extent(5, 1, 67);
  const int sass = colli_gpu_sass[0] ? 1 : 0; /* a call that is refused: no SASS suits this one */
  setenv("GPU_ARCH", "7.2", 1);
  cr_assert_eq(fails_at_call(1), 0);
  for (int call = 2; call <= calls; call += call <= COLLI_GPU_FILE_COUNT + 2 ? 1 : stride)
    cr_assert_eq(fails_at_call(sass + call), 0, "call %d", call);
  cr_assert_eq(fails_at_call(sass + calls), 0);
  cr_assert_eq(fails_at_call(sass + calls + 1), 1);
}

/* PTX makes up for each call that fails while SASS is loaded. */
Test(programs, each_call_with_sass) {
  const int functions = 2 + 138, calls = COLLI_GPU_FILE_COUNT + 2 * functions;
  const int stride = extent(11, 1, 67);
  if (!colli_gpu_sass[0])
    cr_skip_test("this build has no SASS");
  char arch[16];
  const int first = atoi(colli_gpu_sass_architectures);
  snprintf(arch, sizeof(arch), "%d.%d", first / 10, first % 10);
  setenv("GPU_ARCH", arch, 1);
  for (int call = 1; call <= calls; call += call <= COLLI_GPU_FILE_COUNT + 2 ? 1 : stride)
    cr_assert_eq(fails_at_call(1 + call), 2, "call %d", call);
  cr_assert_eq(fails_at_call(1 + calls), 2);
  cr_assert_eq(fails_at_call(1 + calls + 2), 1); /* the one between asks for the architecture */
}

/* The driver's function that the following stand for, and how often they were called. */
static colli_cuda real;
static int calls_made;

/* Loads another text than it was given. */
static colli_cu_result load_nonsense(colli_cu_module *module, const void *image, unsigned count,
                                     colli_cu_jit_option *options, void **values) {
  (void)image;
  return real.module_load(module, ".version 7.0\n.target sm_70\n.address_size 64\nnonsense\n",
                          count, options, values);
}

/* Loads a file or two, then memory of the device is short; says more than anybody wants to know. */
static colli_cu_result load_little(colli_cu_module *module, const void *image, unsigned count,
                                   colli_cu_jit_option *options, void **values) {
  if (calls_made++ < 2)
    return real.module_load(module, image, count, options, values);
  *module = (colli_cu_module)&calls_made;
  return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
}

/* Fails, and fills its log to the last byte with lines. */
static colli_cu_result load_loudly(colli_cu_module *module, const void *image, unsigned count,
                                   colli_cu_jit_option *options, void **values) {
  (void)module, (void)image, (void)count;
  cr_assert(options[0] == COLLI_CU_JIT_ERROR_LOG_BUFFER);
  memset(values[0], '\n', (size_t)(uintptr_t)values[1]);
  memcpy(values[0], "one\ntwo", 7);
  return COLLI_CUDA_ERROR_INVALID_PTX;
}

/* Unloads what was loaded. */
static colli_cu_result unload(colli_cu_module module) {
  OK(real.module_unload(module));
  return COLLI_CUDA_SUCCESS;
}

/* Loads with a function in place of the driver's, which must fail and leave nothing. */
static void refused(bench *b, colli_cuda cuda, coll_status status, const char *words) {
  colli_gpu_programs *programs;
  coll_error error = COLL_ERROR_INIT;
  const uint64_t before = b->held();
  cuda.module_unload = unload;
  cr_assert_eq(colli_gpu_programs_load(&cuda, 0, &programs, &error), status);
  cr_assert_eq(error.status, status);
  cr_assert_null(programs);
  cr_assert(strstr(error.message, words), "%s", error.message);
  cr_assert_eq(b->held(), before);
  cr_assert_eq(colli_gpu_programs_load(&cuda, 0, &programs, NULL), status);
  calls_made = 0;
}

Test(programs, reasons) {
  bench b;
  begin(&b);
  real = b.u.cuda;
  colli_cuda cuda = real;
  cuda.module_load = load_nonsense;
  refused(&b, cuda, COLL_ERR_SYSTEM, "(a PTX JIT compilation failed): line 4: ");
  cuda.module_load = load_loudly;
  refused(&b, cuda, COLL_ERR_SYSTEM, "): one two");
  cuda.module_load = load_little;
  refused(&b, cuda, COLL_ERR_NO_MEMORY, "out of memory for libcoll's kernels on GPU 0");
  cuda = real;
  cuda.launch_kernel = NULL;
  refused(&b, cuda, COLL_ERR_UNSUPPORTED, "driver for CUDA 11.6 or newer");
}

Test(programs, without_cuFuncLoad) {
  bench b;
  begin(&b);
  uint32_t *place = use_memory(&b.u, 1);
  colli_gpu_programs *programs;
  b.u.cuda.func_load = NULL;
  cr_assert_eq(colli_gpu_programs_load(&b.u.cuda, 0, &programs, NULL), COLL_OK);
  cr_assert_eq(sum_element(&b.u, programs, place, NULL), COLL_OK);
  colli_gpu_programs_free(&b.u.cuda, programs);
}
