/* support_verbs_device.c: memory that both fakes move. */
#include "support_verbs_device.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/driver/use.h"

enum { SHIFT = 3 }; /* of memory, from the beginning of a page */

/* A function of a library. */
static void find(void *handle, const char *name, void *function) {
  void *symbol = dlsym(handle, name);
  CHECK(symbol);
  memcpy(function, &symbol, sizeof(symbol));
}

rdma rdma_load(const char *gpu_rdma) {
  rdma it = {0};
  void (*on_flush)(void (*function)(void));
  setenv("GPU_RDMA", gpu_rdma, 1);
  it.fake = fake_load();
  CHECK(it.fake);
  fake_add(it.fake, "mlx5_0", 1);
  void *gpu = dlopen(FAKE_GPU, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_NOLOAD);
  CHECK(gpu && verbs);
  find(gpu, "fake_gpu_copied", &it.copied);
  find(gpu, "fake_gpu_on_flush", &on_flush);
  find(verbs, "fake_verbs_settle", &it.settle);
  on_flush(it.settle);
  device_load();
  return it;
}

void rdma_fill(char *memory, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++)
    memory[i] = (char)(seed ? (i * 7 + i / 251 * 3 + seed * 101) : 0x5a);
}

bool rdma_is(const char *memory, size_t bytes, unsigned seed) {
  for (size_t i = 0; i < bytes; i++)
    if (memory[i] != (char)(seed ? (i * 7 + i / 251 * 3 + seed * 101) : 0x5a))
      return false;
  return true;
}

char *rdma_take(size_t bytes, unsigned seed) {
  char *memory = (char *)device_memory.take(bytes + 2 * SHIFT) + SHIFT;
  rdma_fill(device_place(memory - SHIFT), bytes + 2 * SHIFT, 0);
  rdma_fill(device_place(memory), bytes, seed);
  return memory;
}

void rdma_give(char *memory) {
  device_memory.give(memory - SHIFT);
}

bool rdma_has(const char *memory, size_t bytes, unsigned seed, size_t rest) {
  const char *at = device_place(memory);
  return rdma_is(at, bytes, seed) && rdma_is(at + bytes, rest + SHIFT, 0) &&
         rdma_is(at - SHIFT, SHIFT, 0);
}
