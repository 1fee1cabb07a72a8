/* gpus.h: the GPUs of this machine that CUDA's driver knows, and how each pair of them is linked.
 */
#ifndef COLLI_TOOLS_TOPO_GPUS_H
#define COLLI_TOOLS_TOPO_GPUS_H

#include "libcoll/comm/direct.h"
#include "topology/topology.h"

/* One GPU, by its number in CUDA. */
typedef struct topo_gpu {
  char name[100];
  char uuid[48];                /* as nvidia-smi writes it, or "" */
  char bus[COLLI_TOPO_NAME];    /* its PCI address, or "" */
  const colli_topo_pci *place;  /* or NULL: hwloc does not see it */
  int switch_links, more_links; /* NVLinks to switches; to what is no GPU of this process */
} topo_gpu;

/* How one GPU reaches another. */
typedef struct topo_gpu_pair {
  bool access;    /* it may use the other one's memory */
  int speed_rank; /* of how fast it does; 0 is best; -1: not known */
  int links;      /* NVLinks between them */
  colli_pci_distance distance;
} topo_gpu_pair;

typedef struct topo_gpus {
  const colli_topo *topo; /* where they are */
  int count;
  topo_gpu *gpus;
  topo_gpu_pair *pairs; /* count * count, by rows */
  int version;          /* of CUDA: 1000 * major + 10 * minor */
  bool waits;           /* the driver lets streams wait for values: since 11.7 */
  colli_gpu_mode asked; /* COLL_GPU_MODE */
  bool has_links;       /* NVLinks are known; else why not: */
  char no_links[640];
  char why_none[640]; /* count is 0 */
} topo_gpus;

/* Loads CUDA's driver, as a program does, if CUDA_VISIBLE_DEVICES is set: a rank that sees one GPU
 * then uses the cards next to it. */
void topo_gpus_use(void);

/* Finds the GPUs of this machine; what cannot be found out is left out. False: out of memory. */
bool topo_gpus_find(const colli_topo *topo, topo_gpus *found);
void topo_gpus_free(topo_gpus *gpus);

static inline const topo_gpu_pair *topo_gpus_pair(const topo_gpus *gpus, int from, int to) {
  return &gpus->pairs[from * gpus->count + to];
}

/* How calls in streams run between ranks on two GPUs, or on the same one, if there are no others;
 * *reason says why. */
colli_gpu_mode topo_gpus_mode(const topo_gpus *gpus, int a, int b, const char **reason);

/* Prints all of it, or why there is none. */
void topo_gpus_print(const topo_gpus *gpus, FILE *out);

/* The same in a few lines, for a picture; nothing if there are no GPUs. */
void topo_gpus_print_short(const topo_gpus *gpus, FILE *out);

#endif
