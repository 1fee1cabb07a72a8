/* support_device_inner.h: what the files of support_device.h share. */
#ifndef TESTS_CUDA_SUPPORT_DEVICE_INNER_H
#define TESTS_CUDA_SUPPORT_DEVICE_INNER_H

#include "tests/gpu/driver/use.h"

/* The driver, which is initialised by the first call. */
use *device_driver(void);

/* Makes what would wait for kernels that are under way, before there are some, on the device of the
 * calling thread. */
void device_prepare(void);

/* That device's stream for copies at once, in which nothing ever waits: on a real driver. */
colli_cu_stream device_copies(void);

#endif
