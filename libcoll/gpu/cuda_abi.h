/*
 * cuda_abi.h: the part of CUDA's driver interface that libcoll uses, so that it builds without the
 * toolkit. tests/gpu/abi_check.c compares it with the toolkit's cuda.h, whose names these are, with
 * "colli_" in front.
 */
#ifndef COLLI_GPU_CUDA_ABI_H
#define COLLI_GPU_CUDA_ABI_H

#include <stddef.h>
#include <stdint.h>

/* ---- types ----------------------------------------------------------------------------------- */

typedef int colli_cu_result; /* COLLI_CUDA_SUCCESS or COLLI_CUDA_ERROR_... */
typedef int colli_cu_device;
typedef uint64_t colli_cu_deviceptr; /* an address in a device's memory, or one that it can use */
typedef uint64_t colli_cu_allocation;
typedef struct colli_cu_context_st *colli_cu_context;
typedef struct colli_cu_module_st *colli_cu_module;
typedef struct colli_cu_function_st *colli_cu_function;
typedef struct colli_cu_stream_st *colli_cu_stream;
typedef struct colli_cu_event_st *colli_cu_event;
typedef struct colli_cu_graph_st *colli_cu_graph;
typedef struct colli_cu_graph_node_st *colli_cu_graph_node;
typedef struct colli_cu_user_object_st *colli_cu_user_object;
typedef struct colli_cu_pool_st *colli_cu_pool;
typedef void (*colli_cu_host_fn)(void *context);

/* Enumerations; their constants are below. */
typedef int colli_cu_device_attribute;
typedef int colli_cu_p2p_attribute;
typedef int colli_cu_pointer_attribute;
typedef int colli_cu_function_attribute;
typedef int colli_cu_jit_option;
typedef int colli_cu_handle_type;
typedef int colli_cu_range_handle_type;
typedef int colli_cu_granularity;
typedef int colli_cu_flush_target;
typedef int colli_cu_flush_scope;
typedef int colli_cu_capture_status;
typedef int colli_cu_capture_mode;
typedef int colli_cu_query_result;

typedef struct colli_cu_uuid {
  char bytes[16];
} colli_cu_uuid;

/* What opens an allocation in another process. */
typedef struct colli_cu_ipc_handle {
  char reserved[64];
} colli_cu_ipc_handle;

/* What finds an allocation in a pool of another process. */
typedef struct colli_cu_pool_pointer {
  unsigned char reserved[64];
} colli_cu_pool_pointer;

typedef struct colli_cu_location {
  int type; /* COLLI_CU_MEM_LOCATION_TYPE_... */
  int id;   /* the device */
} colli_cu_location;

/* What cuMemCreate() allocates. */
typedef struct colli_cu_allocation_prop {
  int type;                   /* COLLI_CU_MEM_ALLOCATION_TYPE_PINNED */
  int requested_handle_types; /* COLLI_CU_MEM_HANDLE_TYPE_... */
  colli_cu_location location;
  void *win32_metadata; /* NULL */
  uint8_t compression_type;
  uint8_t gpu_direct_rdma_capable;
  uint16_t usage;
  uint8_t reserved[4];
} colli_cu_allocation_prop;

/* Rows to be copied, from one kind of memory to another. */
typedef struct colli_cu_memcpy_2d {
  size_t from_x, from_y; /* 0: where the rows begin in that memory */
  int from_type;         /* COLLI_CU_MEMORYTYPE_HOST or ..._DEVICE */
  const void *from_host;
  colli_cu_deviceptr from_device;
  void *from_array;  /* NULL */
  size_t from_pitch; /* bytes from one row to the next */
  size_t to_x, to_y;
  int to_type;
  void *to_host;
  colli_cu_deviceptr to_device;
  void *to_array;
  size_t to_pitch;
  size_t row_bytes, rows;
} colli_cu_memcpy_2d;

/* Who may do what with a mapping. */
typedef struct colli_cu_access {
  colli_cu_location location;
  int flags; /* COLLI_CU_MEM_ACCESS_FLAGS_... */
} colli_cu_access;

/* An operation of cuStreamBatchMemOp(): to wait for a value, or to write one. */
typedef union colli_cu_mem_op {
  int operation; /* COLLI_CU_STREAM_MEM_OP_... */
  struct colli_cu_mem_op_value {
    int operation;
    colli_cu_deviceptr address;
    uint64_t value; /* of 32 bits: the lower half */
    uint32_t flags; /* COLLI_CU_STREAM_WAIT_VALUE_... or COLLI_CU_STREAM_WRITE_VALUE_... */
    colli_cu_deviceptr alias; /* the driver's */
  } wait, write;
  uint64_t pad[6];
} colli_cu_mem_op;

typedef struct colli_cu_launch_attribute {
  int id; /* COLLI_CU_LAUNCH_ATTRIBUTE_... */
  int pad;
  union {
    uint64_t all[8];
    int number;
  } value;
} colli_cu_launch_attribute;

typedef struct colli_cu_launch_config {
  uint32_t grid[3], block[3]; /* x, y, z */
  uint32_t shared_bytes;
  colli_cu_stream stream;
  colli_cu_launch_attribute *attributes;
  uint32_t attributes_count;
} colli_cu_launch_config;

/* ---- constants ------------------------------------------------------------------------------- */

/* X(name in cuda.h, value): results; tests and the fake driver use more of them than libcoll. */
#define COLLI_CUDA_RESULTS(X)                                                                      \
  X(CUDA_SUCCESS, 0)                                                                               \
  X(CUDA_ERROR_INVALID_VALUE, 1)                                                                   \
  X(CUDA_ERROR_OUT_OF_MEMORY, 2)                                                                   \
  X(CUDA_ERROR_NOT_INITIALIZED, 3)                                                                 \
  X(CUDA_ERROR_DEINITIALIZED, 4)                                                                   \
  X(CUDA_ERROR_NO_DEVICE, 100)                                                                     \
  X(CUDA_ERROR_INVALID_DEVICE, 101)                                                                \
  X(CUDA_ERROR_INVALID_IMAGE, 200)                                                                 \
  X(CUDA_ERROR_INVALID_CONTEXT, 201)                                                               \
  X(CUDA_ERROR_NO_BINARY_FOR_GPU, 209)                                                             \
  X(CUDA_ERROR_PEER_ACCESS_UNSUPPORTED, 217)                                                       \
  X(CUDA_ERROR_INVALID_PTX, 218)                                                                   \
  X(CUDA_ERROR_INVALID_HANDLE, 400)                                                                \
  X(CUDA_ERROR_ILLEGAL_STATE, 401)                                                                 \
  X(CUDA_ERROR_NOT_FOUND, 500)                                                                     \
  X(CUDA_ERROR_NOT_READY, 600)                                                                     \
  X(CUDA_ERROR_ILLEGAL_ADDRESS, 700)                                                               \
  X(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, 704)                                                   \
  X(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, 712)                                                \
  X(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, 713)                                                    \
  X(CUDA_ERROR_MISALIGNED_ADDRESS, 716)                                                            \
  X(CUDA_ERROR_LAUNCH_FAILED, 719)                                                                 \
  X(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, 720)                                                  \
  X(CUDA_ERROR_NOT_PERMITTED, 800)                                                                 \
  X(CUDA_ERROR_NOT_SUPPORTED, 801)                                                                 \
  X(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 900)                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, 901)                                                    \
  X(CUDA_ERROR_STREAM_CAPTURE_MERGE, 902)                                                          \
  X(CUDA_ERROR_STREAM_CAPTURE_UNMATCHED, 903)                                                      \
  X(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, 904)                                                       \
  X(CUDA_ERROR_STREAM_CAPTURE_ISOLATION, 905)                                                      \
  X(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, 906)                                                       \
  X(CUDA_ERROR_CAPTURED_EVENT, 907)                                                                \
  X(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, 908)                                                   \
  X(CUDA_ERROR_UNKNOWN, 999)

/* X(name in cuda.h, value): all constants. */
#define COLLI_CUDA_CONSTANTS(X)                                                                    \
  COLLI_CUDA_RESULTS(X)                                                                            \
  X(CU_GET_PROC_ADDRESS_DEFAULT, 0)                                                                \
  X(CU_GET_PROC_ADDRESS_SUCCESS, 0)                                                                \
  X(CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND, 1)                                                       \
  X(CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT, 2)                                                 \
  X(CU_DEVICE_ATTRIBUTE_MAX_PITCH, 11)                                                             \
  X(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 16)                                                  \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 75)                                              \
  X(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 76)                                              \
  X(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 95)                                                    \
  X(CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 102)                                  \
  X(CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 103)                          \
  X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED, 116)                                            \
  X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS, 117)                                 \
  X(CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING, 118)                                      \
  X(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED, 124)                                                    \
  X(CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, 1)                                                   \
  X(CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED, 2)                                                   \
  X(CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 3)                                            \
  X(CU_POINTER_ATTRIBUTE_CONTEXT, 1)                                                               \
  X(CU_POINTER_ATTRIBUTE_MEMORY_TYPE, 2)                                                           \
  X(CU_POINTER_ATTRIBUTE_DEVICE_POINTER, 3)                                                        \
  X(CU_POINTER_ATTRIBUTE_HOST_POINTER, 4)                                                          \
  X(CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, 6)                                                           \
  X(CU_POINTER_ATTRIBUTE_BUFFER_ID, 7)                                                             \
  X(CU_POINTER_ATTRIBUTE_IS_MANAGED, 8)                                                            \
  X(CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, 9)                                                        \
  X(CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, 10)                                           \
  X(CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, 11)                                                     \
  X(CU_POINTER_ATTRIBUTE_RANGE_SIZE, 12)                                                           \
  X(CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, 14)                                                 \
  X(CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, 17)                                                       \
  X(CU_MEMORYTYPE_HOST, 1)                                                                         \
  X(CU_MEMORYTYPE_DEVICE, 2)                                                                       \
  X(CU_MEMORYTYPE_UNIFIED, 4)                                                                      \
  X(CU_MEMHOSTALLOC_PORTABLE, 1)                                                                   \
  X(CU_MEMHOSTALLOC_DEVICEMAP, 2)                                                                  \
  X(CU_MEMHOSTREGISTER_PORTABLE, 1)                                                                \
  X(CU_MEMHOSTREGISTER_DEVICEMAP, 2)                                                               \
  X(CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS, 1)                                                         \
  X(CU_MEM_ALLOCATION_TYPE_PINNED, 1)                                                              \
  X(CU_MEM_HANDLE_TYPE_NONE, 0)                                                                    \
  X(CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 1)                                                   \
  X(CU_MEM_HANDLE_TYPE_FABRIC, 8)                                                                  \
  X(CU_MEM_LOCATION_TYPE_DEVICE, 1)                                                                \
  X(CU_MEM_ACCESS_FLAGS_PROT_READWRITE, 3)                                                         \
  X(CU_MEM_ALLOC_GRANULARITY_MINIMUM, 0)                                                           \
  X(CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, 1)                                                       \
  X(CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 1)                                                        \
  X(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TARGET_CURRENT_CTX, 0)                                         \
  X(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST, 1)                                                \
  X(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER, 100)                                                 \
  X(CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_ALL_DEVICES, 200)                                           \
  X(CU_STREAM_NON_BLOCKING, 1)                                                                     \
  X(CU_EVENT_DISABLE_TIMING, 2)                                                                    \
  X(CU_EVENT_WAIT_EXTERNAL, 1)                                                                     \
  X(CU_STREAM_WAIT_VALUE_GEQ, 0)                                                                   \
  X(CU_STREAM_WAIT_VALUE_EQ, 1)                                                                    \
  X(CU_STREAM_WAIT_VALUE_FLUSH, 1 << 30)                                                           \
  X(CU_STREAM_WRITE_VALUE_DEFAULT, 0)                                                              \
  X(CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER, 1)                                                    \
  X(CU_STREAM_MEM_OP_WAIT_VALUE_32, 1)                                                             \
  X(CU_STREAM_MEM_OP_WRITE_VALUE_32, 2)                                                            \
  X(CU_STREAM_CAPTURE_STATUS_NONE, 0)                                                              \
  X(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1)                                                            \
  X(CU_STREAM_CAPTURE_STATUS_INVALIDATED, 2)                                                       \
  X(CU_STREAM_CAPTURE_MODE_GLOBAL, 0)                                                              \
  X(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL, 1)                                                        \
  X(CU_STREAM_CAPTURE_MODE_RELAXED, 2)                                                             \
  X(CU_USER_OBJECT_NO_DESTRUCTOR_SYNC, 1)                                                          \
  X(CU_GRAPH_USER_OBJECT_MOVE, 1)                                                                  \
  X(CU_JIT_INFO_LOG_BUFFER, 3)                                                                     \
  X(CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, 4)                                                          \
  X(CU_JIT_ERROR_LOG_BUFFER, 5)                                                                    \
  X(CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, 6)                                                         \
  X(CU_FUNC_ATTRIBUTE_BINARY_VERSION, 6)                                                           \
  X(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 8)                                            \
  X(CU_LAUNCH_ATTRIBUTE_COOPERATIVE, 2)                                                            \
  X(CU_LAUNCH_ATTRIBUTE_PRIORITY, 8)

enum {
#define COLLI_CUDA_CONSTANT(name, value) COLLI_##name = value,
  COLLI_CUDA_CONSTANTS(COLLI_CUDA_CONSTANT)
#undef COLLI_CUDA_CONSTANT
};

#endif
