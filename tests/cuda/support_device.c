/* support_device.c: memory and streams of the fake GPUs. */
#include "support_device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/driver/use.h"

enum { MOST_DEVICES = 16 };

static use driver;
static uint64_t (*held)(void);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static colli_cu_module modules[MOST_DEVICES]; /* of kernels; made when they are needed */

void device_load(void) {
  setenv("GPU_DEVICES", "2", 0);
  setenv("GPU_HIDDEN", "1", 0);
  void *handle = dlopen(FAKE_GPU, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  CHECK(handle);
  void *symbol = dlsym(handle, "fake_gpu_held");
  CHECK(symbol);
  memcpy(&held, &symbol, sizeof(symbol));
}

static void load(void) {
  device_load();
  use_load(&driver);
}

const colli_cuda *device_use(int device) {
  colli_cu_context context;
  pthread_once(&once, load);
  OK(driver.cuda.primary_ctx_retain(&context, device));
  OK(driver.cuda.ctx_set_current(context));
  return &driver.cuda;
}

static void *take(size_t bytes) {
  colli_cu_deviceptr at;
  OK(driver.cuda.mem_alloc(&at, bytes ? bytes : 1));
  return (void *)at;
}

static void give(void *memory) {
  OK(driver.cuda.mem_free((colli_cu_deviceptr)memory));
}

/* Memory of the device begins at a page. */
static void *take_odd(size_t bytes) {
  return (char *)take(bytes + 1) + 1;
}

static void give_odd(void *memory) {
  give((char *)memory - 1);
}

void *device_place(const void *memory) {
  return use_place(&driver, (colli_cu_deviceptr)memory);
}

/* Not by copies of the driver: most of the time would go to its queues. */
static void write_to(void *memory, const void *from, size_t bytes) {
  memcpy(device_place(memory), from, bytes);
}

static void read_from(void *to, const void *memory, size_t bytes) {
  memcpy(to, device_place(memory), bytes);
}

void device_await(colli_cu_stream stream) {
  OK(driver.cuda.stream_synchronize(stream));
}

static void await(void *stream) {
  device_await(stream);
}

colli_cu_stream device_stream(void) {
  return use_stream(&driver);
}

/* The module of this thread's device. */
static colli_cu_module module_here(void) {
  int device;
  OK(driver.cuda.ctx_get_device(&device));
  pthread_mutex_lock(&lock);
  if (!modules[device])
    OK(driver.cuda.module_load(&modules[device], use_text, 0, NULL, NULL));
  pthread_mutex_unlock(&lock);
  return modules[device];
}

/* A word of device memory that a kernel reads, and the place of its result. */
struct device_gate {
  uint32_t word[2];
};

/* A closed gate at an address of the device. */
static device_gate *make_gate(uint64_t *at) {
  void *memory = take(sizeof(device_gate));
  *at = (colli_cu_deviceptr)memory;
  return memset(device_place(memory), 0, sizeof(device_gate));
}

/* Launches a kernel of one thread. */
static void launch(const char *name, colli_cu_stream stream, void **arguments) {
  const colli_cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
  colli_cu_function function;
  OK(driver.cuda.module_get_function(&function, module_here(), name));
  OK(driver.cuda.launch_kernel(&config, function, arguments, NULL));
}

device_gate *device_hold(colli_cu_stream stream) {
  uint64_t flag;
  device_gate *gate = make_gate(&flag);
  uint64_t out = flag + sizeof(uint32_t);
  launch("spin", stream, (void *[]){&flag, &out});
  return gate;
}

void device_break(colli_cu_stream stream) {
  launch("stop", stream, NULL);
  CHECK(driver.cuda.stream_synchronize(stream) != COLLI_CUDA_SUCCESS);
}

device_gate *device_stop(colli_cu_stream stream) {
  uint64_t flag;
  device_gate *gate = make_gate(&flag);
  OK(driver.cuda.stream_wait_value_32(stream, flag, 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  return gate;
}

void device_open(device_gate *gate) {
  __atomic_store_n(&gate->word[0], 1u, __ATOMIC_SEQ_CST);
}

/* Of LeakSanitizer, if it is there. */
void __lsan_disable(void) __attribute__((weak));

void device_may_leak(void) {
  if (__lsan_disable)
    __lsan_disable();
}

uint64_t device_held(void) {
  return held();
}

const case_device device_memory = {take, give, write_to, read_from, await};
const case_device device_odd_memory = {take_odd, give_odd, write_to, read_from, await};
