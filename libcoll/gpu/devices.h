/*
 * devices.h: the GPUs of this process, as the communicators of one family use them: which memory is
 * theirs, and copies between it and the host.
 */
#ifndef COLLI_GPU_DEVICES_H
#define COLLI_GPU_DEVICES_H

#include <pthread.h>
#include <stdbool.h>

#include "libcoll/base/log.h"
#include "libcoll/base/pci.h"
#include "libcoll/gpu/cuda_load.h"
#include "libcoll/gpu/pinned.h"
#include "libcoll/gpu/programs.h"

#define COLLI_GPU_DEVICES 64
#define COLLI_GPU_HOST    (-1) /* instead of a device's number: host memory */
#define COLLI_GPU_UNKNOWN                                                                          \
  (-2) /* the same: the driver has failed, and the processor cannot read it */
#define COLLI_GPU_CURRENT (-3) /* the thread's context, or if it has none that of device 0 */

/* A device; nothing is made before it is first used. */
typedef struct colli_gpu_device {
  colli_cu_context context; /* the primary one, retained; NULL: not yet */
  colli_cu_stream stream;   /* for copies; it waits for no other */
  colli_gpu_programs *programs;
  bool lends_nothing, told_of_lending; /* to networks; the log has been told why: rdma.h */
} colli_gpu_device;

typedef struct colli_gpu {
  colli_cuda cuda;
  int ndevices;
  pthread_mutex_t wakes; /* held while a thread of the driver wakes a rank: passage.c */
  uint64_t arrivals;     /* of streams at passages, so far; under `wakes` */
  pthread_mutex_t mutex; /* of the devices */
  colli_gpu_device devices[COLLI_GPU_DEVICES];
  colli_pinned_pool pool;
} colli_gpu;

/*
 * Opens the GPUs if this process uses CUDA: its driver library is loaded and finds a device. Else
 * *out is NULL. Never loads the library. A driver that cannot be used is logged, and counts as
 * none. Errors: NO_MEMORY.
 */
coll_status colli_gpu_open(colli_gpu **out, const colli_log *log, coll_error *error);

/* Releases everything. NULL is fine. */
void colli_gpu_close(colli_gpu *gpu);

/* Finds the PCI address of the device that this thread uses: that of its context or, without one,
 * the only one that there is. False: it is not known. */
bool colli_gpu_find_bus(const colli_gpu *gpu, char bus[COLLI_PCI_ADDRESS]);

/* The number of the device in whose memory an address is; COLLI_GPU_HOST for memory that the
 * processor reads, pinned and managed memory included; or COLLI_GPU_UNKNOWN. Any thread. */
int colli_gpu_device_of(colli_gpu *gpu, const void *at);

/* What a thread had before it works on a device. */
typedef struct colli_gpu_thread {
  colli_cu_context context;
  colli_cu_capture_mode mode;
  bool changed; /* another context is current now */
} colli_gpu_thread;

/*
 * Makes a device's context current, and lets calls be made that another thread's capture would
 * forbid; leave() undoes both. Errors: SYSTEM.
 */
coll_status colli_gpu_enter(colli_gpu *gpu, int device, colli_gpu_thread *before,
                            coll_error *error);
void colli_gpu_leave(colli_gpu *gpu, colli_gpu_thread *before);

/* Whether a context is the device's primary one, which libcoll uses. Any thread. Errors: SYSTEM. */
coll_status colli_gpu_is_primary(colli_gpu *gpu, int device, colli_cu_context context, bool *is,
                                 coll_error *error);

/* The kernels of a device, loaded when they are first asked for, which the log then says. Any
 * thread. Errors: those of colli_gpu_programs_load(). */
coll_status colli_gpu_get_programs(colli_gpu *gpu, int device, const colli_log *log,
                                   const colli_gpu_programs **programs, coll_error *error);

/* One copy of several between host and device: of one block, or of several that follow each other
 * on the host. */
typedef struct colli_gpu_piece {
  void *device;
  void *host;
  size_t bytes;  /* of a block; 0: there is nothing to copy */
  size_t more;   /* blocks after the first */
  size_t stride; /* bytes from one to the next on the device */
} colli_gpu_piece;

typedef enum colli_gpu_direction { COLLI_GPU_TO_HOST, COLLI_GPU_TO_DEVICE } colli_gpu_direction;

/* Puts copies into a stream of the device, which is entered. Errors: SYSTEM. */
coll_status colli_gpu_put_copies(const colli_cuda *cuda, int device, colli_cu_stream stream,
                                 colli_gpu_direction direction, const colli_gpu_piece *pieces,
                                 size_t count, coll_error *error);

/*
 * Copies `count` pieces, and waits until they are there. Leaves the thread's context as it was. Any
 * thread. Errors: SYSTEM (the driver's error, with its name), TIMEOUT (the device does not answer
 * for timeout_ns). `error` gets status, system call and message.
 */
coll_status colli_gpu_copy(colli_gpu *gpu, int device, colli_gpu_direction direction,
                           const colli_gpu_piece *pieces, size_t count, uint64_t timeout_ns,
                           coll_error *error);

/* Memory of the host that devices reach directly, for copies. Any thread. NULL: `error` has the
 * reason, NO_MEMORY or SYSTEM. */
colli_pinned *colli_gpu_take_pinned(colli_gpu *gpu, size_t bytes, coll_error *error);
void colli_gpu_share_pinned(colli_gpu *gpu, colli_pinned *block); /* one more puts it back */
void colli_gpu_put_pinned(colli_gpu *gpu, colli_pinned *block);

/* Pins memory for `count` words ahead: to take them then needs no driver, which may wait for
 * kernels before it pins more. Any thread. Errors: NO_MEMORY, SYSTEM. */
coll_status colli_gpu_reserve_words(colli_gpu *gpu, size_t count, coll_error *error);

#endif
