/*
 * read.h: how a machine is read, in this process; for topology/ and its fuzz target. hwloc
 * crashes on damaged files, so for others colli_topo_load() reads those in a child (apart.c).
 */
#ifndef COLLI_TOPOLOGY_READ_H
#define COLLI_TOPOLOGY_READ_H

#include "topology/topology.h"

/* As colli_topo_load() and colli_topo_export(). */
coll_status colli_topo_read(const char *source, colli_topo **topo, coll_error *error);
coll_status colli_topo_describe(const char *source, FILE *out, coll_error *error);

/* The file that hwloc would read for a source: that, or the one that hwloc's own variable names
 * instead of this machine; what messages call XML. NULL: none of these. */
const char *colli_topo_file(const char *source);

/* Lets hwloc read a machine, and forgets it. Nothing is written. */
coll_status colli_topo_try(const char *source, FILE *out, coll_error *error);

/* Speed in Mbit/s that the kernel reports for a network device, or for the fastest port of an RDMA
 * device that is active, or 0. `root` is /sys except in tests. */
double colli_topo_link_mbit(const char *root, colli_device_kind kind, const char *name);

/*
 * Reads this machine without hwloc: from `root`, which is /sys except in tests. It finds packages,
 * NUMA nodes, caches, cores, network and RDMA devices, and where GPUs are plugged in. Errors:
 * SYSTEM (no processors there), NO_MEMORY.
 */
coll_status colli_topo_read_sysfs(const char *root, colli_topo **topo, coll_error *error);

/* The colli_device_kind of PCI devices of a class, such as 0x0302; -1: it is not read. */
int colli_topo_pci_kind(unsigned class_id);

/* ---- apart.c --------------------------------------------------------------------------------- */

/* What a child does: it writes its result to `out`. */
typedef coll_status colli_topo_work(const char *source, FILE *out, coll_error *error);

/*
 * Does something in a child, which may crash, run for `ms` and take a gigabyte of memory. The
 * caller frees *bytes. Errors: as the work; INVALID_ARGUMENT (the child did not get to its end);
 * SYSTEM.
 */
coll_status colli_topo_apart(colli_topo_work *work, const char *source, int ms, char **bytes,
                             size_t *nbytes, coll_error *error);

/* ---- nvlink.c -------------------------------------------------------------------------------- */

/*
 * Adds a link to topo->nvlinks, which has room for COLLI_TOPO_NVLINKS_MOST. One from a GPU to
 * itself is left out, and one that is there already: a matrix may have a GPU under several names.
 * Errors: INVALID_ARGUMENT (there would be more).
 */
coll_status colli_topo_add_nvlink(colli_topo *topo, colli_topo_nvlink link);

/* ---- pack.c ---------------------------------------------------------------------------------- */

/* Writes a machine for the parent of this process; that reads it, or NULL: it is not consistent, or
 * there is no memory. */
void colli_topo_pack(const colli_topo *topo, FILE *out);
colli_topo *colli_topo_unpack(const char *bytes, size_t nbytes);

#endif
