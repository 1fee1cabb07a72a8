/* support_device.h: memory of the fake GPUs, for tests of the library on it. */
#ifndef TESTS_CUDA_SUPPORT_DEVICE_H
#define TESTS_CUDA_SUPPORT_DEVICE_H

#include "case.h"
#include "libcoll/gpu/cuda_load.h"

/* Loads the fake driver as libcuda.so.1, once for the process, and makes the calling thread work on
 * a device. Ends the program if that fails. Any thread. */
const colli_cuda *device_use(int device);

/* Memory of the device that the calling thread uses. */
extern const case_device device_memory;

/* A stream of that device, for as long as the process lives. */
colli_cu_stream device_stream(void);

#endif
