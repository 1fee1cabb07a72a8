/* verbs_locality.c: where a device sits, from what sysfs says of it. */
#include <limits.h>
#include <stdio.h>

#include "transports/verbs/verbs_device_internal.h"

void verbs_locality_find(const struct ibv_device *device, verbs_rail *rail) {
  char folder[PATH_MAX];
  snprintf(folder, sizeof(folder), "%.*s/device", IBV_SYSFS_PATH_MAX, device->ibdev_path);
  (void)colli_pci_find(folder, rail->pci, &rail->place); /* a device in software has no place */
}
