/* blas.h: sets OpenBLAS up. */
#ifndef TRAINER_BLAS_H
#define TRAINER_BLAS_H

/*
 * Uses `threads` threads. If OpenBLAS did not know the processor and therefore leaves its AVX-512
 * unused, starts the program again with OPENBLAS_CORETYPE set (OpenBLAS reads it while it is being
 * loaded, so it is too late to set it here). Does that at most once, and never if the user has set
 * the variable. Call it first in main().
 */
void blas_setup(char **argv, int threads);

#endif
