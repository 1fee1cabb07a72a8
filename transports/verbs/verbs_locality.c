/* verbs_locality.c: where a device sits, from what sysfs says of it. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "transports/verbs/verbs_device_internal.h"

/* Whether a name is a PCI address such as 0000:3b:00.0. */
static bool is_pci(const char *name) {
  unsigned domain, bus, slot, function;
  int used = 0;
  return sscanf(name, "%x:%2x:%2x.%1x%n", &domain, &bus, &slot, &function, &used) == 4 &&
         used > 0 && !name[used];
}

void verbs_locality_find(const struct ibv_device *device, verbs_rail *rail) {
  char path[PATH_MAX], real[PATH_MAX];
  *rail->pci = 0;
  rail->numa_node = -1;
  snprintf(path, sizeof(path), "%.*s/device", IBV_SYSFS_PATH_MAX, device->ibdev_path);
  if (!realpath(path, real))
    return; /* a device in software has no place */
  const char *name = strrchr(real, '/');
  if (!name || !is_pci(name + 1))
    return;
  snprintf(rail->pci, sizeof(rail->pci), "%.31s", name + 1);
  snprintf(path, sizeof(path), "%.4000s/numa_node", real);
  FILE *file = fopen(path, "re");
  int node;
  if (file && fscanf(file, "%d", &node) == 1 && node >= 0)
    rail->numa_node = node;
  if (file)
    fclose(file);
}
