/*
 * code.c: the kernels' code. The assembler takes the files as they are; as arrays in C they would
 * take the compiler seconds. It finds them because the root of the sources, and the folder where
 * sass.cmake has SASS made, are among the folders for headers.
 */
#include "libcoll/gpu/code.h"

/* Declares what a file contains and puts it, with a 0 at its end, among the constants. */
#define EMBED(symbol, file)                                                                        \
  extern const char symbol[] __attribute__((visibility("hidden")));                                \
  __asm__(".pushsection .rodata\n"                                                                 \
          ".balign 16\n"                                                                           \
          ".globl " #symbol "\n"                                                                   \
          ".hidden " #symbol "\n"                                                                  \
          ".type " #symbol ", %object\n" #symbol ":\n"                                             \
          ".incbin \"" file "\"\n"                                                                 \
          ".byte 0\n"                                                                              \
          ".size " #symbol ", . - " #symbol "\n"                                                   \
          ".popsection\n");

#define EMBED_PTX(NAME, name) EMBED(colli_gpu_ptx_##name, "libcoll/gpu/kernels/" #name ".ptx")
COLLI_GPU_FILES(EMBED_PTX)

#define PTX(NAME, name) colli_gpu_ptx_##name,
const char *const colli_gpu_ptx[COLLI_GPU_FILE_COUNT] = {COLLI_GPU_FILES(PTX)};

#ifdef COLLI_GPU_SASS /* the build has found ptxas */
#define EMBED_SASS(NAME, name) EMBED(colli_gpu_sass_##name, #name ".fatbin")
COLLI_GPU_FILES(EMBED_SASS)

#define SASS(NAME, name) colli_gpu_sass_##name,
const char *const colli_gpu_sass[COLLI_GPU_FILE_COUNT] = {COLLI_GPU_FILES(SASS)};
#else
#define COLLI_GPU_SASS ""
const char *const colli_gpu_sass[COLLI_GPU_FILE_COUNT];
#endif
const char colli_gpu_sass_architectures[] = COLLI_GPU_SASS;
