/* extra.h: functions of CUDA's driver that programs call and libcoll does not, for tests. */
#ifndef TESTS_GPU_EXTRA_H
#define TESTS_GPU_EXTRA_H

#include "libcoll/gpu/cuda_abi.h"

typedef struct colli_cu_graph_exec_st *colli_cu_graph_exec;

/* What cuMemPoolCreate() makes. */
typedef struct colli_cu_pool_props {
  int type;         /* COLLI_CU_MEM_ALLOCATION_TYPE_PINNED */
  int handle_types; /* COLLI_CU_MEM_HANDLE_TYPE_... */
  colli_cu_location location;
  void *win32_attributes; /* NULL */
  size_t most_bytes;      /* 0 */
  uint16_t usage;         /* 0 */
  uint8_t reserved[54];
} colli_cu_pool_props;

/* As in cuda_entries.h. */
#define FAKE_CUDA_EXTRA(X)                                                                         \
  X(stream_begin_capture, cuStreamBeginCapture, _v2, 10010,                                        \
    (colli_cu_stream stream, colli_cu_capture_mode mode))                                          \
  X(stream_end_capture, cuStreamEndCapture, , 10000,                                               \
    (colli_cu_stream stream, colli_cu_graph * graph))                                              \
  X(graph_instantiate, cuGraphInstantiateWithFlags, , 11040,                                       \
    (colli_cu_graph_exec * exec, colli_cu_graph graph, unsigned long long flags))                  \
  X(graph_launch, cuGraphLaunch, , 10000, (colli_cu_graph_exec exec, colli_cu_stream stream))      \
  X(graph_exec_destroy, cuGraphExecDestroy, , 10000, (colli_cu_graph_exec exec))                   \
  X(graph_destroy, cuGraphDestroy, , 10000, (colli_cu_graph graph))                                \
  X(pool_create, cuMemPoolCreate, , 11020,                                                         \
    (colli_cu_pool * pool, const colli_cu_pool_props *props))                                      \
  X(pool_alloc, cuMemAllocFromPoolAsync, , 11020,                                                  \
    (colli_cu_deviceptr * at, size_t bytes, colli_cu_pool pool, colli_cu_stream stream))           \
  X(pool_free, cuMemFreeAsync, , 11020, (colli_cu_deviceptr at, colli_cu_stream stream))

#endif
