/* support_device.c: the driver of (fake) GPUs, its devices and their memory. */
#include "support_device.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_device_inner.h"

#define REAL_GPU "libcuda.so.1"

enum { VIEWS_BYTES = 32 << 20 };

static use driver;
static uint64_t (*held)(void), (*races)(void);
static pthread_once_t once = PTHREAD_ONCE_INIT;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *views; /* what is left of pinned memory for views */
static size_t views_left;

/* A function of the fake driver that no real one has. */
static void find(void *handle, const char *name, uint64_t (**function)(void)) {
  void *symbol = dlsym(handle, name);
  CHECK(symbol);
  memcpy(function, &symbol, sizeof(symbol));
}

bool device_is_real(void) {
  const char *gpu = getenv("TEST_GPU");
  CHECK(!gpu || strcmp(gpu, "real") == 0 || strcmp(gpu, "fake") == 0);
  return gpu && strcmp(gpu, "real") == 0;
}

/* A real driver's GPUs. It is asked in a child: this process may fork ranks that initialise it. */
static int ask_count(void) {
  int status = 0;
  const pid_t child = fork();
  if (child == 0) {
    use u;
    int count = 0;
    use_open(&u, REAL_GPU);
    _exit(u.cuda.device_get_count(&count) == COLLI_CUDA_SUCCESS ? count : 0);
  }
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) > 0 /* there is a GPU */);
  const int count = WEXITSTATUS(status);
  return count < MOST_DEVICES ? count : MOST_DEVICES;
}

int device_count(void) {
  static int count; /* of this process and those that it forks */
  if (!device_is_real())
    return MOST_DEVICES;
  pthread_mutex_lock(&lock);
  if (count == 0)
    count = ask_count();
  pthread_mutex_unlock(&lock);
  return count;
}

/* As many queues as it can have: streams of threads that wait for each other must not share one. No
 * kernel is loaded at its first launch, when others may be waiting for it. */
static void load_real(void) {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", 0);
  setenv("CUDA_MODULE_LOADING", "EAGER", 0);
  (void)device_count();
  CHECK(dlopen(REAL_GPU, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE));
}

void device_load(void) {
  if (device_is_real()) {
    load_real();
    return;
  }
  setenv("GPU_DEVICES", "16", 0);
  setenv("GPU_HIDDEN", "1", 0);
  void *handle = dlopen(FAKE_GPU, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  CHECK(handle);
  find(handle, "fake_gpu_held", &held);
  find(handle, "fake_gpu_take_races", &races);
}

static void load(void) {
  device_load();
  if (device_is_real())
    use_open(&driver, REAL_GPU);
  else
    use_load(&driver);
}

use *device_driver(void) {
  pthread_once(&once, load);
  return &driver;
}

const colli_cuda *device_use(int device) {
  colli_cu_context context;
  (void)device_driver();
  OK(driver.cuda.primary_ctx_retain(&context, device % device_count()));
  OK(driver.cuda.ctx_set_current(context));
  device_prepare();
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
  if (i == MODE_SPIN && device_count() < MOST_DEVICES)
    return NULL;
  devices = modes[i].devices;
  setenv("COLL_GPU_MODE", modes[i].name, 1);
  return modes[i].name;
}

int device_of_rank(int rank) {
  return rank % devices % device_count();
}

coll_status device_share(coll_comm *comm) {
  const char *mode = getenv("COLL_GPU_MODE");
  int nranks = 0;
  coll_comm_nranks(comm, &nranks);
  return nranks == 1 || (mode && strcmp(mode, "staged") == 0) ? COLL_OK : coll_comm_use_gpu(comm);
}

/* Memory of a real driver. It gets none back before the process ends, because it would wait for all
 * that the GPU does, also for calls of other ranks that wait for this one. */
typedef struct block {
  colli_cu_deviceptr at;
  size_t bytes;
  int device;
  bool free;
  struct block *next;
} block;
static block *blocks;

/* A free block of this length on the calling thread's device, or a new one. */
static void *take_block(size_t bytes) {
  int device;
  block *it;
  OK(driver.cuda.ctx_get_device(&device));
  pthread_mutex_lock(&lock);
  for (it = blocks; it && !(it->free && it->bytes == bytes && it->device == device);)
    it = it->next;
  if (!it) {
    it = malloc(sizeof(*it));
    *it = (block){.bytes = bytes, .device = device, .next = blocks};
    OK(driver.cuda.mem_alloc(&it->at, bytes));
    blocks = it;
  }
  it->free = false;
  pthread_mutex_unlock(&lock);
  return (void *)it->at;
}

static void give_block(colli_cu_deviceptr at) {
  block *it;
  pthread_mutex_lock(&lock);
  for (it = blocks; it && it->at != at;)
    it = it->next;
  CHECK(it && !it->free);
  it->free = true;
  pthread_mutex_unlock(&lock);
}

static void *take(size_t bytes) {
  colli_cu_deviceptr at;
  if (device_is_real())
    return take_block(bytes ? bytes : 1);
  OK(driver.cuda.mem_alloc(&at, bytes ? bytes : 1));
  return (void *)at;
}

static void give(void *memory) {
  if (device_is_real())
    give_block((colli_cu_deviceptr)memory);
  else
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
  CHECK(!device_is_real());
  return use_place(&driver, (colli_cu_deviceptr)memory);
}

/* A real driver's copy, in a stream or at once. */
static void copy_to(void *memory, const void *from, size_t bytes, colli_cu_stream stream) {
  colli_cu_stream in = stream ? stream : device_copies();
  if (bytes > 0)
    OK(driver.cuda.memcpy_htod_async((colli_cu_deviceptr)memory, from, bytes, in));
  if (!stream)
    OK(driver.cuda.stream_synchronize(in));
}

static void copy_from(void *to, const void *memory, size_t bytes, colli_cu_stream stream) {
  colli_cu_stream in = stream ? stream : device_copies();
  if (bytes > 0)
    OK(driver.cuda.memcpy_dtoh_async(to, (colli_cu_deviceptr)memory, bytes, in));
  if (!stream)
    OK(driver.cuda.stream_synchronize(in));
}

/* The fake does not copy: most of the time would go to its queues. */
void device_write(void *memory, const void *from, size_t bytes) {
  if (device_is_real())
    copy_to(memory, from, bytes, NULL);
  else
    memcpy(device_place(memory), from, bytes);
}

void device_read(void *to, const void *memory, size_t bytes) {
  if (device_is_real())
    copy_from(to, memory, bytes, NULL);
  else
    memcpy(to, device_place(memory), bytes);
}

/* Pinned memory for the process's life, as other memory of the tests on a real driver. */
static void *take_view(size_t bytes) {
  const size_t rounded = (bytes + 255) / 256 * 256;
  void *memory;
  pthread_mutex_lock(&lock);
  if (views_left < rounded) {
    views_left = rounded > VIEWS_BYTES ? rounded : VIEWS_BYTES;
    OK(driver.cuda.mem_host_alloc(&memory, views_left, COLLI_CU_MEMHOSTALLOC_PORTABLE));
    views = memory;
  }
  memory = views;
  views += rounded;
  views_left -= rounded;
  pthread_mutex_unlock(&lock);
  return memory;
}

device_view device_look(void *memory, size_t bytes) {
  return (device_view){memory, device_is_real() ? take_view(bytes) : device_place(memory), bytes};
}

void device_push(const device_view *view, colli_cu_stream stream) {
  if (device_is_real())
    copy_to(view->memory, view->seen, view->bytes, stream);
}

void device_pull(const device_view *view, colli_cu_stream stream) {
  if (device_is_real())
    copy_from(view->seen, view->memory, view->bytes, stream);
}

void device_fill(int32_t *vector, size_t count, int32_t value) {
  int32_t *values = malloc(count * sizeof(*values) + 1);
  for (size_t i = 0; i < count; i++)
    values[i] = value;
  device_write(vector, values, count * sizeof(*values));
  free(values);
}

int32_t *device_vector(size_t count, int32_t value) {
  int32_t *vector = take(count * sizeof(*vector));
  device_fill(vector, count, value);
  return vector;
}

bool device_has(const int32_t *vector, size_t count, int32_t value) {
  int32_t *values = malloc(count * sizeof(*values) + 1);
  size_t right = 0;
  device_read(values, vector, count * sizeof(*values));
  while (right < count && values[right] == value)
    right++;
  free(values);
  return right == count;
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

static void await(void *stream) {
  device_await(stream);
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

/* Of LeakSanitizer, if it is there. */
void __lsan_disable(void) __attribute__((weak));

void device_may_leak(void) {
  if (__lsan_disable)
    __lsan_disable();
}

uint64_t device_take_races(void) {
  return device_is_real() ? 0 : races();
}

uint64_t device_held(void) {
  return device_is_real() ? 0 : held();
}

const case_device device_memory = {take, give, device_write, device_read, await};
const case_device device_odd_memory = {take_odd, give_odd, device_write, device_read, await};
const case_device device_far_memory = {take_far, give, device_write, device_read, await};
