/*
 * pci.h: where PCI devices are plugged in, as sysfs has it, and how far two are from each other.
 */
#ifndef COLLI_BASE_PCI_H
#define COLLI_BASE_PCI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define COLLI_PCI_ADDRESS 32 /* bytes of "0000:3b:00.0" */
#define COLLI_PCI_BRIDGES 8
#define COLLI_PCI_WHY     80

/* Where a device is plugged in. */
typedef struct colli_pci_place {
  int numa_node;                       /* nearest, or -1 */
  int nbridges;                        /* above it, */
  uint32_t bridges[COLLI_PCI_BRIDGES]; /* from the outermost, that of the processor */
} colli_pci_place;

/* What data between two devices cross. */
typedef enum colli_pci_distance {
  COLLI_PCI_SWITCH,      /* a switch, which they share */
  COLLI_PCI_HOST_BRIDGE, /* a PCI bridge of the processor */
  COLLI_PCI_NODE,        /* several such bridges of one NUMA node */
  COLLI_PCI_SYSTEM,      /* the links between NUMA nodes */
  COLLI_PCI_UNKNOWN
} colli_pci_distance;

/* Writes an address such as "00000000:3B:00.0" as sysfs does; false if it is none. */
bool colli_pci_read_address(const char *text, char address[COLLI_PCI_ADDRESS]);

/* Finds the innermost PCI device in the path of a folder of sysfs, and the bridges above it. Reads
 * no file: the NUMA node is -1. Returns how much of the path leads to the device; 0: there is none.
 */
size_t colli_pci_parse(const char *path, char address[COLLI_PCI_ADDRESS], colli_pci_place *place);

/* The same for a folder that may be a link, and reads the kernel's number of the NUMA node. */
bool colli_pci_find(const char *folder, char address[COLLI_PCI_ADDRESS], colli_pci_place *place);

/* Finds the device at an address; false if sysfs at `root` has none. */
bool colli_pci_find_at(const char *root, const char *address, colli_pci_place *place);

/* The distance of two devices; NULL stands for one whose place is not known. */
colli_pci_distance colli_pci_distance_of(const colli_pci_place *a, const colli_pci_place *b);

/* A number by which devices are ordered: the smaller, the nearer `b` is to `a`. Of several below
 * switches, those are nearest that share most of them. */
int colli_pci_order(const colli_pci_place *a, const colli_pci_place *b);

/* What two devices at a distance share: "same switch". */
const char *colli_pci_shared(colli_pci_distance distance);

/* Writes why a card is preferred, "same switch as its GPU 0000:1b:00.0", or that it is far from
 * that; returns text. */
const char *colli_pci_explain(colli_pci_distance distance, const char *gpu,
                              char text[COLLI_PCI_WHY]);

#endif
