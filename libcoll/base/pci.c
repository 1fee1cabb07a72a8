/* pci.c: where PCI devices are plugged in, and how far two are from each other. */
#include "libcoll/base/pci.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- where a device is ----------------------------------------------------------------------- */

/* Reads the address at the beginning of a text, also as a number. */
static bool read_address(const char *text, char address[COLLI_PCI_ADDRESS], uint32_t *number) {
  unsigned domain, bus, device, function;
  if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
    return false;
  snprintf(address, COLLI_PCI_ADDRESS, "%04x:%02x:%02x.%01x", domain, bus & 255, device & 31,
           function & 7);
  *number = domain << 16 | (bus & 255) << 8 | (device & 31) << 3 | (function & 7);
  return true;
}

bool colli_pci_read_address(const char *text, char address[COLLI_PCI_ADDRESS]) {
  uint32_t number;
  return read_address(text, address, &number);
}

/* Adds a bridge; those that there is no room for are too deep to matter. */
static void add_bridge(colli_pci_place *place, uint32_t number) {
  if (place->nbridges < COLLI_PCI_BRIDGES)
    place->bridges[place->nbridges++] = number;
}

size_t colli_pci_parse(const char *path, char address[COLLI_PCI_ADDRESS], colli_pci_place *place) {
  unsigned domain, bus;
  uint32_t number = 0, next;
  size_t length = 0;
  *place = (colli_pci_place){.numa_node = -1};
  *address = '\0';
  for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
    if (length == 0 && sscanf(slash, "/pci%x:%x", &domain, &bus) == 2)
      add_bridge(place, UINT32_MAX - (domain << 8 | bus)); /* that of the processor */
    if (!read_address(slash + 1, address, &next))
      continue;
    if (length > 0)
      add_bridge(place, number);
    number = next;
    length = (size_t)(slash - path) + 1 + strcspn(slash + 1, "/");
  }
  return length;
}

bool colli_pci_find(const char *folder, char address[COLLI_PCI_ADDRESS], colli_pci_place *place) {
  char real[PATH_MAX], path[PATH_MAX + sizeof("/numa_node")];
  int node;
  *address = '\0';
  *place = (colli_pci_place){.numa_node = -1};
  const size_t length = realpath(folder, real) ? colli_pci_parse(real, address, place) : 0;
  if (length == 0)
    return false;
  snprintf(path, sizeof(path), "%.*s/numa_node", (int)length, real);
  FILE *file = fopen(path, "re");
  if (file && fscanf(file, "%d", &node) == 1 && node >= 0)
    place->numa_node = node;
  if (file)
    fclose(file);
  return true;
}

bool colli_pci_find_at(const char *root, const char *address, colli_pci_place *place) {
  char normal[COLLI_PCI_ADDRESS], found[COLLI_PCI_ADDRESS], folder[PATH_MAX];
  if (!colli_pci_read_address(address, normal))
    return false;
  snprintf(folder, sizeof(folder), "%s/bus/pci/devices/%s", root, normal);
  return colli_pci_find(folder, found, place);
}

/* ---- how far two are ------------------------------------------------------------------------- */

/* How many bridges lie above both, from the outermost. */
static int count_shared(const colli_pci_place *a, const colli_pci_place *b) {
  int shared = 0;
  while (shared < a->nbridges && shared < b->nbridges && a->bridges[shared] == b->bridges[shared])
    shared++;
  return shared;
}

colli_pci_distance colli_pci_distance_of(const colli_pci_place *a, const colli_pci_place *b) {
  if (!a || !b)
    return COLLI_PCI_UNKNOWN;
  const int shared = count_shared(a, b);
  if (shared > 0)
    return shared > 1 ? COLLI_PCI_SWITCH : COLLI_PCI_HOST_BRIDGE;
  if (a->numa_node < 0 || b->numa_node < 0)
    return COLLI_PCI_UNKNOWN;
  return a->numa_node == b->numa_node ? COLLI_PCI_NODE : COLLI_PCI_SYSTEM;
}

int colli_pci_order(const colli_pci_place *a, const colli_pci_place *b) {
  return (int)colli_pci_distance_of(a, b) * (COLLI_PCI_BRIDGES + 1) -
         (a && b ? count_shared(a, b) : 0);
}

const char *colli_pci_shared(colli_pci_distance distance) {
  static const char *const shared[] = {[COLLI_PCI_SWITCH] = "same switch",
                                       [COLLI_PCI_HOST_BRIDGE] = "same host bridge",
                                       [COLLI_PCI_NODE] = "same NUMA node",
                                       [COLLI_PCI_SYSTEM] = "another NUMA node",
                                       [COLLI_PCI_UNKNOWN] = "not known"};
  return shared[distance];
}

const char *colli_pci_explain(colli_pci_distance distance, const char *gpu,
                              char text[COLLI_PCI_WHY]) {
  const bool near = distance <= COLLI_PCI_NODE;
  snprintf(text, COLLI_PCI_WHY, "%s%s its GPU %.31s", near ? colli_pci_shared(distance) : "far",
           near ? " as" : " from", gpu);
  return text;
}
