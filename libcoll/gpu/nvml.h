/*
 * nvml.h: NVIDIA's management library, which knows the NVLinks between GPUs; loaded at run time,
 * for tools. The types are those of the library's nvml.h, with our names, so that no toolkit is
 * needed.
 */
#ifndef COLLI_GPU_NVML_H
#define COLLI_GPU_NVML_H

#include "coll/coll.h"

#define COLLI_NVML_LIBRARY "libnvidia-ml.so.1"

typedef int colli_nvml_result; /* COLLI_NVML_SUCCESS, or an error */
typedef struct nvmlDevice_st *colli_nvml_device;

/* Where a device is on the PCI bus. */
typedef struct colli_nvml_pci {
  char bus_id_legacy[16];
  unsigned domain, bus, device;
  unsigned pci_device_id, pci_subsystem_id;
  char bus_id[32];
} colli_nvml_pci;

/* X(name in nvml.h, value): all constants. */
#define COLLI_NVML_CONSTANTS(X)                                                                    \
  X(NVML_SUCCESS, 0)                                                                               \
  X(NVML_ERROR_INVALID_ARGUMENT, 2)                                                                \
  X(NVML_ERROR_NOT_SUPPORTED, 3)                                                                   \
  X(NVML_ERROR_NOT_FOUND, 6)                                                                       \
  X(NVML_FEATURE_ENABLED, 1)                                                                       \
  X(NVML_NVLINK_DEVICE_TYPE_GPU, 0)                                                                \
  X(NVML_NVLINK_DEVICE_TYPE_IBMNPU, 1)                                                             \
  X(NVML_NVLINK_DEVICE_TYPE_SWITCH, 2)                                                             \
  X(NVML_NVLINK_DEVICE_TYPE_UNKNOWN, 255)

enum {
#define COLLI_NVML_CONSTANT(name, value) COLLI_##name = value,
  COLLI_NVML_CONSTANTS(COLLI_NVML_CONSTANT)
#undef COLLI_NVML_CONSTANT
};

#define COLLI_NVML_LINKS 64 /* numbers of a GPU's links are below this; so far there are 36 */

/* X(field, name, suffix, required, arguments): the field of colli_nvml; the name in the library,
 * whose symbol adds the suffix; and whether all libraries in use have it. */
#define COLLI_NVML_ENTRIES(X)                                                                      \
  X(init, nvmlInit, _v2, true, (void))                                                             \
  X(shutdown, nvmlShutdown, , true, (void))                                                        \
  X(get_by_bus, nvmlDeviceGetHandleByPciBusId, _v2, true,                                          \
    (const char *bus, colli_nvml_device *device))                                                  \
  X(link_state, nvmlDeviceGetNvLinkState, , true,                                                  \
    (colli_nvml_device device, unsigned link, int *enabled))                                       \
  X(link_remote_pci, nvmlDeviceGetNvLinkRemotePciInfo, _v2, true,                                  \
    (colli_nvml_device device, unsigned link, colli_nvml_pci *pci))                                \
  X(link_remote_type, nvmlDeviceGetNvLinkRemoteDeviceType, , false,                                \
    (colli_nvml_device device, unsigned link, int *type))

/* The library's functions. */
typedef struct colli_nvml {
  void *handle; /* of dlopen(); NULL: not loaded */
#define COLLI_NVML_FIELD(field, name, suffix, required, arguments)                                 \
  colli_nvml_result(*field) arguments;
  COLLI_NVML_ENTRIES(COLLI_NVML_FIELD)
#undef COLLI_NVML_FIELD
} colli_nvml;

/*
 * Loads the library `name` (COLLI_NVML_LIBRARY), fills in the table and initialises it.
 * UNSUPPORTED, with the reason, if it is not there, too old, or does not work; then the table is
 * zero.
 */
coll_status colli_nvml_load(colli_nvml *nvml, const char *name, coll_error *error);

/* Ends the use of a library that was loaded, and zeroes the table; else does nothing. */
void colli_nvml_close(colli_nvml *nvml);

#endif
