/* pci.c: where GPUs are plugged in, and how far they are from each other. */
#include <string.h>

#include "topology/topology.h"

const colli_topo_pci *colli_topo_find_pci(const colli_topo *topo, const char *address) {
  unsigned domain, bus, device, function;
  char wanted[COLLI_TOPO_NAME];
  if (sscanf(address, "%x:%x:%x.%x", &domain, &bus, &device, &function) != 4)
    return NULL;
  snprintf(wanted, sizeof(wanted), "%04x:%02x:%02x.%01x", domain, bus, device, function);
  for (int i = 0; i < topo->npci; i++)
    if (strcmp(topo->pci[i].bus, wanted) == 0)
      return &topo->pci[i];
  return NULL;
}

colli_pci_distance colli_topo_pci_distance(const colli_topo_pci *a, const colli_topo_pci *b) {
  int shared = 0;
  if (a == NULL || b == NULL)
    return COLLI_PCI_UNKNOWN;
  while (shared < a->nbridges && shared < b->nbridges && a->bridges[shared] == b->bridges[shared])
    shared++;
  if (shared > 0)
    return shared > 1 ? COLLI_PCI_SWITCH : COLLI_PCI_HOST_BRIDGE;
  if (a->numa_node < 0 || b->numa_node < 0)
    return COLLI_PCI_UNKNOWN;
  return a->numa_node == b->numa_node ? COLLI_PCI_NODE : COLLI_PCI_SYSTEM;
}
