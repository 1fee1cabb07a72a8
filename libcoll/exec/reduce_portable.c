/* reduce_portable.c: the kernels for the baseline instruction set of the architecture. */
#define COLLI_KERNELS colli_kernels_portable
#define COLLI_ISA     COLLI_ISA_PORTABLE
#include "libcoll/exec/reduce_template.h"
