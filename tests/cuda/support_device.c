/* support_device.c: memory and streams of the fake GPUs. */
#include "support_device.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/driver/use.h"

static use driver;
static uint64_t (*held)(void), (*races)(void);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static colli_cu_module modules[MOST_DEVICES]; /* of kernels; made when they are needed */

/* A function of the fake driver that no real one has. */
static void find(void *handle, const char *name, uint64_t (**function)(void)) {
  void *symbol = dlsym(handle, name);
  CHECK(symbol);
  memcpy(function, &symbol, sizeof(symbol));
}

void device_load(void) {
  setenv("GPU_DEVICES", "16", 0);
  setenv("GPU_HIDDEN", "1", 0);
  void *handle = dlopen(FAKE_GPU, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  CHECK(handle);
  find(handle, "fake_gpu_held", &held);
  find(handle, "fake_gpu_take_races", &races);
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

/* Modes, and how many devices ranks have there. */
static const struct {
  const char *name;
  int devices;
} modes[MODES] = {[MODE_STAGED] = {"staged", 2},
                  [MODE_ORDERED] = {"ordered", 2},
                  [MODE_ONE_GPU] = {"ordered", 1},
                  [MODE_SPIN] = {"spin", MOST_DEVICES},
                  [MODE_MEET] = {"meet", 1}};
static int devices = 2;

const char *device_mode(int i) {
  if (i >= MODES)
    return NULL;
  devices = modes[i].devices;
  setenv("COLL_GPU_MODE", modes[i].name, 1);
  return modes[i].name;
}

int device_of_rank(int rank) {
  return rank % devices;
}

coll_status device_share(coll_comm *comm) {
  const char *mode = getenv("COLL_GPU_MODE");
  int nranks = 0;
  coll_comm_nranks(comm, &nranks);
  return nranks == 1 || (mode && strcmp(mode, "staged") == 0) ? COLL_OK : coll_comm_use_gpu(comm);
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

/* Takes memory of the next device. */
static void *take_far(size_t bytes) {
  int device, count;
  colli_cu_context own, far;
  OK(driver.cuda.ctx_get_current(&own));
  OK(driver.cuda.ctx_get_device(&device));
  OK(driver.cuda.device_get_count(&count));
  const int next = (device + 1) % count;
  OK(driver.cuda.primary_ctx_retain(&far, next));
  OK(driver.cuda.ctx_set_current(far));
  void *memory = take(bytes);
  OK(driver.cuda.ctx_set_current(own));
  OK(driver.cuda.primary_ctx_release(next)); /* its owner is a rank that uses it */
  return memory;
}

void *device_place(const void *memory) {
  return use_place(&driver, (colli_cu_deviceptr)memory);
}

int32_t *device_vector(size_t count, int32_t value) {
  int32_t *vector = take(count * sizeof(*vector)), *at = device_place(vector);
  for (size_t i = 0; i < count; i++)
    at[i] = value;
  return vector;
}

bool device_has(const int32_t *vector, size_t count, int32_t value) {
  const int32_t *at = device_place(vector);
  for (size_t i = 0; i < count; i++)
    if (at[i] != value)
      return false;
  return true;
}

bool device_refused(const coll_comm *comm, coll_status got, coll_status want, const char *words) {
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  if (got == want && error.status == want && strstr(error.message, words))
    return true;
  fprintf(stderr, "%s instead of %s: %s\n", coll_status_name(got), coll_status_name(want),
          error.message);
  return false;
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

void device_capture(colli_cu_stream stream) {
  OK(driver.stream_begin_capture(stream, COLLI_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

device_graph device_capture_end(colli_cu_stream stream) {
  device_graph it;
  OK(driver.stream_end_capture(stream, &it.graph));
  OK(driver.graph_instantiate(&it.exec, it.graph, 0));
  return it;
}

void device_launch(const device_graph *graph, colli_cu_stream stream) {
  OK(driver.graph_launch(graph->exec, stream));
}

void device_graph_free(const device_graph *graph) {
  OK(driver.graph_exec_destroy(graph->exec));
  OK(driver.graph_destroy(graph->graph));
}

void device_follow(colli_cu_stream stream, colli_cu_stream other) {
  colli_cu_event event;
  OK(driver.cuda.event_create(&event, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(driver.cuda.event_record(event, other));
  OK(driver.cuda.stream_wait_event(stream, event, 0));
  OK(driver.cuda.event_destroy(event));
}

void device_call(colli_cu_stream stream, colli_cu_host_fn function, void *arg) {
  OK(driver.cuda.launch_host_func(stream, function, arg));
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

coll_status device_create(coll_comm *comm, coll_id *id, const coll_config *config,
                          coll_comm **created) {
  int rank, nranks;
  coll_status status = coll_comm_rank(comm, &rank);
  if (status == COLL_OK)
    status = coll_comm_nranks(comm, &nranks);
  if (status != COLL_OK)
    return status;
  device_use(device_of_rank(rank));
  if (rank == 0)
    status = coll_unique_id(id, NULL);
  if (status == COLL_OK)
    status = coll_barrier(comm);
  return status == COLL_OK ? coll_comm_create(created, id, nranks, rank, config) : status;
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

uint64_t device_take_races(void) {
  return races();
}

uint64_t device_held(void) {
  return held();
}

const case_device device_memory = {take, give, write_to, read_from, await};
const case_device device_odd_memory = {take_odd, give_odd, write_to, read_from, await};
const case_device device_far_memory = {take_far, give, write_to, read_from, await};
