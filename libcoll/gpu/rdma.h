/* rdma.h: memory of GPUs that devices of a network read and write (GPUDirect RDMA). */
#ifndef COLLI_GPU_RDMA_H
#define COLLI_GPU_RDMA_H

#include "libcoll/gpu/devices.h"

/* Memory of a GPU, for a network's driver. */
typedef struct colli_gpu_dmabuf {
  int fd; /* to be closed */
  uint64_t offset;
} colli_gpu_dmabuf;

/* Whether memory of a device may be lent to a network, as far as is known. Any thread. */
bool colli_gpu_lends(colli_gpu *gpu, int device);

/* Whether a device lends memory, which asks its driver; the log gets the first reason. Any thread.
 */
bool colli_gpu_can_lend(colli_gpu *gpu, int device, const colli_log *log);

/* Some of it cannot be, or none: the log gets the first reason. Any thread. */
void colli_gpu_lend_refused(colli_gpu *gpu, int device, bool none, const colli_log *log,
                            const char *why);

/*
 * A dma-buf with memory of a device. Of that allocation, the program's synchronous copies will be
 * synchronous indeed: the network does not wait for streams. Any thread. False: it cannot be lent,
 * and the log knows why.
 */
bool colli_gpu_lend(colli_gpu *gpu, int device, const void *memory, size_t bytes,
                    const colli_log *log, colli_gpu_dmabuf *lent);

/* What a network has written to a device's memory is there for kernels that are launched, and
 * streams that go on, after this. Any thread. Errors: SYSTEM. */
coll_status colli_gpu_flush(colli_gpu *gpu, int device, coll_error *error);

#endif
