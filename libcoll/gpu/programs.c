/* programs.c: the kernels of a device. */
#include "libcoll/gpu/programs.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/base/names.h"
#include "libcoll/gpu/code.h"
#include "libcoll/gpu/kernels/fold_names.h"

#define LOG_BYTES    400 /* of what the driver's compiler says; the first lines matter */
#define ORIGIN_BYTES 240
#define WARP         32
#define FEW_THREADS  128 /* of a block, as long as there is room for more blocks */
#define BLOCKS_EACH  3   /* of a multiprocessor: of most threads, enough to keep its memory busy */

struct colli_gpu_programs {
  int device;
  char origin[ORIGIN_BYTES];
  colli_cu_result refused; /* the driver's last error, while it loads */
  uint64_t most_blocks;    /* of a launch; more would only queue */
  colli_cu_module modules[COLLI_GPU_FILE_COUNT];
  colli_cu_function copy, meet;
  colli_cu_function folds[COLL_TYPE_COUNT][COLL_OP_COUNT][2]; /* the last index is `wide` */
};

/* ---- load ------------------------------------------------------------------------------------ */

/* Fills in the record of a function of the driver that failed; `log` is what its compiler said. */
static coll_status refuse(const colli_cuda *cuda, colli_gpu_programs *p, const char *function,
                          colli_cu_result result, const char *log, coll_error *error) {
  const int device = p->device;
  p->refused = result;
  if (result == COLLI_CUDA_ERROR_OUT_OF_MEMORY)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL,
                           "out of memory for libcoll's kernels on GPU %d", device);
  colli_error_set(error, COLL_ERR_SYSTEM, NULL,
                  "libcoll's kernels cannot be loaded: %s on GPU %d failed with error %d, %s "
                  "(%s)%s%s",
                  function, device, result, colli_cuda_result_name(cuda, result),
                  colli_cuda_result_text(cuda, result), *log ? ": " : "", log);
  if (error)
    strncpy(error->syscall, function, sizeof(error->syscall) - 1);
  return COLL_ERR_SYSTEM;
}

/* Makes one line of several, without those that are empty at the end. */
static void join_lines(char *text) {
  size_t length = strlen(text);
  while (length > 0 && text[length - 1] == '\n')
    text[--length] = 0;
  for (char *c = text; *c; c++)
    if (*c == '\n')
      *c = ' ';
}

/* Loads the code of one file. */
static coll_status load_file(const colli_cuda *cuda, colli_gpu_programs *p, int file,
                             const char *code, coll_error *error) {
  char log[LOG_BYTES] = "";
  colli_cu_jit_option options[] = {COLLI_CU_JIT_ERROR_LOG_BUFFER,
                                   COLLI_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)(uintptr_t)sizeof(log)};
  const colli_cu_result result = cuda->module_load(&p->modules[file], code, 2, options, values);
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  p->modules[file] = NULL;
  log[sizeof(log) - 1] = 0;
  join_lines(log);
  return refuse(cuda, p, "cuModuleLoadDataEx", result, log, error);
}

/*
 * Finds a function in a file, and has the driver load it now. A driver that loads lazily does so
 * when a function is looked up, or even when it is first launched, and may wait for that until the
 * device is idle: a deadlock, if a kernel there waits for what comes after that launch.
 */
static coll_status find(const colli_cuda *cuda, colli_gpu_programs *p, int file, const char *name,
                        colli_cu_function *function, coll_error *error) {
  colli_cu_result result = cuda->module_get_function(function, p->modules[file], name);
  if (result != COLLI_CUDA_SUCCESS)
    return refuse(cuda, p, "cuModuleGetFunction", result, name, error);
  if (cuda->func_load)
    result = cuda->func_load(*function);
  if (result != COLLI_CUDA_SUCCESS)
    return refuse(cuda, p, "cuFuncLoad", result, name, error);
  return COLL_OK;
}

/* The file with the reductions of a type. */
static int file_of(coll_type type) {
  if (type <= COLL_UINT64)
    return COLLI_GPU_FILE_FOLD_INT;
  if (type >= COLL_INT32_LOC)
    return COLLI_GPU_FILE_FOLD_LOC;
  return type >= COLL_FLOAT8_E4M3 ? COLLI_GPU_FILE_FOLD_FLOAT8 : COLLI_GPU_FILE_FOLD_FLOAT;
}

/* Finds all functions. */
static coll_status find_all(const colli_cuda *cuda, colli_gpu_programs *p, coll_error *error) {
  char name[COLL_GPU_NAME_BYTES];
  coll_status status = find(cuda, p, COLLI_GPU_FILE_COPY, "coll_copy", &p->copy, error);
  if (status == COLL_OK)
    status = find(cuda, p, COLLI_GPU_FILE_MEET, "coll_meet", &p->meet, error);
  for (int i = 0; i < COLL_TYPE_COUNT * COLL_OP_COUNT * 2 && status == COLL_OK; i++) {
    const int type = i / 2 / COLL_OP_COUNT, op = i / 2 % COLL_OP_COUNT, wide = i % 2;
    if (coll_gpu_fold_name(name, (coll_type)type, op, wide))
      status = find(cuda, p, file_of((coll_type)type), name, &p->folds[type][op][wide], error);
  }
  return status;
}

/* Unloads all files that are loaded. */
static void unload(const colli_cuda *cuda, colli_gpu_programs *p) {
  for (int file = 0; file < COLLI_GPU_FILE_COUNT; file++) {
    if (p->modules[file])
      cuda->module_unload(p->modules[file]);
    p->modules[file] = NULL;
  }
}

/* Loads all files in one of two forms, and finds all functions; nothing is loaded if that fails. */
static coll_status load_form(const colli_cuda *cuda, colli_gpu_programs *p,
                             const char *const code[COLLI_GPU_FILE_COUNT], coll_error *error) {
  coll_status status = COLL_OK;
  for (int file = 0; file < COLLI_GPU_FILE_COUNT && status == COLL_OK; file++)
    status = load_file(cuda, p, file, code[file], error);
  if (status == COLL_OK)
    status = find_all(cuda, p, error);
  if (status != COLL_OK)
    unload(cuda, p);
  return status;
}

/* Loads the SASS that suits the device: the driver knows which does. */
static coll_status load_sass(const colli_cuda *cuda, colli_gpu_programs *p) {
  int version = 0;
  const coll_status status = load_form(cuda, p, colli_gpu_sass, NULL);
  if (status != COLL_OK)
    return status;
  const colli_cu_result result =
      cuda->func_get_attribute(&version, COLLI_CU_FUNC_ATTRIBUTE_BINARY_VERSION, p->copy);
  if (result == COLLI_CUDA_SUCCESS)
    snprintf(p->origin, sizeof(p->origin), "SASS for sm_%d", version);
  else
    snprintf(p->origin, sizeof(p->origin), "SASS");
  return COLL_OK;
}

/*
 * Loads SASS, or else PTX: no SASS suits the device, or the driver is older than the ptxas that
 * made it. Drivers differ in how they refuse what they do not know, and what is really wrong goes
 * wrong again with PTX, so the error does not matter.
 */
static coll_status load_all(const colli_cuda *cuda, colli_gpu_programs *p, coll_error *error) {
  if (colli_gpu_sass[0] && load_sass(cuda, p) == COLL_OK)
    return COLL_OK;
  const colli_cu_result refused = p->refused;
  const coll_status status = load_form(cuda, p, colli_gpu_ptx, error);
  if (status != COLL_OK)
    return status;
  snprintf(p->origin, sizeof(p->origin), "PTX, compiled by the driver");
  if (colli_gpu_sass[0])
    snprintf(p->origin, sizeof(p->origin),
             "PTX, compiled by the driver, which does not take SASS for sm_%s: error %d, %s",
             colli_gpu_sass_architectures, refused, colli_cuda_result_name(cuda, refused));
  return COLL_OK;
}

/* Sets how large a launch may be. */
static coll_status set_size(const colli_cuda *cuda, colli_gpu_programs *p, coll_error *error) {
  int multiprocessors = 0;
  const colli_cu_result result = cuda->device_get_attribute(
      &multiprocessors, COLLI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, p->device);
  if (result != COLLI_CUDA_SUCCESS)
    return refuse(cuda, p, "cuDeviceGetAttribute", result, "", error);
  p->most_blocks = BLOCKS_EACH * (uint64_t)(multiprocessors > 0 ? multiprocessors : 1);
  return COLL_OK;
}

coll_status colli_gpu_programs_load(const colli_cuda *cuda, int device, colli_gpu_programs **out,
                                    coll_error *error) {
  *out = NULL;
  if (!cuda->launch_kernel)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "the driver has no cuLaunchKernelEx; install an NVIDIA driver for CUDA "
                           "11.6 or newer");
  colli_gpu_programs *p = calloc(1, sizeof(*p));
  if (!p)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for libcoll's kernels");
  p->device = device;
  coll_status status = set_size(cuda, p, error);
  if (status == COLL_OK)
    status = load_all(cuda, p, error);
  if (status == COLL_OK)
    *out = p;
  else
    colli_gpu_programs_free(cuda, p);
  return status;
}

void colli_gpu_programs_free(const colli_cuda *cuda, colli_gpu_programs *programs) {
  if (programs)
    unload(cuda, programs);
  free(programs);
}

const char *colli_gpu_programs_origin(const colli_gpu_programs *programs) {
  return programs->origin;
}

/* ---- launch ---------------------------------------------------------------------------------- */

/* Puts a kernel into a stream; `args` is its only argument. */
static coll_status launch(const colli_cuda *cuda, const colli_gpu_programs *p,
                          colli_cu_function function, colli_cu_launch_config config, void *args,
                          coll_error *error) {
  const colli_cu_result result = cuda->launch_kernel(&config, function, &args, NULL);
  return colli_cuda_status(cuda, error, "cuLaunchKernelEx", p->device, result);
}

/* The size of a launch of which `work` threads could each do a part. */
static colli_cu_launch_config size_for(const colli_gpu_programs *p, uint64_t work,
                                       colli_cu_stream stream) {
  /* First more blocks, then longer ones: little work is done sooner by many multiprocessors. */
  const uint64_t few = work < FEW_THREADS ? work : FEW_THREADS;
  uint64_t threads = (work + p->most_blocks - 1) / p->most_blocks;
  threads = threads > few ? threads : few;
  threads = threads < COLL_GPU_THREADS ? (threads + WARP - 1) / WARP * WARP : COLL_GPU_THREADS;
  uint64_t blocks = (work + threads - 1) / threads;
  blocks = blocks < p->most_blocks ? blocks : p->most_blocks;
  return (colli_cu_launch_config){
      .grid = {(uint32_t)blocks, 1, 1}, .block = {(uint32_t)threads, 1, 1}, .stream = stream};
}

bool colli_gpu_folds(coll_type type, coll_op op, bool wide) {
  char name[COLL_GPU_NAME_BYTES];
  return coll_gpu_fold_name(name, type, op, wide);
}

bool colli_gpu_folds_at(coll_type type, uint64_t addresses) {
  const size_t bytes = colli_type_bytes(type);
  return addresses % (bytes < 4 ? bytes : 4) == 0;
}

/* Puts addresses into the arguments, and those that do not fit to *table, which moves on. */
static void place(const uint64_t *from, uint32_t count, uint64_t args[COLL_GPU_PLACES],
                  uint64_t **table) {
  const uint32_t few = count < COLL_GPU_PLACES ? count : COLL_GPU_PLACES;
  memcpy(args, from, few * sizeof(*from));
  for (uint32_t i = few; i < count; i++)
    *(*table)++ = from[i];
}

coll_status colli_gpu_launch_fold(const colli_cuda *cuda, const colli_gpu_programs *programs,
                                  colli_cu_stream stream, const colli_gpu_fold_call *fold,
                                  coll_error *error) {
  COLLI_ASSERT(colli_gpu_folds(fold->type, fold->op, fold->wide));
  COLLI_ASSERT(fold->ninputs > 0 && fold->noutputs > 0 && fold->nranks > 0);
  const uint32_t more_inputs = colli_gpu_fold_words(fold->ninputs, 0);
  struct coll_gpu_fold args = {.inputs = fold->ninputs,
                               .outputs = fold->noutputs,
                               .guard = fold->guard,
                               .more_in = fold->table_at,
                               .more_out = fold->table_at + more_inputs * sizeof(uint64_t)};
  uint64_t or_of = 0, and_of = UINT64_MAX;
  for (uint32_t i = 0; i < fold->ninputs + fold->noutputs; i++) {
    const uint64_t at = i < fold->ninputs ? fold->inputs[i] : fold->outputs[i - fold->ninputs];
    or_of |= at;
    and_of &= at;
  }
  COLLI_ASSERT(colli_gpu_folds_at(fold->type, or_of));
  if (fold->count == 0)
    return COLL_OK;
  uint64_t *table = fold->table;
  place(fold->inputs, fold->ninputs, args.in, &table);
  place(fold->outputs, fold->noutputs, args.out, &table);
  coll_gpu_fold_split(&args, fold->count, (uint32_t)colli_type_bytes(fold->type), or_of, and_of);
  if (fold->op == COLL_AVG)
    coll_gpu_fold_average(&args, coll_gpu_divides_of(fold->type), fold->nranks);
  const colli_cu_function function = programs->folds[fold->type][fold->op][fold->wide];
  const uint64_t work = args.vectors + args.singles;
  return launch(cuda, programs, function, size_for(programs, work, stream), &args, error);
}

/* How many threads can share a piece: it is copied by the widest unit that suits both addresses. */
static uint64_t threads_of(const struct coll_gpu_piece *piece) {
  const uint64_t differ = piece->to ^ piece->from;
  const uint64_t unit = differ % 16 == 0 ? 16 : differ % 4 == 0 ? 4 : 1;
  return (piece->bytes + unit - 1) / unit;
}

coll_status colli_gpu_launch_copy(const colli_cuda *cuda, const colli_gpu_programs *programs,
                                  colli_cu_stream stream, const colli_gpu_copy_call *copy,
                                  coll_error *error) {
  struct coll_gpu_copy args = {.pieces = copy->count, .more = copy->table_at, .guard = copy->guard};
  uint64_t work = 0; /* of the longest piece: all threads share each */
  for (uint32_t i = 0; i < copy->count; i++) {
    const uint64_t threads = threads_of(&copy->pieces[i]);
    work = threads > work ? threads : work;
    *(i < COLL_GPU_PLACES ? &args.piece[i] : &copy->table[i - COLL_GPU_PLACES]) = copy->pieces[i];
  }
  if (work == 0)
    return COLL_OK;
  return launch(cuda, programs, programs->copy, size_for(programs, work, stream), &args, error);
}

coll_status colli_gpu_launch_meet(const colli_cuda *cuda, const colli_gpu_programs *programs,
                                  colli_cu_stream stream, const struct coll_gpu_meet *meet,
                                  coll_error *error) {
  struct coll_gpu_meet args = *meet;
  const uint32_t threads = meet->nranks < COLL_GPU_THREADS ? meet->nranks : COLL_GPU_THREADS;
  const colli_cu_launch_config config = {
      .grid = {1, 1, 1}, .block = {(threads + WARP - 1) / WARP * WARP, 1, 1}, .stream = stream};
  return launch(cuda, programs, programs->meet, config, &args, error);
}
