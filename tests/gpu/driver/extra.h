/* extra.h: functions of CUDA's driver that programs call and libcoll does not, for tests. */
#ifndef TESTS_GPU_EXTRA_H
#define TESTS_GPU_EXTRA_H

typedef struct colli_cu_graph_exec_st *colli_cu_graph_exec;

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
  X(graph_destroy, cuGraphDestroy, , 10000, (colli_cu_graph graph))

#endif
