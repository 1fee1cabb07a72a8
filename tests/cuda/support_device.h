/* support_device.h: memory and streams of the fake GPUs, for tests of the library on them. */
#ifndef TESTS_CUDA_SUPPORT_DEVICE_H
#define TESTS_CUDA_SUPPORT_DEVICE_H

#include "case.h"
#include "libcoll/gpu/cuda_load.h"

/* Loads the fake driver as libcuda.so.1 without initialising it: before ranks are forked, each of
 * which initialises its own. It has two devices, whose memory the processor cannot access, unless
 * the environment says otherwise. Ends the program if that fails, as do the others. */
void device_load(void);

/* Makes the calling thread work on a device. Any thread. */
const colli_cuda *device_use(int device);

/* Memory of the device that the calling thread uses; the second kind begins at odd addresses. */
extern const case_device device_memory, device_odd_memory;

/* Where the test can look at memory of a device. */
void *device_place(const void *memory);

/* A stream of that device, for as long as the process lives. */
colli_cu_stream device_stream(void);

/* Waits until a stream has done everything. */
void device_await(colli_cu_stream stream);

/* Holds a stream until the gate is opened: by a kernel that spins, or by a wait for a value, which
 * costs nothing. */
typedef struct device_gate device_gate;
device_gate *device_hold(colli_cu_stream stream);
device_gate *device_stop(colli_cu_stream stream);
void device_open(device_gate *gate);

/* Runs a kernel that traps: the device of this thread is broken from then on. */
void device_break(colli_cu_stream stream);

/* From here on this thread's memory may leak: streams may use it after the library. */
void device_may_leak(void);

/* How much of the driver the process holds: memory, streams, modules, contexts. */
uint64_t device_held(void);

#endif
