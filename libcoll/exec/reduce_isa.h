/* reduce_isa.h: the tables of kernels, one for each instruction set of this build. */
#ifndef COLLI_EXEC_REDUCE_ISA_H
#define COLLI_EXEC_REDUCE_ISA_H

#include "libcoll/exec/reduce.h"

extern const colli_kernels colli_kernels_portable;
#if defined(__x86_64__)
extern const colli_kernels colli_kernels_avx2;
extern const colli_kernels colli_kernels_avx512;
#elif defined(__aarch64__)
extern const colli_kernels colli_kernels_neon;
#endif

#endif
