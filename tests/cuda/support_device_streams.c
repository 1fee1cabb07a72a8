/* support_device_streams.c: streams of (fake) GPUs, graphs, and what holds a stream. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "support_device.h"
#include "support_device_inner.h"

enum { MOST_GATES = 4096 };

/* A word that a kernel or a stream waits for, and the place of the kernel's result. */
struct device_gate {
  uint32_t word[2];
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static colli_cu_module modules[MOST_DEVICES]; /* of kernels; made when they are needed */
static colli_cu_stream copies[MOST_DEVICES];  /* made when they are needed */
static device_gate *gates;                    /* MOST_GATES in pinned memory */
static int ngates;                            /* how many are taken */

/* The module of this thread's device. */
static colli_cu_module module_here(void) {
  int device;
  OK(device_driver()->cuda.ctx_get_device(&device));
  pthread_mutex_lock(&lock);
  if (!modules[device])
    OK(device_driver()->cuda.module_load(&modules[device], use_text, 0, NULL, NULL));
  pthread_mutex_unlock(&lock);
  return modules[device];
}

colli_cu_stream device_copies(void) {
  int device;
  OK(device_driver()->cuda.ctx_get_device(&device));
  pthread_mutex_lock(&lock);
  if (!copies[device])
    copies[device] = use_stream(device_driver());
  pthread_mutex_unlock(&lock);
  return copies[device];
}

void device_prepare(void) {
  pthread_mutex_lock(&lock);
  if (!gates) {
    void *memory;
    OK(device_driver()->cuda.mem_host_alloc(&memory, MOST_GATES * sizeof(*gates),
                                            COLLI_CU_MEMHOSTALLOC_PORTABLE |
                                                COLLI_CU_MEMHOSTALLOC_DEVICEMAP));
    gates = memset(memory, 0, MOST_GATES * sizeof(*gates));
  }
  pthread_mutex_unlock(&lock);
  if (device_is_real()) {
    (void)module_here();
    (void)device_copies();
  }
}

/* Streams of a real driver that the threads which made them have left. */
typedef struct left_stream {
  colli_cu_stream stream;
  int device;
  struct left_stream *next;
} left_stream;
static left_stream *left_streams;
static pthread_key_t own_streams; /* a thread's left_stream list */
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void leave_streams(void *list) {
  pthread_mutex_lock(&lock);
  for (left_stream *it = list, *next; it; it = next) {
    next = it->next;
    it->next = left_streams;
    left_streams = it;
  }
  pthread_mutex_unlock(&lock);
}

static void make_key(void) {
  CHECK(pthread_key_create(&own_streams, leave_streams) == 0);
}

void device_await(colli_cu_stream stream) {
  OK(device_driver()->cuda.stream_synchronize(stream));
}

/* One that is left, or a new one. */
static left_stream *find_stream(int device) {
  left_stream **at, *it;
  pthread_mutex_lock(&lock);
  for (at = &left_streams; *at && (*at)->device != device;)
    at = &(*at)->next;
  it = *at;
  if (it)
    *at = it->next;
  pthread_mutex_unlock(&lock);
  if (it)
    return it;
  it = malloc(sizeof(*it));
  *it = (left_stream){.stream = use_stream(device_driver()), .device = device};
  return it;
}

/* A real driver has few queues, in which streams that wait would hold up others: it gets as few
 * streams as possible. */
colli_cu_stream device_stream(void) {
  int device;
  if (!device_is_real())
    return use_stream(device_driver());
  OK(device_driver()->cuda.ctx_get_device(&device));
  pthread_once(&once, make_key);
  left_stream *it = find_stream(device);
  it->next = pthread_getspecific(own_streams);
  CHECK(pthread_setspecific(own_streams, it) == 0);
  return it->stream;
}

void device_stream_give(colli_cu_stream stream) {
  if (!device_is_real()) {
    OK(device_driver()->cuda.stream_destroy(stream));
    return;
  }
  left_stream *list = pthread_getspecific(own_streams), **at = &list;
  while (*at && (*at)->stream != stream)
    at = &(*at)->next;
  left_stream *it = *at;
  CHECK(it);
  *at = it->next;
  CHECK(pthread_setspecific(own_streams, list) == 0);
  it->next = NULL;
  leave_streams(it);
}

void device_capture(colli_cu_stream stream) {
  OK(device_driver()->stream_begin_capture(stream, COLLI_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

device_graph device_capture_end(colli_cu_stream stream) {
  device_graph it;
  OK(device_driver()->stream_end_capture(stream, &it.graph));
  OK(device_driver()->graph_instantiate(&it.exec, it.graph, 0));
  return it;
}

void device_launch(const device_graph *graph, colli_cu_stream stream) {
  OK(device_driver()->graph_launch(graph->exec, stream));
}

void device_graph_free(const device_graph *graph) {
  OK(device_driver()->graph_exec_destroy(graph->exec));
  OK(device_driver()->graph_destroy(graph->graph));
}

void device_follow(colli_cu_stream stream, colli_cu_stream other) {
  colli_cu_event event;
  OK(device_driver()->cuda.event_create(&event, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(device_driver()->cuda.event_record(event, other));
  OK(device_driver()->cuda.stream_wait_event(stream, event, 0));
  OK(device_driver()->cuda.event_destroy(event));
}

void device_call(colli_cu_stream stream, colli_cu_host_fn function, void *arg) {
  OK(device_driver()->cuda.launch_host_func(stream, function, arg));
}

/* A closed gate, and its address on the device. */
static device_gate *make_gate(uint64_t *at) {
  pthread_mutex_lock(&lock);
  CHECK(ngates < MOST_GATES);
  device_gate *gate = &gates[ngates++];
  pthread_mutex_unlock(&lock);
  OK(device_driver()->cuda.mem_host_get_device_pointer(at, gate, 0));
  return gate;
}

/* Launches a kernel of one thread. */
static void launch(const char *name, colli_cu_stream stream, void **arguments) {
  const colli_cu_launch_config config = {.grid = {1, 1, 1}, .block = {1, 1, 1}, .stream = stream};
  colli_cu_function function;
  OK(device_driver()->cuda.module_get_function(&function, module_here(), name));
  OK(device_driver()->cuda.launch_kernel(&config, function, arguments, NULL));
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
  CHECK(device_driver()->cuda.stream_synchronize(stream) != COLLI_CUDA_SUCCESS);
}

device_gate *device_stop(colli_cu_stream stream) {
  uint64_t flag;
  device_gate *gate = make_gate(&flag);
  OK(device_driver()->cuda.stream_wait_value_32(stream, flag, 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  return gate;
}

void device_open(device_gate *gate) {
  __atomic_store_n(&gate->word[0], 1u, __ATOMIC_SEQ_CST);
}
