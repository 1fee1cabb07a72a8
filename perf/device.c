/*
 * device.c: the few functions of CUDA's driver that coll_perf calls. They are looked up at run time
 * and declared here, so that one build runs with and without CUDA, and needs none of its headers.
 */
#include "device.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIBRARY "libcuda.so.1"
#define REMEDY  "or leave out --memory cuda"

/* CUDA_SUCCESS, CU_STREAM_NON_BLOCKING, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL */
enum { SUCCESS = 0, NON_BLOCKING = 1, THREAD_LOCAL = 1 };

typedef unsigned long long device_ptr;

/* Field, symbol, parameters. */
#define FUNCTIONS(X)                                                                               \
  X(init, cuInit, (unsigned flags))                                                                \
  X(error_name, cuGetErrorName, (int error, const char **name))                                    \
  X(get_count, cuDeviceGetCount, (int *count))                                                     \
  X(get, cuDeviceGet, (int *device, int ordinal))                                                  \
  X(retain, cuDevicePrimaryCtxRetain, (void **context, int device))                                \
  X(release, cuDevicePrimaryCtxRelease_v2, (int device))                                           \
  X(set_current, cuCtxSetCurrent, (void *context))                                                 \
  X(alloc, cuMemAlloc_v2, (device_ptr * memory, size_t bytes))                                     \
  X(free, cuMemFree_v2, (device_ptr memory))                                                       \
  X(write, cuMemcpyHtoDAsync_v2, (device_ptr to, const void *from, size_t bytes, void *stream))    \
  X(read, cuMemcpyDtoHAsync_v2, (void *to, device_ptr from, size_t bytes, void *stream))           \
  X(stream_create, cuStreamCreateWithPriority, (void **stream, unsigned flags, int priority))      \
  X(stream_destroy, cuStreamDestroy_v2, (void *stream))                                            \
  X(stream_wait, cuStreamSynchronize, (void *stream))                                              \
  X(capture_begin, cuStreamBeginCapture_v2, (void *stream, int mode))                              \
  X(capture_end, cuStreamEndCapture, (void *stream, void **graph))                                 \
  X(instantiate, cuGraphInstantiateWithFlags,                                                      \
    (void **exec, void *graph, unsigned long long flags))                                          \
  X(launch, cuGraphLaunch, (void *exec, void *stream))                                             \
  X(exec_destroy, cuGraphExecDestroy, (void *exec))                                                \
  X(graph_destroy, cuGraphDestroy, (void *graph))

#define FIELD(field, symbol, parameters) int(*field) parameters;

struct perf_driver {
  FUNCTIONS(FIELD)
  int (*get_name)(char *name, int bytes, int device); /* only for display; may be NULL */
  void *library;
  int count; /* of GPUs */
};

/* Where the address of a function goes. */
typedef struct entry {
  const char *symbol;
  size_t offset;
} entry;

#define ENTRY(field, symbol, parameters) {#symbol, offsetof(struct perf_driver, field)},

/* The driver's name for an error. */
static const char *name_of(const perf_driver *driver, int error) {
  const char *name = NULL;
  return driver->error_name(error, &name) == SUCCESS && name ? name : "unknown";
}

/* Prints which function failed on a GPU. */
static void complain(const perf_device *device, const char *function, int error) {
  fprintf(stderr, "coll_perf: %s on GPU %d (%s) failed with error %d, %s\n", function,
          device->ordinal, device->name, error, name_of(device->driver, error));
}

/* Finds all functions; false after a failure. */
static bool find_all(perf_driver *driver) {
  static const entry entries[] = {FUNCTIONS(ENTRY)};
  for (size_t i = 0; i < sizeof(entries) / sizeof(*entries); i++) {
    void *function = dlsym(driver->library, entries[i].symbol);
    if (!function) {
      fprintf(stderr,
              "coll_perf: " LIBRARY
              " has no %s; install an NVIDIA driver for CUDA 11.7 or newer, " REMEDY "\n",
              entries[i].symbol);
      return false;
    }
    memcpy((char *)driver + entries[i].offset, &function, sizeof(function));
  }
  void *function = dlsym(driver->library, "cuDeviceGetName");
  memcpy(&driver->get_name, &function, sizeof(function));
  return true;
}

/* Initialises the driver and counts GPUs; false after a failure. */
static bool start(perf_driver *driver) {
  const char *function = "cuInit";
  int error = driver->init(0);
  if (error == SUCCESS) {
    function = "cuDeviceGetCount";
    error = driver->get_count(&driver->count);
  }
  if (error != SUCCESS)
    fprintf(stderr,
            "coll_perf: CUDA's driver does not work: %s failed with error %d, %s; nvidia-smi shows "
            "whether it has a GPU; repair that, " REMEDY "\n",
            function, error, name_of(driver, error));
  else if (driver->count == 0)
    fprintf(stderr, "coll_perf: CUDA's driver finds no GPU; nvidia-smi lists them, and "
                    "CUDA_VISIBLE_DEVICES may hide some; make one visible, " REMEDY "\n");
  return error == SUCCESS && driver->count > 0;
}

perf_driver *perf_driver_open(void) {
  perf_driver *driver = calloc(1, sizeof(*driver));
  if (!driver) {
    fprintf(stderr, "coll_perf: out of memory\n");
    return NULL;
  }
  driver->library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
  if (!driver->library) {
    const char *reason = dlerror();
    fprintf(stderr,
            "coll_perf: CUDA's driver cannot be loaded (%s); install the NVIDIA driver (Debian: "
            "libcuda1), " REMEDY "\n",
            reason ? reason : LIBRARY);
  } else if (find_all(driver) && start(driver)) {
    return driver;
  }
  perf_driver_close(driver);
  return NULL;
}

/* The library stays loaded: threads of the driver may run until the process ends. */
void perf_driver_close(perf_driver *driver) {
  free(driver);
}

bool perf_device_open(perf_device *device, const perf_driver *driver, int rank) {
  void *context = NULL;
  int handle = 0;
  *device = (perf_device){
      .driver = driver, .ordinal = rank % driver->count, .count = driver->count, .name = "no name"};
  const char *function = "cuDeviceGet";
  int error = driver->get(&handle, device->ordinal);
  if (error == SUCCESS && driver->get_name)
    driver->get_name(device->name, (int)sizeof(device->name), handle);
  if (error == SUCCESS) {
    function = "cuDevicePrimaryCtxRetain";
    error = driver->retain(&context, handle);
  }
  if (error != SUCCESS) {
    complain(device, function, error);
    return false;
  }
  function = "cuCtxSetCurrent";
  error = driver->set_current(context);
  if (error == SUCCESS) {
    function = "cuStreamCreateWithPriority";
    error = driver->stream_create(&device->stream, NON_BLOCKING, 0);
  }
  if (error == SUCCESS)
    return true;
  complain(device, function, error);
  driver->release(handle);
  return false;
}

void perf_device_close(perf_device *device) {
  int handle = 0;
  device->driver->stream_destroy(device->stream);
  device->driver->set_current(NULL);
  if (device->driver->get(&handle, device->ordinal) == SUCCESS)
    device->driver->release(handle);
}

coll_status perf_device_alloc(const perf_device *device, size_t bytes, void **memory) {
  device_ptr at = 0;
  int error = device->driver->alloc(&at, bytes);
  if (error != SUCCESS) {
    complain(device, "cuMemAlloc", error);
    return COLL_ERR_NO_MEMORY;
  }
  *memory = (void *)at;
  return COLL_OK;
}

void perf_device_free(const perf_device *device, void *memory) {
  if (memory)
    device->driver->free((device_ptr)memory);
}

coll_status perf_device_wait(const perf_device *device) {
  int error = device->driver->stream_wait(device->stream);
  if (error == SUCCESS)
    return COLL_OK;
  complain(device, "cuStreamSynchronize", error);
  return COLL_ERR_SYSTEM;
}

/* Waits for a copy, unless it could not be started. */
static coll_status end_copy(const perf_device *device, const char *function, int error) {
  if (error == SUCCESS)
    return perf_device_wait(device);
  complain(device, function, error);
  return COLL_ERR_SYSTEM;
}

coll_status perf_device_write(const perf_device *device, void *memory, const void *from,
                              size_t bytes) {
  int error = device->driver->write((device_ptr)memory, from, bytes, device->stream);
  return end_copy(device, "cuMemcpyHtoDAsync", error);
}

coll_status perf_device_read(const perf_device *device, void *to, const void *memory,
                             size_t bytes) {
  int error = device->driver->read(to, (device_ptr)memory, bytes, device->stream);
  return end_copy(device, "cuMemcpyDtoHAsync", error);
}

/* The status of a call about graphs. */
static coll_status status_of(const perf_device *device, const char *function, int error) {
  if (error == SUCCESS)
    return COLL_OK;
  complain(device, function, error);
  return COLL_ERR_SYSTEM;
}

coll_status perf_graph_begin(const perf_device *device, perf_graph *graph) {
  *graph = (perf_graph){.device = device};
  return status_of(device, "cuStreamBeginCapture",
                   device->driver->capture_begin(device->stream, THREAD_LOCAL));
}

coll_status perf_graph_end(perf_graph *it, bool launched) {
  const perf_device *device = it->device;
  int error = device->driver->capture_end(device->stream, &it->graph);
  if (!launched)
    return COLL_OK;
  const char *function = "cuStreamEndCapture";
  if (error == SUCCESS) {
    function = "cuGraphInstantiate";
    error = device->driver->instantiate(&it->exec, it->graph, 0);
  }
  return status_of(device, function, error);
}

coll_status perf_graph_launch(const perf_graph *it) {
  return status_of(it->device, "cuGraphLaunch",
                   it->device->driver->launch(it->exec, it->device->stream));
}

void perf_graph_free(perf_graph *it) {
  if (it->exec)
    it->device->driver->exec_destroy(it->exec);
  if (it->graph)
    it->device->driver->graph_destroy(it->graph);
  it->exec = it->graph = NULL;
}
