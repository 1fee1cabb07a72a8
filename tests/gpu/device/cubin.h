/*
 * cubin.h: reads what ptxas and fatbinary write: SASS in an ELF file (a cubin), and images with
 * several cubins (fat binaries). NVIDIA documents neither; what is read here is what these programs
 * of CUDA 12 and 13 write.
 */
#ifndef TESTS_GPU_CUBIN_H
#define TESTS_GPU_CUBIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { CUBIN_KERNELS = 128, CUBIN_NAME_BYTES = 64 };

typedef struct cubin_kernel {
  char name[CUBIN_NAME_BYTES];
  uint32_t code_bytes;
  int param_bytes;
  int frame_bytes; /* local memory of a thread: arrays, and registers that are spilled */
} cubin_kernel;

typedef struct cubin {
  int arch; /* 90 for sm_90 */
  int nkernels;
  cubin_kernel kernels[CUBIN_KERNELS];
} cubin;

/* Reads a cubin; false if it is none. */
bool cubin_read(const uint8_t *elf, size_t bytes, cubin *out);

/* How long a cubin is, by its own headers, whose first 64 bytes must be there; 0 if it is none. */
size_t cubin_bytes(const uint8_t *elf);

/* The kernel of that name, or NULL. */
const cubin_kernel *cubin_find(const cubin *code, const char *name);

/* One image of a fat binary. */
typedef struct fatbin_image {
  bool sass; /* else PTX, or something else */
  int arch;
  uint64_t flags;
  const uint8_t *payload;
  size_t payload_bytes; /* without padding */
  size_t bytes;         /* once it is unpacked */
} fatbin_image;

/* Whether something is a fat binary. */
bool fatbin_is(const void *image);

/* The image with a number, from 0; false if there are no more, or the rest is no image. */
bool fatbin_get(const void *fatbin, int number, fatbin_image *out);

/* The image, as it was before fatbinary packed it; the caller frees it. NULL if it is damaged,
 * compressed in a way that drivers before CUDA 12.8 do not know, or memory is short. */
uint8_t *fatbin_unpack(const fatbin_image *image);

#endif
