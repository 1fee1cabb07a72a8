/* support_virtual.h: memory of the (fake) GPUs that is mapped, as PyTorch's expandable segments: of
 * several allocations, one behind the other. */
#ifndef TESTS_CUDA_SUPPORT_VIRTUAL_H
#define TESTS_CUDA_SUPPORT_VIRTUAL_H

#include <stdbool.h>

#include "libcoll/gpu/cuda_load.h"

enum { VIRTUAL_GRANULE = 2 << 20 };

/* What a program has mapped. */
typedef struct virtual_memory {
  char *at;
  size_t bytes;
} virtual_memory;

/* Maps an allocation for each letter of a text, of so many granules as the digit says, on a device
 * that may access it; descriptors of it can be made, or not. Ends the program if that fails. */
virtual_memory virtual_take(const colli_cuda *cuda, int device, const char *granules, bool shared);
void virtual_give(const colli_cuda *cuda, const virtual_memory *memory);

/* Sets elements, which may lie in several allocations; whether all have a value. */
void virtual_fill(void *at, size_t count, int32_t value);
bool virtual_has(void *at, size_t count, int32_t value);

#endif
