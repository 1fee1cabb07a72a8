/* support_virtual.c: memory of the fake GPUs that is mapped. */
#include "support_virtual.h"

#include <string.h>

#include "support_device.h"
#include "tests/gpu/driver/use.h"

virtual_memory virtual_take(const colli_cuda *cuda, int device, const char *granules, bool shared) {
  const colli_cu_allocation_prop prop = {.type = COLLI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .requested_handle_types =
                                             shared ? COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                    : COLLI_CU_MEM_HANDLE_TYPE_NONE,
                                         .location = {COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device}};
  const colli_cu_access access = {prop.location, COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  virtual_memory memory = {.bytes = 0};
  colli_cu_deviceptr at = 0;
  for (const char *it = granules; *it; it++)
    memory.bytes += (size_t)(*it - '0') * VIRTUAL_GRANULE;
  OK(cuda->mem_address_reserve(&at, memory.bytes, 0, 0, 0));
  memory.at = (char *)at;
  for (const char *it = granules; *it; it++) {
    const size_t bytes = (size_t)(*it - '0') * VIRTUAL_GRANULE;
    colli_cu_allocation allocation;
    OK(cuda->mem_create(&allocation, bytes, &prop, 0));
    OK(cuda->mem_map(at, bytes, 0, allocation, 0));
    OK(cuda->mem_release(allocation)); /* the mapping keeps it */
    at += bytes;
  }
  OK(cuda->mem_set_access((colli_cu_deviceptr)memory.at, memory.bytes, &access, 1));
  return memory;
}

void virtual_give(const colli_cuda *cuda, const virtual_memory *memory) {
  OK(cuda->mem_unmap((colli_cu_deviceptr)memory->at, memory->bytes));
  OK(cuda->mem_address_free((colli_cu_deviceptr)memory->at, memory->bytes));
}

/* How many of the elements from `at` on surely lie in one allocation. */
static size_t in_one(const int32_t *at, size_t count) {
  const size_t most =
      (VIRTUAL_GRANULE - (uintptr_t)at % VIRTUAL_GRANULE + sizeof(*at) - 1) / sizeof(*at);
  return count < most ? count : most;
}

void virtual_fill(void *at, size_t count, int32_t value) {
  for (int32_t *it = at; count > 0;) {
    const size_t some = in_one(it, count);
    device_fill(it, some, value);
    it += some;
    count -= some;
  }
}

bool virtual_has(void *at, size_t count, int32_t value) {
  for (const int32_t *it = at; count > 0;) {
    const size_t some = in_one(it, count);
    if (!device_has(it, some, value))
      return false;
    it += some;
    count -= some;
  }
  return true;
}
