/*
 * pack.c: a machine as bytes, from a child that read it to its parent (apart.c). hwloc may have
 * damaged the child's memory before it wrote them, so the parent believes nothing.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "topology/read.h"

#define MOST (1 << 20) /* cores, processing units, devices */

void colli_topo_pack(const colli_topo *topo, FILE *out) {
  fwrite(topo, sizeof(*topo), 1, out);
  fwrite(topo->cores, sizeof(*topo->cores), (size_t)topo->ncores, out);
  fwrite(topo->core_of_pu, sizeof(*topo->core_of_pu), (size_t)topo->npu_numbers, out);
  if (topo->ndevices > 0)
    fwrite(topo->devices, sizeof(*topo->devices), (size_t)topo->ndevices, out);
  if (topo->npci > 0)
    fwrite(topo->pci, sizeof(*topo->pci), (size_t)topo->npci, out);
  if (topo->nnvlinks > 0)
    fwrite(topo->nvlinks, sizeof(*topo->nvlinks), (size_t)topo->nnvlinks, out);
}

/* Whether an index is -1 or below a count. */
static bool is_index(int index, int count) {
  return index >= -1 && index < count;
}

static bool is_count(int count) {
  return count >= 0 && count <= MOST;
}

static bool is_text(const char *text, size_t room) {
  return memchr(text, '\0', room) != NULL;
}

/* Whether the counts can be, and need that many bytes. */
static bool counts_fit(const colli_topo *topo, size_t nbytes) {
  return is_count(topo->npackages) && is_count(topo->nnuma) && is_count(topo->nl3) &&
         is_count(topo->nl2) && is_count(topo->ncores) && is_count(topo->npus) &&
         is_count(topo->ndevices) && is_count(topo->npci) && is_count(topo->npu_numbers) &&
         topo->nnvlinks >= 0 && topo->nnvlinks <= COLLI_TOPO_NVLINKS_MOST && topo->ncores > 0 &&
         is_text(topo->source, sizeof(topo->source)) &&
         nbytes == sizeof(*topo) + (size_t)topo->ncores * sizeof(*topo->cores) +
                       (size_t)topo->npu_numbers * sizeof(*topo->core_of_pu) +
                       (size_t)topo->ndevices * sizeof(*topo->devices) +
                       (size_t)topo->npci * sizeof(*topo->pci) +
                       (size_t)topo->nnvlinks * sizeof(*topo->nvlinks);
}

static bool is_core(const colli_topo *topo, const colli_topo_core *core) {
  unsigned char allowed; /* a bool that is neither 0 nor 1 must not be read as one */
  memcpy(&allowed, &core->allowed, 1);
  return allowed <= 1 && is_index(core->os_index, topo->npu_numbers) &&
         is_index(core->package, topo->npackages) && is_index(core->numa_node, topo->nnuma) &&
         is_index(core->l3, topo->nl3) && is_index(core->l2, topo->nl2);
}

/* Whether the bytes of an enum are one of its values, up to `most`. */
static bool is_value(const void *bytes, unsigned most) {
  unsigned value;
  _Static_assert(sizeof(value) == sizeof(colli_device_kind) &&
                     sizeof(value) == sizeof(colli_nvlink_end),
                 "an enum is an int");
  memcpy(&value, bytes, sizeof(value));
  return value <= most;
}

/* Whether a device fits the machine. */
static bool is_device(const colli_topo *topo, const colli_topo_device *device) {
  return is_value(&device->kind, COLLI_DEVICE_GPU) && is_text(device->name, sizeof(device->name)) &&
         is_text(device->bus, sizeof(device->bus)) && is_index(device->numa_node, topo->nnuma) &&
         is_index(device->package, topo->npackages) && isfinite(device->link_mbit) &&
         device->link_mbit >= 0;
}

/* Whether the place of a PCI device does. */
static bool is_pci(const colli_topo *topo, const colli_topo_pci *pci) {
  return is_value(&pci->kind, COLLI_DEVICE_GPU) && is_text(pci->bus, sizeof(pci->bus)) &&
         is_index(pci->place.numa_node, topo->nnuma) && is_index(pci->package, topo->npackages) &&
         pci->place.nbridges >= 0 && pci->place.nbridges <= COLLI_PCI_BRIDGES;
}

/* Whether a number is that of a GPU, if devices are. */
static bool is_gpu(const colli_topo *topo, int device) {
  return device >= 0 && device < topo->ndevices && topo->devices[device].kind == COLLI_DEVICE_GPU;
}

/* Whether NVLinks do. */
static bool is_nvlink(const colli_topo *topo, const colli_topo_nvlink *link) {
  if (!is_value(&link->end, COLLI_NVLINK_OTHER) || !is_gpu(topo, link->gpu) ||
      !isfinite(link->mbit) || link->mbit <= 0)
    return false;
  switch (link->end) {
  case COLLI_NVLINK_GPU:
    return is_gpu(topo, link->to) && link->to != link->gpu;
  case COLLI_NVLINK_PACKAGE:
    return link->to >= 0 && link->to < topo->npackages;
  default:
    return is_index(link->to, MOST);
  }
}

/* Whether all parts of a machine fit together. */
static bool is_machine(const colli_topo *topo) {
  for (int i = 0; i < topo->ncores; i++)
    if (!is_core(topo, &topo->cores[i]))
      return false;
  for (int i = 0; i < topo->npu_numbers; i++)
    if (!is_index(topo->core_of_pu[i], topo->ncores))
      return false;
  for (int i = 0; i < topo->ndevices; i++)
    if (!is_device(topo, &topo->devices[i]))
      return false;
  for (int i = 0; i < topo->npci; i++)
    if (!is_pci(topo, &topo->pci[i]))
      return false;
  for (int i = 0; i < topo->nnvlinks; i++)
    if (!is_nvlink(topo, &topo->nvlinks[i]))
      return false;
  return true;
}

/* A copy of the next n elements, which moves *from. NULL: out of memory. */
static void *copy_next(const char **from, int n, size_t bytes) {
  void *copy = calloc((size_t)n + 1, bytes);
  if (copy != NULL && n > 0)
    memcpy(copy, *from, (size_t)n * bytes);
  *from += (size_t)n * bytes;
  return copy;
}

colli_topo *colli_topo_unpack(const char *bytes, size_t nbytes) {
  colli_topo *topo = malloc(sizeof(*topo));
  if (topo == NULL || nbytes < sizeof(*topo)) {
    free(topo);
    return NULL;
  }
  memcpy(topo, bytes, sizeof(*topo));
  if (!counts_fit(topo, nbytes)) {
    free(topo);
    return NULL;
  }
  bytes += sizeof(*topo);
  topo->cores = copy_next(&bytes, topo->ncores, sizeof(*topo->cores));
  topo->core_of_pu = copy_next(&bytes, topo->npu_numbers, sizeof(*topo->core_of_pu));
  topo->devices = copy_next(&bytes, topo->ndevices, sizeof(*topo->devices));
  topo->pci = copy_next(&bytes, topo->npci, sizeof(*topo->pci));
  topo->nvlinks = copy_next(&bytes, topo->nnvlinks, sizeof(*topo->nvlinks));
  if (topo->cores != NULL && topo->core_of_pu != NULL && topo->devices != NULL &&
      topo->pci != NULL && topo->nvlinks != NULL && is_machine(topo))
    return topo;
  colli_topo_free(topo);
  return NULL;
}

/* Frees a machine; NULL is fine. */
void colli_topo_free(colli_topo *topo) {
  if (topo == NULL)
    return;
  free(topo->cores);
  free(topo->core_of_pu);
  free(topo->devices);
  free(topo->pci);
  free(topo->nvlinks);
  free(topo);
}
