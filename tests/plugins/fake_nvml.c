/*
 * fake_nvml.c: a library that looks like NVIDIA's management library, for collrun/gpus.sh. Its
 * devices have the PCI addresses of the fake driver of tests/gpu: bus n + 1 for GPU n. $FAKE_NVML
 * has a word for each, with a letter for each of its NVLinks: a digit is the GPU at the other end,
 * "s" a switch, "?" something unknown, "-" a link that is off. $FAKE_NVML_FAIL=1: nvmlInit fails.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/gpu/nvml.h"

#define EXPORTED __attribute__((visibility("default")))

/* The library's prototypes. */
#define DECLARE(field, name, suffix, required, arguments)                                          \
  EXPORTED colli_nvml_result name##suffix arguments;
COLLI_NVML_ENTRIES(DECLARE)

static char devices[16]; /* their addresses are handles */

/* What a link of a device leads to, or 0. */
static char end_of(colli_nvml_device device, unsigned link) {
  const char *word = getenv("FAKE_NVML");
  for (long i = (char *)device - devices; word && i > 0; i--) {
    word = strchr(word, ' ');
    word = word ? word + 1 : NULL;
  }
  return word && link < strcspn(word, " ") ? word[link] : 0;
}

colli_nvml_result nvmlInit_v2(void) {
  return getenv("FAKE_NVML_FAIL") ? 999 : COLLI_NVML_SUCCESS;
}

colli_nvml_result nvmlShutdown(void) {
  return COLLI_NVML_SUCCESS;
}

colli_nvml_result nvmlDeviceGetHandleByPciBusId_v2(const char *text, colli_nvml_device *device) {
  unsigned domain, bus;
  if (sscanf(text, "%x:%x:", &domain, &bus) != 2 || bus < 1 || bus > sizeof(devices))
    return COLLI_NVML_ERROR_NOT_FOUND;
  *device = (colli_nvml_device)(void *)&devices[bus - 1];
  return COLLI_NVML_SUCCESS;
}

colli_nvml_result nvmlDeviceGetNvLinkState(colli_nvml_device device, unsigned link, int *enabled) {
  if (!end_of(device, link))
    return COLLI_NVML_ERROR_INVALID_ARGUMENT;
  *enabled = end_of(device, link) != '-' ? COLLI_NVML_FEATURE_ENABLED : 0;
  return COLLI_NVML_SUCCESS;
}

colli_nvml_result nvmlDeviceGetNvLinkRemotePciInfo_v2(colli_nvml_device device, unsigned link,
                                                      colli_nvml_pci *pci) {
  const char end = end_of(device, link);
  if (end < '0' || end > '9')
    return COLLI_NVML_ERROR_NOT_SUPPORTED;
  *pci = (colli_nvml_pci){.bus = (unsigned)(end - '0') + 1};
  snprintf(pci->bus_id, sizeof(pci->bus_id), "00000000:%02X:00.0", pci->bus);
  return COLLI_NVML_SUCCESS;
}

colli_nvml_result nvmlDeviceGetNvLinkRemoteDeviceType(colli_nvml_device device, unsigned link,
                                                      int *type) {
  const char end = end_of(device, link);
  *type = end == 's'                 ? COLLI_NVML_NVLINK_DEVICE_TYPE_SWITCH
          : end >= '0' && end <= '9' ? COLLI_NVML_NVLINK_DEVICE_TYPE_GPU
                                     : COLLI_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  return end ? COLLI_NVML_SUCCESS : COLLI_NVML_ERROR_INVALID_ARGUMENT;
}
