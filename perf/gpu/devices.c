/* devices.c: what the driver and its GPUs say of themselves. */
#include <stdio.h>

#include "probe.h"

/* An attribute of a device, or -1 where the driver does not know it. */
static int attribute(const probe *p, int device, int which) {
  int value = -1;
  if (p->cuda.device_get_attribute(&value, which, device) != COLLI_CUDA_SUCCESS)
    return -1;
  return value;
}

/* Prints which other devices a device reaches. */
static void print_peers(const probe *p, int device) {
  printf("\"peers\": [");
  for (int peer = 0; peer < p->ndevices; peer++) {
    int can = 1;
    if (peer != device)
      PROBE_OK(p, device_can_access_peer, &can, device, peer);
    printf("%s%d", peer ? ", " : "", can);
  }
  printf("]");
}

void probe_devices(const probe_options *options) {
  (void)options;
  probe p;
  probe_load(&p);
  printf("{\"probe\": \"driver\", \"cuda\": \"%d.%d\", \"devices\": %d, \"software\": %s, "
         "\"missing\": [",
         p.cuda.driver_version / 1000, p.cuda.driver_version % 1000 / 10, p.ndevices,
         probe_is_software(&p) ? "true" : "false");
  const char *comma = "";
#define MISSING(field, name, suffix, version, arguments)                                           \
  if (!p.cuda.field) {                                                                             \
    printf("%s\"" #name "\"", comma);                                                              \
    comma = ", ";                                                                                  \
  }
  COLLI_CUDA_ENTRIES(MISSING)
  printf("]}\n");
  for (int device = 0; device < p.ndevices; device++) {
    char name[128] = "", pci[32] = "";
    PROBE_OK(&p, device_get_name, name, (int)sizeof(name), device);
    PROBE_OK(&p, device_get_pci_bus_id, pci, (int)sizeof(pci), device);
    printf("{\"probe\": \"device\", \"number\": %d, \"name\": \"%s\", \"pci\": \"%s\", ", device,
           name, pci);
    printf("\"compute\": \"%d.%d\", \"multiprocessors\": %d, \"virtual_memory\": %d, "
           "\"handles_as_files\": %d, \"rdma\": %d, \"dma_buf\": %d, ",
           attribute(&p, device, COLLI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR),
           attribute(&p, device, COLLI_CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR),
           attribute(&p, device, COLLI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT),
           attribute(&p, device, COLLI_CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED),
           attribute(&p, device,
                     COLLI_CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED),
           attribute(&p, device, COLLI_CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_SUPPORTED),
           attribute(&p, device, COLLI_CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED));
    print_peers(&p, device);
    printf("}\n");
  }
}
