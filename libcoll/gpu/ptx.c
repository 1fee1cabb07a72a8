/*
 * ptx.c: the kernels' code. The assembler takes the files as they are; as arrays in C they would
 * take the compiler seconds. It finds them because the root of the sources is among the folders for
 * headers.
 */
#include "libcoll/gpu/ptx.h"

/* Declares a text and puts it, with a 0 at its end, among the constants. */
#define EMBED(NAME, name)                                                                          \
  extern const char colli_gpu_ptx_##name[] __attribute__((visibility("hidden")));                  \
  __asm__(".pushsection .rodata\n"                                                                 \
          ".globl colli_gpu_ptx_" #name "\n"                                                       \
          ".hidden colli_gpu_ptx_" #name "\n"                                                      \
          ".type colli_gpu_ptx_" #name ", %object\n"                                               \
          "colli_gpu_ptx_" #name ":\n"                                                             \
          ".incbin \"libcoll/gpu/kernels/" #name ".ptx\"\n"                                        \
          ".byte 0\n"                                                                              \
          ".size colli_gpu_ptx_" #name ", . - colli_gpu_ptx_" #name "\n"                           \
          ".popsection\n");
COLLI_GPU_PTX(EMBED)

#define TEXT(NAME, name) colli_gpu_ptx_##name,
const char *const colli_gpu_ptx[COLLI_GPU_PTX_COUNT] = {COLLI_GPU_PTX(TEXT)};
