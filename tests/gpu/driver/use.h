/* use.h: what tests of the fake driver share: they load it, launch kernels and talk to children. */
#ifndef TESTS_GPU_USE_H
#define TESTS_GPU_USE_H

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/gpu/cuda_load.h"

#include "tests/gpu/driver/extra.h"

#define FAKE_GPU COLL_PLUGINS "/fake_gpu.so"

/*
 * Kernels of these tests, for one thread unless said otherwise:
 *   spin(flag, out)    waits until *flag is not 0, then *out = 1
 *   signal(flag)       *flag = 1, after all before
 *   poke(at, value)    *at = value
 *   add(at, value)     *at += value, as an atomic operation
 *   shift(to, from)    16 bytes by one load and one store
 *   pass(data, flag, out)  for two blocks: one writes 41 to data[32], then 1 to *flag, and nothing
 *                      orders the two; the other waits for the flag, then *out = data[32]
 *   stop()             traps
 */
static const char use_text[] =
    ".version 7.0\n.target sm_70\n.address_size 64\n"
    ".visible .entry spin(.param .u64 flag, .param .u64 out)\n{\n"
    ".reg .pred %p<2>; .reg .b32 %r<4>; .reg .b64 %d<4>;\n"
    "ld.param.u64 %d1, [flag]; ld.param.u64 %d2, [out];\n"
    "AGAIN: ld.acquire.sys.global.u32 %r1, [%d1]; setp.eq.u32 %p1, %r1, 0; @%p1 bra AGAIN;\n"
    "st.global.u32 [%d2], 1; ret;\n}\n"
    ".visible .entry signal(.param .u64 flag)\n{\n"
    ".reg .b64 %d<2>; ld.param.u64 %d1, [flag]; st.release.sys.global.u32 [%d1], 1; ret;\n}\n"
    ".visible .entry poke(.param .u64 at, .param .u32 value)\n{\n"
    ".reg .b32 %r<2>; .reg .b64 %d<2>; ld.param.u64 %d1, [at]; ld.param.u32 %r1, [value];\n"
    "st.global.u32 [%d1], %r1; ret;\n}\n"
    ".visible .entry add(.param .u64 at, .param .u32 value)\n{\n"
    ".reg .b32 %r<2>; .reg .b64 %d<2>; ld.param.u64 %d1, [at]; ld.param.u32 %r1, [value];\n"
    "red.relaxed.sys.global.add.u32 [%d1], %r1; ret;\n}\n"
    ".visible .entry shift(.param .u64 to, .param .u64 from)\n{\n"
    ".reg .b32 %r<5>; .reg .b64 %d<3>; ld.param.u64 %d1, [to]; ld.param.u64 %d2, [from];\n"
    "ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%d2];\n"
    "st.global.v4.u32 [%d1], {%r1, %r2, %r3, %r4}; ret;\n}\n"
    ".visible .entry pass(.param .u64 data, .param .u64 flag, .param .u64 out)\n{\n"
    ".reg .pred %p<3>; .reg .b32 %r<4>; .reg .b64 %d<4>;\n"
    "ld.param.u64 %d1, [data]; ld.param.u64 %d2, [flag]; ld.param.u64 %d3, [out];\n"
    "mov.u32 %r1, %ctaid.x; setp.eq.u32 %p1, %r1, 1; @%p1 bra READER;\n"
    "st.global.u32 [%d1+128], 41; st.relaxed.gpu.global.u32 [%d2], 1; ret;\n"
    "READER: ld.relaxed.gpu.global.u32 %r2, [%d2]; setp.eq.u32 %p2, %r2, 0; @%p2 bra READER;\n"
    "ld.global.u32 %r3, [%d1+128]; st.global.u32 [%d3], %r3; ret;\n}\n"
    ".visible .entry stop()\n{\ntrap;\nret;\n}\n";

/* The driver with a device, its context and a module of the kernels above. */
typedef struct use {
  colli_cuda cuda;
  colli_cu_context context;
  colli_cu_module module;
  void (*rounds)(uint64_t rounds);
  void (*await_held_back)(void);
  uint64_t (*take_races)(void);
  void *(*place)(colli_cu_deviceptr at);
#define USE_FIELD(field, name, suffix, version, arguments) colli_cu_result(*field) arguments;
  FAKE_CUDA_EXTRA(USE_FIELD)
#undef USE_FIELD
} use;

/* Ends the program unless `ok`. Not an assertion of Criterion: children and plain programs use it.
 */
static inline void use_check(bool ok, const char *what, const char *file, int line) {
  if (ok)
    return;
  fprintf(stderr, "%s:%d: not so: %s\n", file, line, what);
  abort();
}

/* The address of memory as devices have it. */
static colli_cu_deviceptr (*use_address)(const volatile void *place);

#define CHECK(condition) use_check(condition, #condition, __FILE__, __LINE__)
#define OK(call)         CHECK((call) == COLLI_CUDA_SUCCESS)

/* Sets a field to the library's function of a name. */
#define USE_FIND(field, name)                                                                      \
  do {                                                                                             \
    void *symbol = dlsym(u->cuda.handle, name);                                                    \
    use_check(symbol, name, __FILE__, __LINE__);                                                   \
    memcpy(&u->field, &symbol, sizeof(symbol));                                                    \
  } while (0)

/* Loads what any driver has. */
static inline void use_open(use *u, const char *library) {
  coll_error error = {.size = sizeof(error)};
  memset(u, 0, sizeof(*u));
  const bool loaded = colli_cuda_load(&u->cuda, library, &error) == COLL_OK;
  use_check(loaded, error.message, __FILE__, __LINE__);
#define USE_EXTRA(field, name, suffix, version, arguments) USE_FIND(field, #name #suffix);
  FAKE_CUDA_EXTRA(USE_EXTRA)
#undef USE_EXTRA
}

/* Loads the fake driver. */
static inline void use_load(use *u) {
  use_open(u, FAKE_GPU);
  USE_FIND(rounds, "fake_gpu_rounds");
  USE_FIND(await_held_back, "fake_gpu_await_held_back");
  USE_FIND(take_races, "fake_gpu_take_races");
  USE_FIND(place, "fake_gpu_place");
  void *address = dlsym(u->cuda.handle, "fake_gpu_address");
  CHECK(address);
  memcpy(&use_address, &address, sizeof(address));
}

/* Makes a device's context current. */
static inline void use_device(use *u, int device) {
  OK(u->cuda.primary_ctx_retain(&u->context, device));
  OK(u->cuda.ctx_set_current(u->context));
}

/* Loads the driver and the module, on device 0. */
static inline void use_start(use *u) {
  use_load(u);
  use_device(u, 0);
  OK(u->cuda.module_load(&u->module, use_text, 0, NULL, NULL));
}

/* A stream that does not wait for the default one. */
static inline colli_cu_stream use_stream(use *u) {
  colli_cu_stream stream;
  OK(u->cuda.stream_create(&stream, COLLI_CU_STREAM_NON_BLOCKING, 0));
  return stream;
}

/* Where tests can look at memory of a device directly, also with GPU_HIDDEN. */
static inline uint32_t *use_place(use *u, colli_cu_deviceptr at) {
  return u->place(at);
}

/* Memory of the device, set to 0, at the place where tests look at it. */
static inline uint32_t *use_memory(use *u, size_t count) {
  colli_cu_deviceptr at;
  OK(u->cuda.mem_alloc(&at, count * sizeof(uint32_t)));
  return memset(use_place(u, at), 0, count * sizeof(uint32_t));
}

/* Launches a kernel with `blocks` blocks of `threads` threads. */
static inline colli_cu_result use_launch(use *u, const char *name, const uint32_t size[2],
                                         colli_cu_stream stream, void **arguments) {
  colli_cu_function function;
  const colli_cu_launch_config config = {
      .grid = {size[0], 1, 1}, .block = {size[1], 1, 1}, .stream = stream};
  OK(u->cuda.module_get_function(&function, u->module, name));
  return u->cuda.launch_kernel(&config, function, arguments, NULL);
}

/* Launches a kernel whose arguments are two addresses, or an address and a number. */
static inline void use_two(use *u, const char *name, colli_cu_stream stream, const void *first,
                           uint64_t second) {
  uint64_t at = use_address(first);
  const uint32_t one[2] = {1, 1};
  OK(use_launch(u, name, one, stream, (void *[]){&at, &second}));
}

/* Sets a flag that a kernel or a stream waits for. */
static inline void use_set(uint32_t *flag, uint32_t value) {
  __atomic_store_n(flag, value, __ATOMIC_SEQ_CST);
}

#endif
