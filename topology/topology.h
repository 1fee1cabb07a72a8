/*
 * topology.h: the machine as libcoll sees it. Only hwloc.c includes hwloc.h.
 */
#ifndef COLLI_TOPOLOGY_TOPOLOGY_H
#define COLLI_TOPOLOGY_TOPOLOGY_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "coll/coll.h"
#include "libcoll/base/pci.h"

#define COLLI_TOPO_NAME 64
#define COLLI_CPUS_MOST 8192 /* the most that Linux supports */

/* One core, with the logical (hwloc) indices of what it belongs to; -1: none. */
typedef struct colli_topo_core {
  int os_index; /* number of its first processing unit that this process may use */
  int package;
  int numa_node;
  int l3;
  int l2;
  bool allowed; /* this process may run there */
} colli_topo_core;

typedef enum colli_device_kind {
  COLLI_DEVICE_NET,
  COLLI_DEVICE_RDMA,
  COLLI_DEVICE_GPU
} colli_device_kind;

typedef struct colli_topo_device {
  colli_device_kind kind;
  char name[COLLI_TOPO_NAME]; /* "eth0", "mlx5_0", "nvml0" */
  char bus[COLLI_TOPO_NAME];  /* "0000:41:00.0" or "" */
  int numa_node;              /* nearest, or -1 */
  int package;
  double link_mbit; /* of the link if known, else 0 */
} colli_topo_device;

/* Where a GPU (or a display) or a network card is plugged in, whether or not hwloc knows a device
 * for it. */
typedef struct colli_topo_pci {
  colli_device_kind kind;    /* RDMA: InfiniBand by its class; other cards may have RDMA as well */
  char bus[COLLI_TOPO_NAME]; /* "0000:41:00.0" */
  colli_pci_place place;     /* its NUMA node by the logical index */
  int package;
} colli_topo_pci;

/* What is at the other end of NVLinks. */
typedef enum colli_nvlink_end {
  COLLI_NVLINK_GPU,
  COLLI_NVLINK_SWITCH,
  COLLI_NVLINK_PACKAGE,
  COLLI_NVLINK_OTHER
} colli_nvlink_end;

/* NVLinks of a GPU to one other object, together, as hwloc's matrix "NVLinkBandwidth" has them.
 * That does not say how many they are. */
typedef struct colli_topo_nvlink {
  int gpu; /* device */
  colli_nvlink_end end;
  int to; /* GPU: device; package: its index; else as numbered in the matrix */
  double mbit;
} colli_topo_nvlink;

typedef struct colli_topo {
  char source[128]; /* "this machine", a file, or a synthetic description */
  int npackages, nnuma, nl3, nl2, ncores, npus, ndevices;
  uint64_t l3_bytes, l2_bytes, memory_bytes; /* of one cache; of the machine */
  colli_topo_core *cores;
  colli_topo_device *devices;
  int npu_numbers; /* processing units have numbers below this */
  int *core_of_pu; /* by number: its logical core, or -1 */
  int npci;
  colli_topo_pci *pci;
  int nnvlinks;
  colli_topo_nvlink *nvlinks;
} colli_topo;

/*
 * Reads a machine: source "" this one; "file.xml" an hwloc XML file; "<..." the XML itself;
 * anything else: an hwloc synthetic description ("numa:4 l3:2 core:4 pu:2"). Errors:
 * INVALID_ARGUMENT (cannot be read: says why), SYSTEM.
 */
coll_status colli_topo_load(const char *source, colli_topo **topo, coll_error *error);
void colli_topo_free(colli_topo *topo);

/*
 * Writes a machine as hwloc XML, which colli_topo_load() reads again. Whoever calls it looks
 * whether `out` took it. Errors: as colli_topo_load().
 */
coll_status colli_topo_export(const char *source, FILE *out, coll_error *error);

/* Prints packages, NUMA nodes, caches, cores and devices as a tree. */
void colli_topo_print(const colli_topo *topo, FILE *out);

/* The place of the GPU or card with a PCI address, such as "0000:41:00.0", "00000000:41:00.0" or
 * "0000:3B:00.0"; NULL: there is none. */
const colli_topo_pci *colli_topo_find_pci(const colli_topo *topo, const char *address);

/* The distance; NULL stands for a device whose place is not known. */
colli_pci_distance colli_topo_pci_distance(const colli_topo_pci *a, const colli_topo_pci *b);

/*
 * Writes which network cards are nearest to the GPU at a PCI address, and what they share with it:
 * "nearest network: mlx5_0/ib0 (same switch)". Of several below switches, those with which it
 * shares most of them. "" if there is no such GPU, or no card whose distance is known. Returns
 * text.
 */
#define COLLI_TOPO_NEAREST 320
const char *colli_topo_nearest_cards(const colli_topo *topo, const char *address,
                                     char text[COLLI_TOPO_NEAREST]);

/* The same card by card: the first (`after` is NULL) or the next one, in the order of topo->pci;
 * NULL: there is no more. What a card shares with the GPU: "same switch". */
const colli_topo_pci *colli_topo_next_nearest(const colli_topo *topo, const char *address,
                                              const colli_topo_pci *after);
const char *colli_topo_shared(const colli_topo *topo, const char *address,
                              const colli_topo_pci *card);

/* ---- nvlink.c -------------------------------------------------------------------------------- */

/* Writes where the NVLinks of a device go: "NVLinks: 320 Gbit/s to nvml1, 320 Gbit/s to package 0";
 * "" if none is known. Returns text. */
#define COLLI_TOPO_NVLINKS 640
const char *colli_topo_nvlinks_text(const colli_topo *topo, int device,
                                    char text[COLLI_TOPO_NVLINKS]);

/* A machine has at most so many: a GPU has a few to each of its switches, or one to each GPU. */
#define COLLI_TOPO_NVLINKS_MOST 1024

/* Lists the devices that have NVLinks; returns how many. */
int colli_topo_nvlink_gpus(const colli_topo *topo, int gpus[COLLI_TOPO_NVLINKS_MOST]);

/* What NVLinks carry between two GPUs, in Mbit/s: directly, and over switches to which both are
 * linked. */
double colli_topo_nvlink_direct(const colli_topo *topo, int a, int b);
double colli_topo_nvlink_switched(const colli_topo *topo, int a, int b);

/* Prints that of all pairs of GPUs that have some as a table; nothing without NVLinks. */
void colli_topo_print_nvlinks(const colli_topo *topo, FILE *out);

/* The logical core this thread is bound to if it is bound within one core, else -1. */
int colli_topo_bound_core(const colli_topo *topo);

/* Cores of `topo` that this process may use. */
int colli_topo_allowed_cores(const colli_topo *topo);

/*
 * Chooses a core for each of `nranks` local ranks (cores[r] = logical index), spread over packages
 * and caches, neighbours in rank close together. If there are more ranks than allowed cores, ranks
 * share cores, provided that every core gets equally many. Otherwise all are -1, as some ranks
 * would have less of a core than others.
 */
void colli_topo_place(const colli_topo *topo, int nranks, int *cores);

/* Processing units, by the numbers of the operating system. */
typedef union colli_cpus {
  cpu_set_t set; /* the type that system calls take */
  unsigned long word[COLLI_CPUS_MOST / (8 * sizeof(unsigned long))];
} colli_cpus;

/*
 * The units of one core, or of its NUMA node (`node`), that the calling thread may run on. Errors:
 * SYSTEM, INVALID_ARGUMENT (no such core, or none of its units is free to this thread).
 */
coll_status colli_topo_cpus(const colli_topo *topo, int core, bool node, colli_cpus *cpus,
                            coll_error *error);

/*
 * Binds the calling thread to those processing units of one core that it may run on now. Errors:
 * SYSTEM, INVALID_ARGUMENT (no such core, or none of its units is free to this thread).
 */
coll_status colli_topo_bind(const colli_topo *topo, int core, coll_error *error);

/*
 * Identifies the host and network namespace that this process runs in: boot id and netns inode,
 * hashed; `override_text` replaces it if not empty. 0: a shortage prevented that; errno says which.
 * *machine: the same for all network namespaces of a machine (containers), unless the boot id is
 * hidden from them, or they are given such a text, and thus meant to be machines.
 */
uint64_t colli_host_id(const char *override_text, uint64_t *machine);

/* Identifies the CLOCK_MONOTONIC of this process: boot id and time namespace, hashed. 0: not known.
 */
uint64_t colli_clock_id(void);

#endif
