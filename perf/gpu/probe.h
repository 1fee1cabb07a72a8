/*
 * probe.h: what the parts of gpu_probe share. Each part is a process of its own, asks one thing of
 * CUDA's driver, and prints lines of JSON. A failure ends the process with a message and status 1.
 */
#ifndef PERF_GPU_PROBE_H
#define PERF_GPU_PROBE_H

#include <stdbool.h>
#include <stdint.h>

#include "libcoll/gpu/cuda_load.h"

enum { PROBE_SIZES = 16 };

typedef struct probe_options {
  size_t bytes[PROBE_SIZES]; /* multiples of 4 */
  int nbytes;
  int ranks;
  int ms;           /* how long a measurement takes */
  int device, peer; /* peer: the other process's device */
  const char *which, *library;
} probe_options;

/* The driver, a device whose context is current, and kernels for it. */
typedef struct probe {
  colli_cuda cuda;
  int device, ndevices;
  colli_cu_module module;
  colli_cu_function empty, spin; /* spin(word): until the word is not 0 */
} probe;

/* A word of pinned memory. */
typedef struct probe_word {
  volatile uint32_t *host;
  colli_cu_deviceptr at;
} probe_word;

/* Ends the process unless a function of the driver succeeded. */
void probe_check(const probe *p, const char *function, colli_cu_result result);
#define PROBE_OK(p, function, ...) probe_check(p, #function, (p)->cuda.function(__VA_ARGS__))

/* Ends the process with a message. */
void probe_die(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

/* Loads the driver, without a device; then makes a device current, with its kernels. */
void probe_load(probe *p);
void probe_use(probe *p, int device);

/* Whether the driver is that of the tests. */
bool probe_is_software(const probe *p);

double probe_now_us(void);

colli_cu_stream probe_stream(const probe *p);
colli_cu_deviceptr probe_memory(const probe *p, size_t bytes);
probe_word probe_pinned(const probe *p);
void probe_put(probe_word word, uint32_t value);

/* Launches a kernel of one thread. */
void probe_launch(const probe *p, colli_cu_function function, colli_cu_stream stream, void **args);

/* Waits until a stream has done everything; false if that takes longer than `ms`. */
bool probe_ends(const probe *p, colli_cu_stream stream, int ms);

/* Microseconds of one of many calls of `put`, each of which puts work into streams; `wait` waits
 * until all is done. Measures for about `ms`. */
double probe_time(int ms, void (*put)(void *), void (*wait)(void *), void *context);

/* The parts. */
void probe_devices(const probe_options *options);
void probe_ipc(const probe_options *options);
void probe_memops(const probe_options *options);
void probe_queues(const probe_options *options);
void probe_switch(const probe_options *options);
void probe_jit(const probe_options *options);
void probe_limits(const probe_options *options);
void probe_nccl(const probe_options *options);

#endif
