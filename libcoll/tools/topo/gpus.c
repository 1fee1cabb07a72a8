/* gpus.c: asks CUDA's driver, NVIDIA's management library and hwloc about GPUs. */
#include "libcoll/tools/topo/gpus.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/gpu/nvml.h"

/* ---- one GPU --------------------------------------------------------------------------------- */

/* Writes an UUID as nvidia-smi does. */
static void write_uuid(const colli_cu_uuid *uuid, char *text, size_t room) {
  size_t used = (size_t)snprintf(text, room, "GPU");
  for (int i = 0; i < 16; i++)
    used += (size_t)snprintf(text + used, room - used, "%s%02x",
                             i == 0 || (i >= 4 && i <= 10 && i % 2 == 0) ? "-" : "",
                             (unsigned char)uuid->bytes[i]);
}

/* Fills in what the driver and hwloc know about a device. */
static void describe(const colli_cuda *cuda, const colli_topo *topo, int number, topo_gpu *gpu) {
  colli_cu_device device;
  colli_cu_uuid uuid;
  snprintf(gpu->name, sizeof(gpu->name), "unknown");
  if (cuda->device_get(&device, number) != COLLI_CUDA_SUCCESS)
    return;
  if (cuda->device_get_name(gpu->name, sizeof(gpu->name), device) != COLLI_CUDA_SUCCESS)
    snprintf(gpu->name, sizeof(gpu->name), "unknown");
  if (cuda->device_get_uuid(&uuid, device) == COLLI_CUDA_SUCCESS)
    write_uuid(&uuid, gpu->uuid, sizeof(gpu->uuid));
  if (cuda->device_get_pci_bus_id(gpu->bus, sizeof(gpu->bus), device) != COLLI_CUDA_SUCCESS)
    gpu->bus[0] = '\0';
  gpu->place = colli_topo_find_pci(topo, gpu->bus);
}

/* ---- pairs ----------------------------------------------------------------------------------- */

/* Fills in what the driver and hwloc know about a pair. */
static void compare(const colli_cuda *cuda, const topo_gpus *gpus, int from, int to) {
  topo_gpu_pair *pair = &gpus->pairs[from * gpus->count + to];
  colli_cu_device a, b;
  int can = 0;
  *pair = (topo_gpu_pair){
      .speed_rank = -1,
      .distance = colli_topo_pci_distance(gpus->gpus[from].place, gpus->gpus[to].place)};
  if (from == to || cuda->device_get(&a, from) != COLLI_CUDA_SUCCESS ||
      cuda->device_get(&b, to) != COLLI_CUDA_SUCCESS)
    return;
  pair->access = cuda->device_can_access_peer(&can, a, b) == COLLI_CUDA_SUCCESS && can;
  if (cuda->device_get_p2p_attribute(&pair->speed_rank,
                                     COLLI_CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK, a,
                                     b) != COLLI_CUDA_SUCCESS)
    pair->speed_rank = -1;
}

/* The GPU with a PCI address, or -1. */
static int find_bus(const topo_gpus *gpus, const colli_nvml_pci *pci) {
  unsigned domain, bus, device;
  for (int i = 0; i < gpus->count; i++)
    if (sscanf(gpus->gpus[i].bus, "%x:%x:%x", &domain, &bus, &device) == 3 &&
        domain == pci->domain && bus == pci->bus && device == pci->device)
      return i;
  return -1;
}

/* Counts one NVLink of a GPU, if there is one of that number. */
static void count_link(const colli_nvml *nvml, topo_gpus *gpus, int from, colli_nvml_device device,
                       unsigned link) {
  int enabled = 0, type = COLLI_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  colli_nvml_pci pci;
  if (nvml->link_state(device, link, &enabled) != COLLI_NVML_SUCCESS ||
      enabled != COLLI_NVML_FEATURE_ENABLED)
    return;
  if (nvml->link_remote_type && nvml->link_remote_type(device, link, &type) != COLLI_NVML_SUCCESS)
    type = COLLI_NVML_NVLINK_DEVICE_TYPE_UNKNOWN;
  memset(&pci, 0, sizeof(pci));
  const int to =
      nvml->link_remote_pci(device, link, &pci) == COLLI_NVML_SUCCESS ? find_bus(gpus, &pci) : -1;
  if (type == COLLI_NVML_NVLINK_DEVICE_TYPE_SWITCH)
    gpus->gpus[from].switch_links++;
  else if (to >= 0)
    gpus->pairs[from * gpus->count + to].links++;
  else
    gpus->gpus[from].more_links++;
}

/* Counts the NVLinks of all GPUs. */
static void count_links(topo_gpus *gpus) {
  colli_nvml nvml;
  coll_error error = COLL_ERROR_INIT;
  if (colli_nvml_load(&nvml, COLLI_NVML_LIBRARY, &error) != COLL_OK) {
    snprintf(gpus->no_links, sizeof(gpus->no_links), "%s", error.message);
    return;
  }
  gpus->has_links = true;
  for (int i = 0; i < gpus->count; i++) {
    colli_nvml_device device;
    if (nvml.get_by_bus(gpus->gpus[i].bus, &device) != COLLI_NVML_SUCCESS)
      continue;
    for (unsigned link = 0; link < COLLI_NVML_LINKS; link++)
      count_link(&nvml, gpus, i, device, link);
  }
  colli_nvml_close(&nvml);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Fills in everything about so many devices. */
static bool fill(const colli_cuda *cuda, const colli_topo *topo, topo_gpus *found, int count) {
  found->gpus = calloc((size_t)count, sizeof(*found->gpus));
  found->pairs = calloc((size_t)count * (size_t)count, sizeof(*found->pairs));
  if (!found->gpus || !found->pairs)
    return false;
  found->count = count;
  for (int i = 0; i < count; i++)
    describe(cuda, topo, i, &found->gpus[i]);
  for (int i = 0; i < count * count; i++)
    compare(cuda, found, i / count, i % count);
  count_links(found);
  return true;
}

void topo_gpus_use(void) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  colli_cuda cuda;
  coll_error error = COLL_ERROR_INIT;
  if (visible != NULL && *visible != '\0' &&
      colli_cuda_load(&cuda, COLLI_CUDA_LIBRARY, &error) == COLL_OK)
    colli_cuda_close(&cuda);
}

bool topo_gpus_find(const colli_topo *topo, topo_gpus *found) {
  colli_cuda cuda;
  colli_params params;
  coll_error error = COLL_ERROR_INIT;
  int count = 0;
  *found = (topo_gpus){.topo = topo};
  if (colli_params_load(&params, &error) == COLL_OK)
    found->asked = (colli_gpu_mode)params.number[COLLI_PARAM_GPU_MODE];
  if (colli_cuda_load(&cuda, COLLI_CUDA_LIBRARY, &error) != COLL_OK) {
    snprintf(found->why_none, sizeof(found->why_none), "%s", error.message);
    return true;
  }
  found->version = cuda.driver_version;
  found->waits = cuda.stream_wait_value_32 && cuda.stream_write_value_32;
  const colli_cu_result result = cuda.device_get_count(&count);
  bool made = true;
  if (result != COLLI_CUDA_SUCCESS || count <= 0)
    snprintf(found->why_none, sizeof(found->why_none),
             "CUDA's driver finds none (%s); CUDA_VISIBLE_DEVICES may hide them",
             colli_cuda_result_name(&cuda, result));
  else
    made = fill(&cuda, topo, found, count < COLLI_GPU_DEVICES ? count : COLLI_GPU_DEVICES);
  colli_cuda_close(&cuda);
  if (!made)
    topo_gpus_free(found);
  return made;
}

void topo_gpus_free(topo_gpus *gpus) {
  free(gpus->gpus);
  free(gpus->pairs);
  gpus->gpus = NULL;
  gpus->pairs = NULL;
  gpus->count = 0;
}

/* ---- modes ----------------------------------------------------------------------------------- */

/* The mode of ranks on one GPU. */
static colli_gpu_mode mode_on_one(const topo_gpus *gpus, const char **reason) {
  if (gpus->asked == COLLI_GPU_SPIN) {
    *reason = "COLL_GPU_MODE is spin, which could hang where ranks share a GPU";
    return COLLI_GPU_STAGED;
  }
  if (gpus->asked == COLLI_GPU_MEET) {
    *reason = "COLL_GPU_MODE is meet, if all ranks are threads of one process; else staged";
    return COLLI_GPU_MEET;
  }
  *reason = gpus->asked == COLLI_GPU_ORDERED
                ? "COLL_GPU_MODE is ordered"
                : "ranks that share a GPU must not spin; meet if all ranks are threads of one "
                  "process";
  return COLLI_GPU_ORDERED;
}

colli_gpu_mode topo_gpus_mode(const topo_gpus *gpus, int a, int b, const char **reason) {
  const bool there = topo_gpus_pair(gpus, a, b)->access, back = topo_gpus_pair(gpus, b, a)->access;
  *reason = NULL;
  if (gpus->asked == COLLI_GPU_STAGED)
    *reason = "COLL_GPU_MODE is staged";
  else if (!gpus->waits)
    *reason = "CUDA's driver is older than 11.7";
  else if (a != b && !there && !back)
    *reason = "no peer access";
  else if (a != b && !(there && back))
    *reason = "peer access in one direction only";
  else if (a != b && gpus->asked == COLLI_GPU_MEET)
    *reason = "COLL_GPU_MODE is meet, which is for threads that share a GPU";
  if (*reason)
    return COLLI_GPU_STAGED;
  if (a == b)
    return mode_on_one(gpus, reason);
  *reason = gpus->asked == COLLI_GPU_ORDERED ? "peer access, and COLL_GPU_MODE is ordered"
                                             : "different GPUs with peer access";
  return gpus->asked == COLLI_GPU_ORDERED ? COLLI_GPU_ORDERED : COLLI_GPU_SPIN;
}
