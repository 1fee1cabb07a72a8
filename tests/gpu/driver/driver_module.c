/* driver_module.c: modules, functions, launches. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { MOST_THREADS = 1024, USUAL_SHARED = 48 << 10, MOST_SHARED = 160 << 10 };

/* Writes why a module is refused to the log that the caller provides. */
static void tell(const ptx_error *error, unsigned count, const colli_cu_jit_option *options,
                 void **values) {
  char *log = NULL;
  size_t bytes = 0;
  for (unsigned i = 0; i < count; i++) {
    if (options[i] == COLLI_CU_JIT_ERROR_LOG_BUFFER)
      log = values[i];
    if (options[i] == COLLI_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES)
      bytes = (size_t)(uintptr_t)values[i];
  }
  if (log && bytes)
    snprintf(log, bytes, "line %d: %s", error->line, error->message);
}

/* Makes the functions of a module. */
static bool add_functions(driver_module *module) {
  const int count = module->code->nkernels;
  module->functions = calloc((size_t)count + 1, sizeof(*module->functions));
  for (int i = 0; module->functions && i < count; i++)
    module->functions[i] = (driver_function){module, &module->code->kernels[i], USUAL_SHARED};
  return module->functions != NULL;
}

/* Makes a module's code. */
static colli_cu_result make_code(const void *image, ptx_module **code, int *arch,
                                 ptx_error *error) {
  if (driver_is_sass(image))
    return driver_load_sass(image, code, arch);
  *arch = driver_get()->settings.arch;
  *code = ptx_parse(image, strlen(image), driver_get()->settings.split, error);
  return *code ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_INVALID_PTX;
}

colli_cu_result cuModuleLoadDataEx(colli_cu_module *handle, const void *image, unsigned count,
                                   colli_cu_jit_option *options, void **values) {
  driver_context *context;
  ptx_error error;
  ptx_module *code;
  int arch;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  result = make_code(image, &code, &arch, &error);
  if (result == COLLI_CUDA_ERROR_INVALID_PTX)
    tell(&error, count, options, values);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  driver_module *module = driver_object_add(MODULE, sizeof(*module), context);
  if (!module) {
    ptx_free(code);
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  }
  module->code = code;
  module->arch = arch;
  if (!add_functions(module)) {
    driver_object_drop(&module->object, true);
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  }
  *handle = (colli_cu_module)module;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuModuleUnload(colli_cu_module handle) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_module *module = driver_object_find(MODULE, handle);
  if (!module)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  driver_object_drop(&module->object, true);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuModuleGetFunction(colli_cu_function *function, colli_cu_module handle,
                                    const char *name) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_module *module = driver_object_find(MODULE, handle);
  if (!module)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  const ptx_kernel *kernel = ptx_find(module->code, name);
  if (!kernel)
    return driver_leave(COLLI_CUDA_ERROR_NOT_FOUND);
  *function = (colli_cu_function)&module->functions[kernel - module->code->kernels];
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* The function of a handle; NULL if there is none. */
static driver_function *find_function(colli_cu_function handle) {
  for (driver_object *o = driver_get()->objects; o; o = o->next) {
    driver_module *module = (driver_module *)o;
    if (o->kind != MODULE || o->destroyed)
      continue;
    for (int i = 0; i < module->code->nkernels; i++)
      if ((colli_cu_function)&module->functions[i] == handle)
        return &module->functions[i];
  }
  return NULL;
}

/* Begins a call about a function. */
static colli_cu_result enter_function(colli_cu_function handle, driver_function **function) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *function = find_function(handle);
  return *function ? COLLI_CUDA_SUCCESS : driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
}

colli_cu_result cuFuncLoad(colli_cu_function handle) {
  driver_function *function;
  colli_cu_result result = enter_function(handle, &function);
  return result != COLLI_CUDA_SUCCESS ? result : driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuFuncGetAttribute(int *value, colli_cu_function_attribute attribute,
                                   colli_cu_function handle) {
  driver_function *function;
  colli_cu_result result = enter_function(handle, &function);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (attribute == COLLI_CU_FUNC_ATTRIBUTE_BINARY_VERSION)
    *value = function->module->arch;
  else if (attribute == COLLI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES)
    *value = function->most_dynamic_bytes;
  else
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuFuncSetAttribute(colli_cu_function handle, colli_cu_function_attribute attribute,
                                   int value) {
  driver_function *function;
  colli_cu_result result = enter_function(handle, &function);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (attribute != COLLI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES || value < 0 ||
      (unsigned)value + function->kernel->shared_bytes > MOST_SHARED)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  function->most_dynamic_bytes = value;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* The most threads that a block of a kernel may have. */
static int most_threads(const ptx_kernel *kernel) {
  return kernel->max_threads && kernel->max_threads < MOST_THREADS ? kernel->max_threads
                                                                   : MOST_THREADS;
}

colli_cu_result cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, colli_cu_function handle,
                                                            int threads, size_t shared_bytes) {
  driver_function *function;
  colli_cu_result result = enter_function(handle, &function);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (threads <= 0)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  *blocks = threads <= most_threads(function->kernel) &&
            shared_bytes <= (size_t)function->most_dynamic_bytes;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* The product of three sizes; 0 if it is impossible. */
static uint64_t product(const uint32_t sizes[3], uint64_t most) {
  uint64_t all = 1;
  for (int i = 0; i < 3; i++)
    all = sizes[i] > most ? 0 : all * sizes[i] > most ? 0 : all * sizes[i];
  return all;
}

/* Whether a launch is possible. */
static colli_cu_result check_launch(const colli_cu_launch_config *config,
                                    const driver_function *function, bool cooperative) {
  const uint64_t blocks = product(config->grid, INT32_MAX);
  const uint64_t threads = product(config->block, (uint64_t)most_threads(function->kernel));
  if (!blocks || !threads || config->shared_bytes > (uint32_t)function->most_dynamic_bytes)
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  if (cooperative && blocks > (uint64_t)driver_get()->settings.resident)
    return COLLI_CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
  return COLLI_CUDA_SUCCESS;
}

/* Appends a launch to a stream. */
static colli_cu_result submit(driver_stream *stream, const colli_cu_launch_config *config,
                              driver_function *function, void **arguments, bool cooperative) {
  const ptx_kernel *kernel = function->kernel;
  uint8_t *params = calloc(1, (size_t)kernel->param_bytes + 1);
  if (!params)
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  for (int i = 0; i < kernel->nparams; i++)
    memcpy(params + kernel->params[i].offset, arguments[i], kernel->params[i].bytes);
  driver_op op = {.kind = KERNEL,
                  .function = function,
                  .cooperative = cooperative,
                  .params = params,
                  .launch = {.module = function->module->code,
                             .kernel = kernel,
                             .params = params,
                             .dynamic_bytes = config->shared_bytes,
                             .device = stream->object.context->device}};
  memcpy(op.launch.grid, config->grid, sizeof(config->grid));
  memcpy(op.launch.block, config->block, sizeof(config->block));
  const colli_cu_result result = driver_submit(stream, &op);
  if (result != COLLI_CUDA_SUCCESS)
    free(params);
  return result;
}

/* Checks a launch and appends it to its stream. */
static colli_cu_result launch(const colli_cu_launch_config *config, colli_cu_function handle,
                              void **arguments, bool cooperative) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(config->stream, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_function *function = find_function(handle);
  if (!function || function->module->object.context != stream->object.context)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  if (function->kernel->nparams && !arguments)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  result = check_launch(config, function, cooperative);
  if (result == COLLI_CUDA_SUCCESS)
    result = submit(stream, config, function, arguments, cooperative);
  return driver_leave(result);
}

/* Reads the attributes of a launch; false if one is unknown. */
static bool read_attributes(const colli_cu_launch_config *config, bool *cooperative) {
  for (unsigned i = 0; i < config->attributes_count; i++) {
    const colli_cu_launch_attribute *attribute = &config->attributes[i];
    if (attribute->id == COLLI_CU_LAUNCH_ATTRIBUTE_COOPERATIVE)
      *cooperative = attribute->value.number;
    else if (attribute->id != COLLI_CU_LAUNCH_ATTRIBUTE_PRIORITY)
      return false;
  }
  return true;
}

colli_cu_result cuLaunchKernelEx(const colli_cu_launch_config *config, colli_cu_function function,
                                 void **arguments, void **extra) {
  bool cooperative = false;
  if (extra || !read_attributes(config, &cooperative)) {
    const colli_cu_result result = driver_enter();
    return result != COLLI_CUDA_SUCCESS ? result : driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  }
  return launch(config, function, arguments, cooperative);
}

colli_cu_result cuLaunchCooperativeKernel(colli_cu_function function, unsigned grid_x,
                                          unsigned grid_y, unsigned grid_z, unsigned block_x,
                                          unsigned block_y, unsigned block_z, unsigned shared_bytes,
                                          colli_cu_stream stream, void **arguments) {
  const colli_cu_launch_config config = {.grid = {grid_x, grid_y, grid_z},
                                         .block = {block_x, block_y, block_z},
                                         .shared_bytes = shared_bytes,
                                         .stream = stream};
  return launch(&config, function, arguments, true);
}
