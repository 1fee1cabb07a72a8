/* support_verbs_device.h: a fake device of InfiniBand that reads and writes memory of fake GPUs. */
#ifndef TESTS_CUDA_SUPPORT_VERBS_DEVICE_H
#define TESTS_CUDA_SUPPORT_VERBS_DEVICE_H

#include "support_device.h"
#include "support_verbs.h"

/* What the tests have in common. */
typedef struct rdma {
  fake_verbs *fake;
  uint64_t (*copied)(void); /* bytes between GPUs and the host */
  void (*settle)(void);     /* shows what was written late */
} rdma;

/* Loads both fakes. gpu_rdma: GPU_RDMA (tests/gpu/driver/driver.h). */
rdma rdma_load(const char *gpu_rdma);

/* Memory of this thread's device with `bytes` bytes that depend on `seed`; 0: all the same. Not at
 * the beginning of a page. And whether it has these bytes, after them `rest` of those. */
char *rdma_take(size_t bytes, unsigned seed);
void rdma_give(char *memory);
bool rdma_has(const char *memory, size_t bytes, unsigned seed, size_t rest);

/* The same for memory of the host. */
void rdma_fill(char *memory, size_t bytes, unsigned seed);
bool rdma_is(const char *memory, size_t bytes, unsigned seed);

#endif
