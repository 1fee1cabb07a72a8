/*
 * device.h: GPUs, their memory, and streams, for --memory cuda. All that coll_perf needs of CUDA is
 * here. Functions that fail print why.
 */
#ifndef PERF_DEVICE_H
#define PERF_DEVICE_H

#include <coll/coll.h>
#include <stdbool.h>
#include <stddef.h>

/* CUDA's driver. */
typedef struct perf_driver perf_driver;

/* A rank's GPU. Only the thread that has opened it may use it. */
typedef struct perf_device {
  const perf_driver *driver;
  int ordinal, count; /* its number, and how many there are */
  char name[64];
  void *stream;
  bool direct; /* calls in the stream stay in GPU memory where GPUs reach each other */
} perf_device;

/*
 * Loads and initialises the driver; NULL after a failure. libcoll does neither, but uses what it
 * finds: call this before a communicator is made.
 */
perf_driver *perf_driver_open(void);
void perf_driver_close(perf_driver *driver);

/* Makes the calling thread work on GPU `rank` modulo their number; false after a failure. */
bool perf_device_open(perf_device *device, const perf_driver *driver, int rank);
void perf_device_close(perf_device *device);

/* Errors: NO_MEMORY. */
coll_status perf_device_alloc(const perf_device *device, size_t bytes, void **memory);
void perf_device_free(const perf_device *device, void *memory);

/* Copies between the host and the GPU, after all that is in the stream, and waits. Errors: SYSTEM.
 */
coll_status perf_device_write(const perf_device *device, void *memory, const void *from,
                              size_t bytes);
coll_status perf_device_read(const perf_device *device, void *to, const void *memory, size_t bytes);

/* Waits until the stream is empty. Errors: SYSTEM. */
coll_status perf_device_wait(const perf_device *device);

/* A CUDA graph of what was put into the stream; all 0: none. */
typedef struct perf_graph {
  const perf_device *device;
  void *graph, *exec;
} perf_graph;

/* Captures what this thread puts into the stream from here on to the end; `launched`: it will be.
 * Call perf_graph_free() in any case, when the stream is empty. Errors: SYSTEM. */
coll_status perf_graph_begin(const perf_device *device, perf_graph *graph);
coll_status perf_graph_end(perf_graph *graph, bool launched);
void perf_graph_free(perf_graph *graph);

/* Puts the graph into the stream. Errors: SYSTEM. */
coll_status perf_graph_launch(const perf_graph *graph);

#endif
