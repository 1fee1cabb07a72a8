/* code.h: the code of the kernels of libcoll/gpu/kernels, which is a part of the library. */
#ifndef COLLI_GPU_CODE_H
#define COLLI_GPU_CODE_H

/* X(NAME, name): all files; name.ptx is what compile.sh made of name.c. */
#define COLLI_GPU_FILES(X)                                                                         \
  X(COPY, copy)                                                                                    \
  X(FOLD_FLOAT, fold_float)                                                                        \
  X(FOLD_FLOAT8, fold_float8)                                                                      \
  X(FOLD_INT, fold_int)                                                                            \
  X(FOLD_LOC, fold_loc)                                                                            \
  X(MEET, meet)

enum {
#define COLLI_GPU_FILE_NUMBER(NAME, name) COLLI_GPU_FILE_##NAME,
  COLLI_GPU_FILES(COLLI_GPU_FILE_NUMBER)
#undef COLLI_GPU_FILE_NUMBER
      COLLI_GPU_FILE_COUNT
};

/* The PTX, by those numbers: texts. */
extern const char *const colli_gpu_ptx[COLLI_GPU_FILE_COUNT];

/* What ptxas made of that PTX for the architectures below: images of CUDA (fat binaries), or NULL
 * in a build without SASS. */
extern const char *const colli_gpu_sass[COLLI_GPU_FILE_COUNT];

/* Those architectures: "75, 80"; or "". */
extern const char colli_gpu_sass_architectures[];

#endif
