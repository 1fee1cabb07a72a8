/*
 * abi_check.c: compiles only if cuda_abi.h, cuda_entries.h, extra.h and nvml.h agree with the
 * toolkit's headers (some toolkits are without nvml.h). Has nothing to run.
 */
#include <cuda.h>
#include <cudaTypedefs.h>
#include <stddef.h>

#include "libcoll/gpu/cuda_abi.h"
#include "libcoll/gpu/cuda_entries.h"
#include "tests/gpu/driver/extra.h"

#define CONSTANT(name, value) _Static_assert((long long)COLLI_##name == (long long)(name), #name);
COLLI_CUDA_CONSTANTS(CONSTANT)

#define SAME_SIZE(ours, theirs)                                                                    \
  _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #ours);
#define SAME_PLACE(ours, field, theirs, their_field)                                               \
  _Static_assert(offsetof(ours, field) == offsetof(theirs, their_field), #ours "." #field);        \
  _Static_assert(sizeof(((ours *)0)->field) == sizeof(((theirs *)0)->their_field),                 \
                 #ours "." #field);

/* Every type that a function takes, ours and theirs. */
SAME_SIZE(colli_cu_result, CUresult)
SAME_SIZE(colli_cu_device, CUdevice)
SAME_SIZE(colli_cu_deviceptr, CUdeviceptr)
SAME_SIZE(colli_cu_allocation, CUmemGenericAllocationHandle)
SAME_SIZE(colli_cu_context, CUcontext)
SAME_SIZE(colli_cu_device_attribute, CUdevice_attribute)
SAME_SIZE(colli_cu_p2p_attribute, CUdevice_P2PAttribute)
SAME_SIZE(colli_cu_pointer_attribute, CUpointer_attribute)
SAME_SIZE(colli_cu_function_attribute, CUfunction_attribute)
SAME_SIZE(colli_cu_jit_option, CUjit_option)
SAME_SIZE(colli_cu_handle_type, CUmemAllocationHandleType)
SAME_SIZE(colli_cu_range_handle_type, CUmemRangeHandleType)
SAME_SIZE(colli_cu_granularity, CUmemAllocationGranularity_flags)
SAME_SIZE(colli_cu_flush_target, CUflushGPUDirectRDMAWritesTarget)
SAME_SIZE(colli_cu_flush_scope, CUflushGPUDirectRDMAWritesScope)
SAME_SIZE(colli_cu_capture_status, CUstreamCaptureStatus)
SAME_SIZE(colli_cu_capture_mode, CUstreamCaptureMode)
SAME_SIZE(colli_cu_query_result, CUdriverProcAddressQueryResult)
SAME_SIZE(colli_cu_uuid, CUuuid)
SAME_SIZE(colli_cu_ipc_handle, CUipcMemHandle)
SAME_SIZE(colli_cu_pool_pointer, CUmemPoolPtrExportData)
SAME_SIZE(colli_cu_pool_props, CUmemPoolProps)
SAME_SIZE(colli_cu_location, CUmemLocation)
SAME_SIZE(colli_cu_allocation_prop, CUmemAllocationProp)
SAME_SIZE(colli_cu_access, CUmemAccessDesc)
SAME_SIZE(colli_cu_memcpy_2d, CUDA_MEMCPY2D)
SAME_SIZE(colli_cu_mem_op, CUstreamBatchMemOpParams)
SAME_SIZE(colli_cu_launch_attribute, CUlaunchAttribute)
SAME_SIZE(colli_cu_launch_config, CUlaunchConfig)

SAME_PLACE(colli_cu_location, type, CUmemLocation, type)
SAME_PLACE(colli_cu_location, id, CUmemLocation, id)
SAME_PLACE(colli_cu_allocation_prop, type, CUmemAllocationProp, type)
SAME_PLACE(colli_cu_allocation_prop, requested_handle_types, CUmemAllocationProp,
           requestedHandleTypes)
SAME_PLACE(colli_cu_allocation_prop, location, CUmemAllocationProp, location)
SAME_PLACE(colli_cu_allocation_prop, win32_metadata, CUmemAllocationProp, win32HandleMetaData)
SAME_PLACE(colli_cu_allocation_prop, compression_type, CUmemAllocationProp,
           allocFlags.compressionType)
SAME_PLACE(colli_cu_allocation_prop, gpu_direct_rdma_capable, CUmemAllocationProp,
           allocFlags.gpuDirectRDMACapable)
SAME_PLACE(colli_cu_allocation_prop, usage, CUmemAllocationProp, allocFlags.usage)
SAME_PLACE(colli_cu_pool_props, type, CUmemPoolProps, allocType)
SAME_PLACE(colli_cu_pool_props, handle_types, CUmemPoolProps, handleTypes)
SAME_PLACE(colli_cu_pool_props, location, CUmemPoolProps, location)
SAME_PLACE(colli_cu_pool_props, win32_attributes, CUmemPoolProps, win32SecurityAttributes)
SAME_PLACE(colli_cu_pool_props, most_bytes, CUmemPoolProps, maxSize)
SAME_PLACE(colli_cu_access, location, CUmemAccessDesc, location)
SAME_PLACE(colli_cu_access, flags, CUmemAccessDesc, flags)
SAME_PLACE(colli_cu_memcpy_2d, from_x, CUDA_MEMCPY2D, srcXInBytes)
SAME_PLACE(colli_cu_memcpy_2d, from_y, CUDA_MEMCPY2D, srcY)
SAME_PLACE(colli_cu_memcpy_2d, from_type, CUDA_MEMCPY2D, srcMemoryType)
SAME_PLACE(colli_cu_memcpy_2d, from_host, CUDA_MEMCPY2D, srcHost)
SAME_PLACE(colli_cu_memcpy_2d, from_device, CUDA_MEMCPY2D, srcDevice)
SAME_PLACE(colli_cu_memcpy_2d, from_array, CUDA_MEMCPY2D, srcArray)
SAME_PLACE(colli_cu_memcpy_2d, from_pitch, CUDA_MEMCPY2D, srcPitch)
SAME_PLACE(colli_cu_memcpy_2d, to_x, CUDA_MEMCPY2D, dstXInBytes)
SAME_PLACE(colli_cu_memcpy_2d, to_y, CUDA_MEMCPY2D, dstY)
SAME_PLACE(colli_cu_memcpy_2d, to_type, CUDA_MEMCPY2D, dstMemoryType)
SAME_PLACE(colli_cu_memcpy_2d, to_host, CUDA_MEMCPY2D, dstHost)
SAME_PLACE(colli_cu_memcpy_2d, to_device, CUDA_MEMCPY2D, dstDevice)
SAME_PLACE(colli_cu_memcpy_2d, to_array, CUDA_MEMCPY2D, dstArray)
SAME_PLACE(colli_cu_memcpy_2d, to_pitch, CUDA_MEMCPY2D, dstPitch)
SAME_PLACE(colli_cu_memcpy_2d, row_bytes, CUDA_MEMCPY2D, WidthInBytes)
SAME_PLACE(colli_cu_memcpy_2d, rows, CUDA_MEMCPY2D, Height)
SAME_PLACE(colli_cu_mem_op, wait.address, CUstreamBatchMemOpParams, waitValue.address)
SAME_PLACE(colli_cu_mem_op, wait.value, CUstreamBatchMemOpParams, waitValue.value64)
SAME_PLACE(colli_cu_mem_op, wait.flags, CUstreamBatchMemOpParams, waitValue.flags)
SAME_PLACE(colli_cu_mem_op, write.address, CUstreamBatchMemOpParams, writeValue.address)
SAME_PLACE(colli_cu_mem_op, write.value, CUstreamBatchMemOpParams, writeValue.value64)
SAME_PLACE(colli_cu_mem_op, write.flags, CUstreamBatchMemOpParams, writeValue.flags)
SAME_PLACE(colli_cu_launch_attribute, id, CUlaunchAttribute, id)
SAME_PLACE(colli_cu_launch_attribute, value, CUlaunchAttribute, value)
SAME_PLACE(colli_cu_launch_attribute, value.number, CUlaunchAttribute, value.priority)
SAME_PLACE(colli_cu_launch_config, grid[0], CUlaunchConfig, gridDimX)
SAME_PLACE(colli_cu_launch_config, grid[2], CUlaunchConfig, gridDimZ)
SAME_PLACE(colli_cu_launch_config, block[0], CUlaunchConfig, blockDimX)
SAME_PLACE(colli_cu_launch_config, block[2], CUlaunchConfig, blockDimZ)
SAME_PLACE(colli_cu_launch_config, shared_bytes, CUlaunchConfig, sharedMemBytes)
SAME_PLACE(colli_cu_launch_config, stream, CUlaunchConfig, hStream)
SAME_PLACE(colli_cu_launch_config, attributes, CUlaunchConfig, attrs)
SAME_PLACE(colli_cu_launch_config, attributes_count, CUlaunchConfig, numAttrs)

SAME_SIZE(colli_cu_pool, CUmemoryPool)

/* With the toolkit's types in place of ours, the functions have the toolkit's types. */
#define colli_cu_result             CUresult
#define colli_cu_device             CUdevice
#define colli_cu_deviceptr          CUdeviceptr
#define colli_cu_allocation         CUmemGenericAllocationHandle
#define colli_cu_context            CUcontext
#define colli_cu_module             CUmodule
#define colli_cu_function           CUfunction
#define colli_cu_stream             CUstream
#define colli_cu_event              CUevent
#define colli_cu_graph              CUgraph
#define colli_cu_graph_node         CUgraphNode
#define colli_cu_graph_exec         CUgraphExec
#define colli_cu_user_object        CUuserObject
#define colli_cu_host_fn            CUhostFn
#define colli_cu_device_attribute   CUdevice_attribute
#define colli_cu_p2p_attribute      CUdevice_P2PAttribute
#define colli_cu_pointer_attribute  CUpointer_attribute
#define colli_cu_function_attribute CUfunction_attribute
#define colli_cu_jit_option         CUjit_option
#define colli_cu_handle_type        CUmemAllocationHandleType
#define colli_cu_range_handle_type  CUmemRangeHandleType
#define colli_cu_granularity        CUmemAllocationGranularity_flags
#define colli_cu_flush_target       CUflushGPUDirectRDMAWritesTarget
#define colli_cu_flush_scope        CUflushGPUDirectRDMAWritesScope
#define colli_cu_capture_status     CUstreamCaptureStatus
#define colli_cu_capture_mode       CUstreamCaptureMode
#define colli_cu_uuid               CUuuid
#define colli_cu_ipc_handle         CUipcMemHandle
#define colli_cu_allocation_prop    CUmemAllocationProp
#define colli_cu_access             CUmemAccessDesc
#define colli_cu_pool               CUmemoryPool
#define colli_cu_pool_pointer       CUmemPoolPtrExportData
#define colli_cu_pool_props         CUmemPoolProps
#define colli_cu_memcpy_2d          CUDA_MEMCPY2D
#define colli_cu_mem_op             CUstreamBatchMemOpParams
#define colli_cu_launch_config      CUlaunchConfig

#define SAME_FUNCTION(field, name, suffix, version, arguments)                                     \
  _Static_assert(                                                                                  \
      __builtin_types_compatible_p(CUresult(CUDAAPI *) arguments, PFN_##name##_v##version),        \
      #name);
COLLI_CUDA_ENTRIES(SAME_FUNCTION)
FAKE_CUDA_EXTRA(SAME_FUNCTION)

#if __has_include(<nvml.h>)
#include <nvml.h>

#include "libcoll/gpu/nvml.h"

COLLI_NVML_CONSTANTS(CONSTANT)
SAME_SIZE(colli_nvml_result, nvmlReturn_t)
SAME_SIZE(int, nvmlEnableState_t)
SAME_SIZE(int, nvmlIntNvLinkDeviceType_t)
SAME_SIZE(colli_nvml_pci, nvmlPciInfo_t)
SAME_PLACE(colli_nvml_pci, domain, nvmlPciInfo_t, domain)
SAME_PLACE(colli_nvml_pci, bus, nvmlPciInfo_t, bus)
SAME_PLACE(colli_nvml_pci, device, nvmlPciInfo_t, device)
SAME_PLACE(colli_nvml_pci, bus_id, nvmlPciInfo_t, busId)

/* The functions, with the library's types in place of ours. */
#define SAME_NVML(name, ...)                                                                       \
  _Static_assert(__builtin_types_compatible_p(nvmlReturn_t(*)(__VA_ARGS__), __typeof__(&name)),    \
                 #name);
SAME_NVML(nvmlInit_v2, void)
SAME_NVML(nvmlShutdown, void)
SAME_NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *, colli_nvml_device *)
SAME_NVML(nvmlDeviceGetNvLinkState, colli_nvml_device, unsigned, nvmlEnableState_t *)
SAME_NVML(nvmlDeviceGetNvLinkRemotePciInfo_v2, colli_nvml_device, unsigned, nvmlPciInfo_t *)
SAME_NVML(nvmlDeviceGetNvLinkRemoteDeviceType, colli_nvml_device, unsigned,
          nvmlIntNvLinkDeviceType_t *)
#endif
