/* cuda_entries.h: the functions of CUDA's driver that libcoll calls. */
#ifndef COLLI_GPU_CUDA_ENTRIES_H
#define COLLI_GPU_CUDA_ENTRIES_H

/*
 * X(field, name, suffix, version, arguments): the field of colli_cuda; the name in the driver, to
 * which the library's symbol adds the suffix; and the version of CUDA that brought this form of it,
 * 1000 * major + 10 * minor. Later forms may take other arguments.
 */
#define COLLI_CUDA_ENTRIES(X)                                                                      \
  COLLI_CUDA_DEVICES(X)                                                                            \
  COLLI_CUDA_MEMORY(X)                                                                             \
  COLLI_CUDA_SHARING(X)                                                                            \
  COLLI_CUDA_STREAMS(X)                                                                            \
  COLLI_CUDA_CAPTURE(X)                                                                            \
  COLLI_CUDA_KERNELS(X)

#define COLLI_CUDA_DEVICES(X)                                                                      \
  X(init, cuInit, , 2000, (unsigned flags))                                                        \
  X(driver_get_version, cuDriverGetVersion, , 2020, (int *version))                                \
  X(get_error_name, cuGetErrorName, , 6000, (colli_cu_result error, const char **text))            \
  X(get_error_string, cuGetErrorString, , 6000, (colli_cu_result error, const char **text))        \
  X(device_get_count, cuDeviceGetCount, , 2000, (int *count))                                      \
  X(device_get, cuDeviceGet, , 2000, (colli_cu_device * device, int ordinal))                      \
  X(device_get_name, cuDeviceGetName, , 2000,                                                      \
    (char *name, int name_bytes, colli_cu_device device))                                          \
  X(device_get_attribute, cuDeviceGetAttribute, , 2000,                                            \
    (int *value, colli_cu_device_attribute attribute, colli_cu_device device))                     \
  X(device_get_uuid, cuDeviceGetUuid, _v2, 11040, (colli_cu_uuid * uuid, colli_cu_device device))  \
  X(device_get_pci_bus_id, cuDeviceGetPCIBusId, , 4010,                                            \
    (char *id, int id_bytes, colli_cu_device device))                                              \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, , 7000,                                          \
    (colli_cu_context * context, colli_cu_device device))                                          \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease, _v2, 11000, (colli_cu_device device))          \
  X(primary_ctx_get_state, cuDevicePrimaryCtxGetState, , 7000,                                     \
    (colli_cu_device device, unsigned *flags, int *active))                                        \
  X(ctx_get_current, cuCtxGetCurrent, , 4000, (colli_cu_context * context))                        \
  X(ctx_set_current, cuCtxSetCurrent, , 4000, (colli_cu_context context))                          \
  X(ctx_get_device, cuCtxGetDevice, , 2000, (colli_cu_device * device))                            \
  X(ctx_enable_peer_access, cuCtxEnablePeerAccess, , 4000,                                         \
    (colli_cu_context peer, unsigned flags))                                                       \
  X(device_can_access_peer, cuDeviceCanAccessPeer, , 4000,                                         \
    (int *can, colli_cu_device device, colli_cu_device peer))                                      \
  X(device_get_p2p_attribute, cuDeviceGetP2PAttribute, , 8000,                                     \
    (int *value, colli_cu_p2p_attribute attribute, colli_cu_device from, colli_cu_device to))

#define COLLI_CUDA_MEMORY(X)                                                                       \
  X(pointer_get_attributes, cuPointerGetAttributes, , 7000,                                        \
    (unsigned count, colli_cu_pointer_attribute *attributes, void **values,                        \
     colli_cu_deviceptr at))                                                                       \
  X(pointer_set_attribute, cuPointerSetAttribute, , 6000,                                          \
    (const void *value, colli_cu_pointer_attribute attribute, colli_cu_deviceptr at))              \
  X(mem_get_address_range, cuMemGetAddressRange, _v2, 3020,                                        \
    (colli_cu_deviceptr * base, size_t * bytes, colli_cu_deviceptr at))                            \
  X(mem_alloc, cuMemAlloc, _v2, 3020, (colli_cu_deviceptr * at, size_t bytes))                     \
  X(mem_free, cuMemFree, _v2, 3020, (colli_cu_deviceptr at))                                       \
  X(mem_host_alloc, cuMemHostAlloc, , 2020, (void **at, size_t bytes, unsigned flags))             \
  X(mem_free_host, cuMemFreeHost, , 2000, (void *at))                                              \
  X(mem_host_register, cuMemHostRegister, _v2, 6050, (void *at, size_t bytes, unsigned flags))     \
  X(mem_host_unregister, cuMemHostUnregister, , 4000, (void *at))                                  \
  X(mem_host_get_device_pointer, cuMemHostGetDevicePointer, _v2, 3020,                             \
    (colli_cu_deviceptr * device, void *host, unsigned flags))                                     \
  X(memcpy_async, cuMemcpyAsync, , 4000,                                                           \
    (colli_cu_deviceptr to, colli_cu_deviceptr from, size_t bytes, colli_cu_stream stream))        \
  X(memcpy_htod_async, cuMemcpyHtoDAsync, _v2, 3020,                                               \
    (colli_cu_deviceptr to, const void *from, size_t bytes, colli_cu_stream stream))               \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync, _v2, 3020,                                               \
    (void *to, colli_cu_deviceptr from, size_t bytes, colli_cu_stream stream))                     \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync, _v2, 3020,                                               \
    (colli_cu_deviceptr to, colli_cu_deviceptr from, size_t bytes, colli_cu_stream stream))        \
  X(memcpy_2d_async, cuMemcpy2DAsync, _v2, 3020,                                                   \
    (const colli_cu_memcpy_2d *rows, colli_cu_stream stream))                                      \
  X(memset_d32_async, cuMemsetD32Async, , 3020,                                                    \
    (colli_cu_deviceptr at, unsigned value, size_t count, colli_cu_stream stream))

#define COLLI_CUDA_SHARING(X)                                                                      \
  X(ipc_get_mem_handle, cuIpcGetMemHandle, , 4010,                                                 \
    (colli_cu_ipc_handle * handle, colli_cu_deviceptr at))                                         \
  X(ipc_open_mem_handle, cuIpcOpenMemHandle, _v2, 11000,                                           \
    (colli_cu_deviceptr * at, colli_cu_ipc_handle handle, unsigned flags))                         \
  X(ipc_close_mem_handle, cuIpcCloseMemHandle, , 4010, (colli_cu_deviceptr at))                    \
  X(mem_create, cuMemCreate, , 10020,                                                              \
    (colli_cu_allocation * handle, size_t bytes, const colli_cu_allocation_prop *prop,             \
     unsigned long long flags))                                                                    \
  X(mem_release, cuMemRelease, , 10020, (colli_cu_allocation handle))                              \
  X(mem_address_reserve, cuMemAddressReserve, , 10020,                                             \
    (colli_cu_deviceptr * at, size_t bytes, size_t alignment, colli_cu_deviceptr wanted,           \
     unsigned long long flags))                                                                    \
  X(mem_address_free, cuMemAddressFree, , 10020, (colli_cu_deviceptr at, size_t bytes))            \
  X(mem_map, cuMemMap, , 10020,                                                                    \
    (colli_cu_deviceptr at, size_t bytes, size_t offset, colli_cu_allocation handle,               \
     unsigned long long flags))                                                                    \
  X(mem_unmap, cuMemUnmap, , 10020, (colli_cu_deviceptr at, size_t bytes))                         \
  X(mem_set_access, cuMemSetAccess, , 10020,                                                       \
    (colli_cu_deviceptr at, size_t bytes, const colli_cu_access *access, size_t count))            \
  X(mem_retain_allocation_handle, cuMemRetainAllocationHandle, , 11000,                            \
    (colli_cu_allocation * handle, void *at))                                                      \
  X(mem_export, cuMemExportToShareableHandle, , 10020,                                             \
    (void *shareable, colli_cu_allocation handle, colli_cu_handle_type type,                       \
     unsigned long long flags))                                                                    \
  X(mem_import, cuMemImportFromShareableHandle, , 10020,                                           \
    (colli_cu_allocation * handle, void *shareable, colli_cu_handle_type type))                    \
  X(pool_export, cuMemPoolExportToShareableHandle, , 11020,                                        \
    (void *shareable, colli_cu_pool pool, colli_cu_handle_type type, unsigned long long flags))    \
  X(pool_import, cuMemPoolImportFromShareableHandle, , 11020,                                      \
    (colli_cu_pool * pool, void *shareable, colli_cu_handle_type type, unsigned long long flags))  \
  X(pool_export_pointer, cuMemPoolExportPointer, , 11020,                                          \
    (colli_cu_pool_pointer * pointer, colli_cu_deviceptr at))                                      \
  X(pool_import_pointer, cuMemPoolImportPointer, , 11020,                                          \
    (colli_cu_deviceptr * at, colli_cu_pool pool, colli_cu_pool_pointer * pointer))                \
  X(pool_set_access, cuMemPoolSetAccess, , 11020,                                                  \
    (colli_cu_pool pool, const colli_cu_access *access, size_t count))                             \
  X(pool_destroy, cuMemPoolDestroy, , 11020, (colli_cu_pool pool))                                 \
  X(mem_get_granularity, cuMemGetAllocationGranularity, , 10020,                                   \
    (size_t * bytes, const colli_cu_allocation_prop *prop, colli_cu_granularity which))            \
  X(mem_get_range_handle, cuMemGetHandleForAddressRange, , 11070,                                  \
    (void *handle, colli_cu_deviceptr at, size_t bytes, colli_cu_range_handle_type type,           \
     unsigned long long flags))                                                                    \
  X(flush_rdma_writes, cuFlushGPUDirectRDMAWrites, , 11030,                                        \
    (colli_cu_flush_target target, colli_cu_flush_scope scope))

#define COLLI_CUDA_STREAMS(X)                                                                      \
  X(stream_create, cuStreamCreateWithPriority, , 5050,                                             \
    (colli_cu_stream * stream, unsigned flags, int priority))                                      \
  X(stream_destroy, cuStreamDestroy, _v2, 4000, (colli_cu_stream stream))                          \
  X(stream_query, cuStreamQuery, , 2000, (colli_cu_stream stream))                                 \
  X(stream_synchronize, cuStreamSynchronize, , 2000, (colli_cu_stream stream))                     \
  X(stream_get_ctx, cuStreamGetCtx, , 9020, (colli_cu_stream stream, colli_cu_context * context))  \
  X(stream_wait_event, cuStreamWaitEvent, , 3020,                                                  \
    (colli_cu_stream stream, colli_cu_event event, unsigned flags))                                \
  X(event_create, cuEventCreate, , 2000, (colli_cu_event * event, unsigned flags))                 \
  X(event_record, cuEventRecord, , 2000, (colli_cu_event event, colli_cu_stream stream))           \
  X(event_query, cuEventQuery, , 2000, (colli_cu_event event))                                     \
  X(event_synchronize, cuEventSynchronize, , 2000, (colli_cu_event event))                         \
  X(event_destroy, cuEventDestroy, _v2, 4000, (colli_cu_event event))                              \
  X(stream_wait_value_32, cuStreamWaitValue32, _v2, 11070,                                         \
    (colli_cu_stream stream, colli_cu_deviceptr at, uint32_t value, unsigned flags))               \
  X(stream_write_value_32, cuStreamWriteValue32, _v2, 11070,                                       \
    (colli_cu_stream stream, colli_cu_deviceptr at, uint32_t value, unsigned flags))               \
  X(stream_batch_mem_op, cuStreamBatchMemOp, _v2, 11070,                                           \
    (colli_cu_stream stream, unsigned count, colli_cu_mem_op *ops, unsigned flags))                \
  X(launch_host_func, cuLaunchHostFunc, , 10000,                                                   \
    (colli_cu_stream stream, colli_cu_host_fn function, void *context))

#define COLLI_CUDA_CAPTURE(X)                                                                      \
  X(stream_is_capturing, cuStreamIsCapturing, , 10000,                                             \
    (colli_cu_stream stream, colli_cu_capture_status * status))                                    \
  X(stream_get_capture_info, cuStreamGetCaptureInfo, _v2, 11030,                                   \
    (colli_cu_stream stream, colli_cu_capture_status * status, uint64_t * id,                      \
     colli_cu_graph * graph, const colli_cu_graph_node **dependencies, size_t *count))             \
  X(exchange_capture_mode, cuThreadExchangeStreamCaptureMode, , 10010,                             \
    (colli_cu_capture_mode * mode))                                                                \
  X(user_object_create, cuUserObjectCreate, , 11030,                                               \
    (colli_cu_user_object * object, void *context, colli_cu_host_fn destroy, unsigned references,  \
     unsigned flags))                                                                              \
  X(user_object_release, cuUserObjectRelease, , 11030,                                             \
    (colli_cu_user_object object, unsigned count))                                                 \
  X(graph_retain_user_object, cuGraphRetainUserObject, , 11030,                                    \
    (colli_cu_graph graph, colli_cu_user_object object, unsigned count, unsigned flags))

#define COLLI_CUDA_KERNELS(X)                                                                      \
  X(module_load, cuModuleLoadDataEx, , 2010,                                                       \
    (colli_cu_module * module, const void *image, unsigned count, colli_cu_jit_option *options,    \
     void **values))                                                                               \
  X(module_unload, cuModuleUnload, , 2000, (colli_cu_module module))                               \
  X(module_get_function, cuModuleGetFunction, , 2000,                                              \
    (colli_cu_function * function, colli_cu_module module, const char *name))                      \
  X(func_load, cuFuncLoad, , 12040, (colli_cu_function function))                                  \
  X(func_get_attribute, cuFuncGetAttribute, , 2020,                                                \
    (int *value, colli_cu_function_attribute attribute, colli_cu_function function))               \
  X(func_set_attribute, cuFuncSetAttribute, , 9000,                                                \
    (colli_cu_function function, colli_cu_function_attribute attribute, int value))                \
  X(launch_kernel, cuLaunchKernelEx, , 11060,                                                      \
    (const colli_cu_launch_config *config, colli_cu_function function, void **arguments,           \
     void **extra))                                                                                \
  X(launch_cooperative, cuLaunchCooperativeKernel, , 9000,                                         \
    (colli_cu_function function, unsigned grid_x, unsigned grid_y, unsigned grid_z,                \
     unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,                  \
     colli_cu_stream stream, void **arguments))                                                    \
  X(occupancy_max_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor, , 6050,                     \
    (int *blocks, colli_cu_function function, int threads, size_t shared_bytes))

#endif
