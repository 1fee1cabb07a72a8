/* driver_device.c: devices, their attributes and contexts, peers. */
#include <stdio.h>
#include <string.h>

#include "driver.h"

/* The current context of each thread: CUDA's driver keeps it so. */
static _Thread_local driver_context *current;

driver_context *driver_current(void) {
  return current;
}

driver_device *driver_device_of(const driver_context *context) {
  return &driver_get()->devices[context->device];
}

/* Whether there is such a device. */
static bool exists(colli_cu_device device) {
  return device >= 0 && device < driver_get()->settings.devices;
}

bool driver_can_access(const driver_state *state, int device, int peer) {
  const char *peers = state->settings.peers;
  if (device == peer || strcmp(peers, "none") == 0)
    return false;
  return strcmp(peers, "all") == 0 || peers[device * state->settings.devices + peer] == '1';
}

/* Begins a call about a device. */
static colli_cu_result enter_device(colli_cu_device device) {
  colli_cu_result result = driver_enter();
  if (result == COLLI_CUDA_SUCCESS && !exists(device))
    result = driver_leave(COLLI_CUDA_ERROR_INVALID_DEVICE);
  return result;
}

colli_cu_result cuDriverGetVersion(int *version) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *version = 12040;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDeviceGetCount(int *count) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *count = driver_get()->settings.devices;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDeviceGet(colli_cu_device *device, int ordinal) {
  colli_cu_result result = enter_device(ordinal);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *device = ordinal;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDeviceGetName(char *name, int name_bytes, colli_cu_device device) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  snprintf(name, (size_t)(name_bytes > 0 ? name_bytes : 0), "software GPU");
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* The value of an attribute, or -1 if it is unknown. */
static int attribute_of(colli_cu_device_attribute attribute) {
  const int rdma = driver_get()->settings.rdma;
  switch (attribute) {
  case COLLI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
    return driver_get()->settings.resident; /* with one block each */
  case COLLI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
    return driver_get()->settings.arch / 10;
  case COLLI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
    return driver_get()->settings.arch % 10;
  case COLLI_CU_DEVICE_ATTRIBUTE_MAX_PITCH:
    return driver_get()->settings.pitch;
  case COLLI_CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
  case COLLI_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    return 1;
  case COLLI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    return !driver_get()->settings.no_ipc;
  case COLLI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED:
  case COLLI_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED:
    return rdma != RDMA_NONE;
  case COLLI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_FLUSH_WRITES_OPTIONS:
    return rdma == RDMA_FLUSHED ? COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_OPTION_HOST : 0;
  case COLLI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WRITES_ORDERING:
    return rdma == RDMA_ORDERED || rdma == RDMA_NO_RANGES
               ? COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER
               : 0;
  default:
    return -1;
  }
}

colli_cu_result cuDeviceGetAttribute(int *value, colli_cu_device_attribute attribute,
                                     colli_cu_device device) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const int known = attribute_of(attribute);
  if (known < 0)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  *value = known;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDeviceGetUuid_v2(colli_cu_uuid *uuid, colli_cu_device device) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  memset(uuid->bytes, 0x5a, sizeof(uuid->bytes));
  uuid->bytes[15] = (char)device;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDeviceGetPCIBusId(char *id, int id_bytes, colli_cu_device device) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const int length =
      snprintf(id, (size_t)(id_bytes > 0 ? id_bytes : 0), "0000:%02x:00.0", (unsigned)device + 1);
  return driver_leave(length < id_bytes ? COLLI_CUDA_SUCCESS : COLLI_CUDA_ERROR_INVALID_VALUE);
}

colli_cu_result cuDevicePrimaryCtxRetain(colli_cu_context *context, colli_cu_device device) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_context *primary = &driver_get()->devices[device].context;
  primary->retained++;
  *context = (colli_cu_context)primary;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDevicePrimaryCtxRelease_v2(colli_cu_device device) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_context *primary = &driver_get()->devices[device].context;
  if (!primary->retained)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_CONTEXT);
  primary->retained--;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDevicePrimaryCtxGetState(colli_cu_device device, unsigned *flags, int *active) {
  colli_cu_result result = enter_device(device);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *flags = 0;
  *active = driver_get()->devices[device].context.retained > 0;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuCtxGetCurrent(colli_cu_context *context) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *context = (colli_cu_context)current;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* The context of a handle, or NULL. */
static driver_context *context_of(colli_cu_context handle) {
  driver_state *s = driver_get();
  for (int i = 0; i < s->settings.devices; i++)
    if ((colli_cu_context)&s->devices[i].context == handle && s->devices[i].context.retained)
      return &s->devices[i].context;
  return NULL;
}

colli_cu_result cuCtxSetCurrent(colli_cu_context context) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_context *found = context_of(context);
  if (context && !found)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_CONTEXT);
  current = found;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuCtxGetDevice(colli_cu_device *device) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!current)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_CONTEXT);
  *device = current->device;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuCtxEnablePeerAccess(colli_cu_context peer, unsigned flags) {
  driver_context *context, *other;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  other = context_of(peer);
  if (flags)
    result = COLLI_CUDA_ERROR_INVALID_VALUE;
  else if (!other || other == context)
    result = COLLI_CUDA_ERROR_INVALID_CONTEXT;
  else if (!driver_can_access(driver_get(), context->device, other->device))
    result = COLLI_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
  else if (context->peers >> other->device & 1)
    result = COLLI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
  else
    context->peers |= 1u << other->device;
  return driver_leave(result);
}

colli_cu_result cuDeviceCanAccessPeer(int *can, colli_cu_device device, colli_cu_device peer) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!exists(device) || !exists(peer))
    return driver_leave(COLLI_CUDA_ERROR_INVALID_DEVICE);
  *can = driver_can_access(driver_get(), device, peer);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuDeviceGetP2PAttribute(int *value, colli_cu_p2p_attribute attribute,
                                        colli_cu_device from, colli_cu_device to) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!exists(from) || !exists(to) || from == to)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_DEVICE);
  *value = driver_can_access(driver_get(), from, to);
  if (attribute == COLLI_CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK)
    *value = 0;
  else if (attribute != COLLI_CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED &&
           attribute != COLLI_CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED)
    result = COLLI_CUDA_ERROR_INVALID_VALUE;
  return driver_leave(result);
}
