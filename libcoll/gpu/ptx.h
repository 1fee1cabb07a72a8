/* ptx.h: the code of the kernels of libcoll/gpu/kernels, which is a part of the library. */
#ifndef COLLI_GPU_PTX_H
#define COLLI_GPU_PTX_H

/* X(NAME, name): all files; name.ptx is what compile.sh made of name.c. */
#define COLLI_GPU_PTX(X)                                                                           \
  X(COPY, copy)                                                                                    \
  X(FOLD_FLOAT, fold_float)                                                                        \
  X(FOLD_FLOAT8, fold_float8)                                                                      \
  X(FOLD_INT, fold_int)                                                                            \
  X(FOLD_LOC, fold_loc)                                                                            \
  X(MEET, meet)

enum {
#define COLLI_GPU_PTX_NUMBER(NAME, name) COLLI_GPU_PTX_##NAME,
  COLLI_GPU_PTX(COLLI_GPU_PTX_NUMBER)
#undef COLLI_GPU_PTX_NUMBER
      COLLI_GPU_PTX_COUNT
};

/* The texts, by those numbers. */
extern const char *const colli_gpu_ptx[COLLI_GPU_PTX_COUNT];

#endif
