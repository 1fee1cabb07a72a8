/* hwloc.c: reads a machine with hwloc; the only file that includes its header. */
#include <errno.h>
#include <hwloc.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/file.h"
#include "libcoll/base/fork.h"
#include "topology/read.h"

#define LINK_MBIT      "collLinkMbit"     /* in a machine file: speed of a device's link */
#define MOST_XML_BYTES ((size_t)16 << 20) /* of a machine file */

/* ---- opening --------------------------------------------------------------------------------- */

/* Whether a source names an XML file. */
static bool is_file(const char *source) {
  size_t length = strlen(source);
  return length >= 4 && strcmp(source + length - 4, ".xml") == 0;
}

/* Whether a source is the XML itself. */
static bool is_text(const char *source) {
  return source[0] == '<';
}

const char *colli_topo_file(const char *source) {
  if (source[0] == '\0')
    return getenv("HWLOC_XMLFILE");
  if (is_text(source))
    return "its XML";
  return is_file(source) ? source : NULL;
}

/*
 * Tells hwloc what to look for: network, RDMA and GPU devices, and the PCI bridges between them
 * and the cores. Cores that this process may not use are kept and marked. OpenCL and X servers are
 * left out: asking them takes seconds and yields nothing that is used here. PCI devices come from
 * sysfs, because libpciaccess leaks memory.
 */
static int configure_machine(hwloc_topology_t machine) {
  static const char *const unwanted[] = {"opencl", "gl", "pci"};
  if (hwloc_topology_set_flags(machine, HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED) < 0 ||
      hwloc_topology_set_io_types_filter(machine, HWLOC_TYPE_FILTER_KEEP_IMPORTANT) < 0)
    return -1;
  for (size_t i = 0; i < sizeof(unwanted) / sizeof(unwanted[0]); i++) /* not every hwloc has them */
    (void)hwloc_topology_set_components(machine, HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST,
                                        unwanted[i]);
  return 0;
}

/*
 * Reports a file that hwloc does not understand. Which call of hwloc notices depends on the XML
 * reader that it uses.
 */
static coll_status not_a_machine(const char *source, coll_error *error) {
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                         "%s is not a machine file: hwloc XML is expected, as "
                         "\"lstopo FILE.xml\" writes it",
                         colli_topo_file(source));
}

/* The number of objects of the last level of a synthetic description: the product of its items'
 * numbers ("core:4", or "4" alone), but for what is in parentheses and brackets. Too large a one
 * counts as COLLI_CPUS_MOST + 1. */
static long count_units(const char *source) {
  long units = 1;
  for (const char *at = source; *at && units <= COLLI_CPUS_MOST;) {
    if (*at == ' ' || *at == '(' || *at == '[') {
      at += *at == '(' ? strcspn(at, ")") : *at == '[' ? strcspn(at, "]") : 0;
      at += *at != '\0';
      continue;
    }
    const size_t name = *at >= '0' && *at <= '9' ? 0 : strcspn(at, ": ([");
    at += name + (at[name] == ':');
    char *end;
    const long number = strtol(at, &end, 0);
    const long count = end == at ? 1 : number; /* hwloc will say what is missing */
    units = count > 0 && units <= COLLI_CPUS_MOST / count ? units * count : COLLI_CPUS_MOST + 1;
    at += strcspn(at, " ([");
  }
  return units;
}

/* Tells hwloc where the machine comes from. */
static coll_status choose_source(hwloc_topology_t machine, const char *source, coll_error *error) {
  if (source[0] == '\0')
    return COLL_OK;
  if (is_text(source))
    return hwloc_topology_set_xmlbuffer(machine, source, (int)strlen(source) + 1) < 0
               ? not_a_machine(source, error)
               : COLL_OK;
  if (is_file(source)) {
    char why[160];
    int fd = colli_file_open(source, MOST_XML_BYTES, why, sizeof(why));
    if (fd < 0)
      return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                             "cannot read the machine file %s: %s", source, why);
    colli_fd_close(fd);
    return hwloc_topology_set_xml(machine, source) < 0 ? not_a_machine(source, error) : COLL_OK;
  }
  if (count_units(source) > COLLI_CPUS_MOST) /* it would take minutes */
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                           "\"%s\" has more than the %d processing units that Linux supports, or a "
                           "number below 1",
                           source, COLLI_CPUS_MOST);
  if (hwloc_topology_set_synthetic(machine, source) < 0)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                           "\"%s\" is neither a file that ends in .xml nor a description of a "
                           "machine such as \"numa:2 l3:1 core:4 pu:1\"",
                           source);
  return COLL_OK;
}

/* Loads the machine into hwloc's own structures. */
static coll_status open_machine(const char *source, hwloc_topology_t *machine, coll_error *error) {
  if (hwloc_topology_init(machine) < 0)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "topology", "cannot initialize hwloc");
  coll_status status = COLL_OK;
  if (configure_machine(*machine) < 0)
    status = colli_error_sys(error, COLL_ERR_SYSTEM, "topology", "hwloc_topology_set_flags", errno,
                             "hwloc rejects its settings");
  if (status == COLL_OK)
    status = choose_source(*machine, source, error);
  if (status == COLL_OK && hwloc_topology_load(*machine) < 0)
    status = is_file(source) || is_text(source)
                 ? not_a_machine(source, error)
                 : colli_error_set(error,
                                   source[0] == '\0' ? COLL_ERR_SYSTEM : COLL_ERR_INVALID_ARGUMENT,
                                   "topology", "hwloc cannot load %s: %s",
                                   source[0] == '\0' ? "this machine" : source, strerror(errno));
  if (status != COLL_OK)
    hwloc_topology_destroy(*machine);
  return status;
}

/* ---- cores ----------------------------------------------------------------------------------- */

/* Logical index of the ancestor of one type, or -1. */
static int index_above(hwloc_topology_t machine, hwloc_obj_type_t type, hwloc_obj_t object) {
  hwloc_obj_t above = hwloc_get_ancestor_obj_by_type(machine, type, object);
  return above != NULL ? (int)above->logical_index : -1;
}

/*
 * Logical index of the first NUMA node that is near an object; -1 if it is near more than `at_most`
 * of them. A core has several where there are several kinds of memory; the first is DRAM.
 */
static int node_of(hwloc_topology_t machine, hwloc_obj_t object, int at_most) {
  if (object->nodeset == NULL)
    return -1;
  int weight = hwloc_bitmap_weight(object->nodeset);
  if (weight < 1 || weight > at_most)
    return -1;
  hwloc_obj_t node =
      hwloc_get_numanode_obj_by_os_index(machine, (unsigned)hwloc_bitmap_first(object->nodeset));
  return node != NULL ? (int)node->logical_index : -1;
}

/* Where this process may run, as hwloc numbers processing units. NULL: out of memory. */
static hwloc_bitmap_t allowed_units(hwloc_topology_t machine) {
  hwloc_bitmap_t allowed = hwloc_bitmap_dup(hwloc_topology_get_allowed_cpuset(machine));
  hwloc_bitmap_t bound = hwloc_bitmap_alloc();
  /* A mask set by taskset or a launcher is not part of the machine: ask for it separately. */
  if (allowed != NULL && bound != NULL && hwloc_topology_is_thissystem(machine) &&
      hwloc_get_cpubind(machine, bound, HWLOC_CPUBIND_THREAD) == 0)
    hwloc_bitmap_and(allowed, allowed, bound);
  hwloc_bitmap_free(bound);
  return allowed;
}

/* Fills one core and marks its processing units. */
static void fill_core(hwloc_topology_t machine, hwloc_obj_t object, hwloc_const_bitmap_t allowed,
                      colli_topo *topo) {
  int index = (int)object->logical_index;
  colli_topo_core *core = &topo->cores[index];
  int unit;
  core->os_index = hwloc_bitmap_first(object->cpuset);
  core->package = index_above(machine, HWLOC_OBJ_PACKAGE, object);
  core->l3 = index_above(machine, HWLOC_OBJ_L3CACHE, object);
  core->l2 = index_above(machine, HWLOC_OBJ_L2CACHE, object);
  core->numa_node = node_of(machine, object, topo->nnuma);
  /* In a damaged file a core may have units that the machine does not have, even endlessly many. */
  for (unit = core->os_index; unit >= 0 && unit < topo->npu_numbers;
       unit = hwloc_bitmap_next(object->cpuset, unit)) {
    topo->core_of_pu[unit] = index;
    if (hwloc_bitmap_isset(allowed, (unsigned)unit) && !core->allowed) {
      core->allowed = true;
      core->os_index = unit;
    }
  }
}

/* The number of objects of a type, at least 0 (hwloc returns -1 for "on several levels"). */
static int count_of(hwloc_topology_t machine, hwloc_obj_type_t type) {
  int count = hwloc_get_nbobjs_by_type(machine, type);
  return count > 0 ? count : 0;
}

/* Size of the first cache of a type, or 0. */
static uint64_t cache_bytes(hwloc_topology_t machine, hwloc_obj_type_t type) {
  hwloc_obj_t cache = hwloc_get_obj_by_type(machine, type, 0);
  return cache != NULL && cache->attr != NULL ? cache->attr->cache.size : 0;
}

/* Fills counts, sizes and cores. A machine without cores (a description may have none) has one for
 * each processing unit. */
static coll_status read_cores(hwloc_topology_t machine, colli_topo *topo) {
  int depth = hwloc_get_type_or_below_depth(machine, HWLOC_OBJ_CORE);
  topo->npackages = count_of(machine, HWLOC_OBJ_PACKAGE);
  topo->nnuma = count_of(machine, HWLOC_OBJ_NUMANODE);
  topo->nl3 = count_of(machine, HWLOC_OBJ_L3CACHE);
  topo->nl2 = count_of(machine, HWLOC_OBJ_L2CACHE);
  topo->npus = count_of(machine, HWLOC_OBJ_PU);
  topo->l3_bytes = cache_bytes(machine, HWLOC_OBJ_L3CACHE);
  topo->l2_bytes = cache_bytes(machine, HWLOC_OBJ_L2CACHE);
  topo->memory_bytes = hwloc_get_root_obj(machine)->total_memory;
  topo->ncores = (int)hwloc_get_nbobjs_by_depth(machine, depth);
  topo->npu_numbers = hwloc_bitmap_last(hwloc_topology_get_topology_cpuset(machine)) + 1;
  topo->cores = calloc((size_t)topo->ncores, sizeof(*topo->cores));
  topo->core_of_pu = malloc((size_t)topo->npu_numbers * sizeof(*topo->core_of_pu));
  hwloc_bitmap_t allowed = allowed_units(machine);
  if (topo->cores == NULL || topo->core_of_pu == NULL || allowed == NULL) {
    hwloc_bitmap_free(allowed);
    return COLL_ERR_NO_MEMORY;
  }
  for (int i = 0; i < topo->npu_numbers; i++)
    topo->core_of_pu[i] = -1;
  for (int i = 0; i < topo->ncores; i++)
    fill_core(machine, hwloc_get_obj_by_depth(machine, depth, (unsigned)i), allowed, topo);
  hwloc_bitmap_free(allowed);
  return COLL_OK;
}

/* ---- devices --------------------------------------------------------------------------------- */

/*
 * The kind of an OS device, or -1. A GPU is known by several names: that from a compute library is
 * better than that of a display ("card0"). The better the name, the lower *rank.
 */
static int kind_of(hwloc_obj_t object, int *rank) {
  static const char *const gpu_names[] = {"nvml", "cuda", "rsmi", "ze", "opencl"};
  *rank = 0;
  if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_NETWORK)
    return COLLI_DEVICE_NET;
  if (object->attr->osdev.type == HWLOC_OBJ_OSDEV_OPENFABRICS)
    return COLLI_DEVICE_RDMA;
  for (size_t i = 0; i < sizeof(gpu_names) / sizeof(gpu_names[0]); i++) {
    *rank = (int)i;
    if (strncmp(object->name, gpu_names[i], strlen(gpu_names[i])) == 0)
      return COLLI_DEVICE_GPU;
  }
  return -1;
}

/* Whether another OS device of the same PCI device has a better name for the same GPU. */
static bool has_better_name(hwloc_obj_t object, int rank) {
  if (object->parent == NULL || object->parent->type != HWLOC_OBJ_PCI_DEVICE)
    return false;
  for (hwloc_obj_t other = object->parent->io_first_child; other != NULL;
       other = other->next_sibling) {
    int other_rank;
    if (other != object && other->type == HWLOC_OBJ_OS_DEVICE && other->name != NULL &&
        kind_of(other, &other_rank) == COLLI_DEVICE_GPU && other_rank < rank)
      return true;
  }
  return false;
}

/* Logical index of the package that an object is or belongs to, or -1. */
static int package_of(hwloc_topology_t machine, hwloc_obj_t near) {
  return near->type == HWLOC_OBJ_PACKAGE ? (int)near->logical_index
                                         : index_above(machine, HWLOC_OBJ_PACKAGE, near);
}

static void write_bus(const struct hwloc_pcidev_attr_s *attr, char bus[COLLI_TOPO_NAME]) {
  snprintf(bus, COLLI_TOPO_NAME, "%04x:%02x:%02x.%01x", attr->domain, attr->bus, attr->dev,
           attr->func);
}

/* Fills one device from its OS object. */
static void fill_device(hwloc_topology_t machine, hwloc_obj_t object, colli_device_kind kind,
                        colli_topo_device *device) {
  hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(machine, object);
  hwloc_obj_t pci = object->parent;
  device->kind = kind;
  snprintf(device->name, sizeof(device->name), "%s", object->name);
  device->numa_node = node_of(machine, near, 1);
  device->package = package_of(machine, near);
  if (pci != NULL && pci->type == HWLOC_OBJ_PCI_DEVICE) {
    const struct hwloc_pcidev_attr_s *attr = &pci->attr->pcidev;
    write_bus(attr, device->bus);
    if (kind == COLLI_DEVICE_GPU)
      device->link_mbit = attr->linkspeed * 8000.0; /* hwloc has GB/s */
  }
  if (kind != COLLI_DEVICE_GPU && hwloc_topology_is_thissystem(machine))
    device->link_mbit = colli_topo_link_mbit("/sys", kind, device->name);
  const char *noted = hwloc_obj_get_info_by_name(object, LINK_MBIT);
  const double mbit = noted != NULL ? strtod(noted, NULL) : 0;
  if (device->link_mbit == 0 && mbit > 0)
    device->link_mbit = mbit;
}

/* Fills the list of devices. */
static coll_status read_devices(hwloc_topology_t machine, colli_topo *topo) {
  int count = count_of(machine, HWLOC_OBJ_OS_DEVICE);
  if (count == 0)
    return COLL_OK;
  topo->devices = calloc((size_t)count, sizeof(*topo->devices));
  if (topo->devices == NULL)
    return COLL_ERR_NO_MEMORY;
  for (hwloc_obj_t object = hwloc_get_next_osdev(machine, NULL); object != NULL;
       object = hwloc_get_next_osdev(machine, object)) {
    int rank;
    int kind = object->name != NULL ? kind_of(object, &rank) : -1;
    if (kind >= 0 && !has_better_name(object, rank))
      fill_device(machine, object, (colli_device_kind)kind, &topo->devices[topo->ndevices++]);
  }
  return COLL_OK;
}

/* ---- where GPUs and network cards are plugged in --------------------------------------------- */

/* Describes where one PCI device is. */
static void fill_pci(hwloc_topology_t machine, hwloc_obj_t object, colli_device_kind kind,
                     colli_topo_pci *pci) {
  const hwloc_obj_t near = hwloc_get_non_io_ancestor_obj(machine, object);
  int depth = 0;
  pci->kind = kind;
  write_bus(&object->attr->pcidev, pci->bus);
  pci->place.numa_node = node_of(machine, near, 1);
  pci->package = package_of(machine, near);
  for (hwloc_obj_t at = object->parent; at != NULL && at->type == HWLOC_OBJ_BRIDGE; at = at->parent)
    depth++;
  pci->place.nbridges = depth < COLLI_PCI_BRIDGES ? depth : COLLI_PCI_BRIDGES;
  for (hwloc_obj_t at = object->parent; depth > 0; at = at->parent)
    if (--depth < COLLI_PCI_BRIDGES)
      pci->place.bridges[depth] = at->logical_index;
}

/* Fills the list of PCI devices that are GPUs, displays or network cards. */
static coll_status read_pci(hwloc_topology_t machine, colli_topo *topo) {
  const int count = count_of(machine, HWLOC_OBJ_PCI_DEVICE);
  if (count == 0)
    return COLL_OK;
  topo->pci = calloc((size_t)count, sizeof(*topo->pci));
  if (topo->pci == NULL)
    return COLL_ERR_NO_MEMORY;
  for (hwloc_obj_t object = hwloc_get_next_pcidev(machine, NULL); object != NULL;
       object = hwloc_get_next_pcidev(machine, object)) {
    const int kind = colli_topo_pci_kind(object->attr->pcidev.class_id);
    if (kind >= 0)
      fill_pci(machine, object, (colli_device_kind)kind, &topo->pci[topo->npci++]);
  }
  return COLL_OK;
}

/* ---- NVLinks --------------------------------------------------------------------------------- */

/* What that object of the matrix is: a GPU, under one of its names; a PCI device: a switch. */
static colli_nvlink_end end_of(hwloc_obj_t object, int number, const colli_topo *topo, int *to) {
  char bus[COLLI_TOPO_NAME];
  const hwloc_obj_t pci = object->type == HWLOC_OBJ_OS_DEVICE ? object->parent : object;
  const bool is_package = object->type == HWLOC_OBJ_PACKAGE;
  *to = is_package ? (int)object->logical_index : number;
  if (is_package || pci == NULL || pci->type != HWLOC_OBJ_PCI_DEVICE)
    return is_package ? COLLI_NVLINK_PACKAGE : COLLI_NVLINK_OTHER;
  write_bus(&pci->attr->pcidev, bus);
  for (int d = 0; d < topo->ndevices; d++)
    if (topo->devices[d].kind == COLLI_DEVICE_GPU && strcmp(topo->devices[d].bus, bus) == 0) {
      *to = d;
      return COLLI_NVLINK_GPU;
    }
  return object == pci ? COLLI_NVLINK_SWITCH : COLLI_NVLINK_OTHER;
}

/* Adds what lies between a GPU and the other objects of the matrix, which has MB/s. */
static coll_status add_nvlinks(const struct hwloc_distances_s *matrix, unsigned from, int gpu,
                               colli_topo *topo) {
  coll_status status = COLL_OK;
  for (unsigned i = 0; i < matrix->nbobjs && status == COLL_OK; i++) {
    const double mbyte = (double)matrix->values[from * matrix->nbobjs + i];
    colli_topo_nvlink link = {.gpu = gpu, .mbit = 8 * mbyte};
    if (link.mbit <= 0 || matrix->objs[i] == NULL)
      continue;
    link.end = end_of(matrix->objs[i], (int)i, topo, &link.to);
    status = colli_topo_add_nvlink(topo, link);
  }
  return status;
}

/* Fills the list of NVLinks. */
static coll_status read_nvlinks(hwloc_topology_t machine, colli_topo *topo) {
  struct hwloc_distances_s *matrix;
  unsigned found = 1;
  int gpu;
  if (hwloc_distances_get_by_name(machine, "NVLinkBandwidth", &found, &matrix, 0) < 0)
    return COLL_ERR_NO_MEMORY;
  if (found == 0)
    return COLL_OK;
  topo->nvlinks = calloc(COLLI_TOPO_NVLINKS_MOST, sizeof(*topo->nvlinks));
  coll_status status = topo->nvlinks != NULL ? COLL_OK : COLL_ERR_NO_MEMORY;
  for (unsigned i = 0; status == COLL_OK && i < matrix->nbobjs; i++)
    if (matrix->objs[i] != NULL && end_of(matrix->objs[i], 0, topo, &gpu) == COLLI_NVLINK_GPU)
      status = add_nvlinks(matrix, i, gpu, topo);
  hwloc_distances_release(machine, matrix);
  return status;
}

/* ---- entry points ---------------------------------------------------------------------------- */

coll_status colli_topo_read(const char *source, colli_topo **topo, coll_error *error) {
  hwloc_topology_t machine;
  *topo = NULL;
  coll_status status = open_machine(source, &machine, error);
  if (status != COLL_OK)
    return status;
  colli_topo *made = calloc(1, sizeof(*made));
  status = made == NULL ? COLL_ERR_NO_MEMORY : read_cores(machine, made);
  if (status == COLL_OK)
    status = read_devices(machine, made);
  if (status == COLL_OK)
    status = read_pci(machine, made);
  if (status == COLL_OK)
    status = read_nvlinks(machine, made);
  hwloc_topology_destroy(machine);
  if (status != COLL_OK) {
    colli_topo_free(made);
    if (status == COLL_ERR_NO_MEMORY)
      return colli_error_set(error, status, "topology", "out of memory for the topology");
    return colli_error_set(error, status, "topology", "it has more NVLinks than any machine");
  }
  snprintf(made->source, sizeof(made->source), "%s", source[0] == '\0' ? "this machine" : source);
  *topo = made;
  return COLL_OK;
}

/* Adds the speed of each device of this machine, which is not part of what hwloc reads. */
static void note_speeds(hwloc_topology_t machine) {
  char text[32];
  for (hwloc_obj_t object = hwloc_get_next_osdev(machine, NULL);
       hwloc_topology_is_thissystem(machine) && object != NULL;
       object = hwloc_get_next_osdev(machine, object)) {
    int rank;
    const int kind = object->name != NULL ? kind_of(object, &rank) : -1;
    const double mbit = kind >= 0 && kind != COLLI_DEVICE_GPU
                            ? colli_topo_link_mbit("/sys", (colli_device_kind)kind, object->name)
                            : 0;
    snprintf(text, sizeof(text), "%.17g", mbit);
    if (mbit > 0)
      (void)hwloc_obj_add_info(object, LINK_MBIT, text);
  }
}

coll_status colli_topo_describe(const char *source, FILE *out, coll_error *error) {
  hwloc_topology_t machine;
  char *text;
  int bytes;
  coll_status status = open_machine(source, &machine, error);
  if (status != COLL_OK)
    return status;
  note_speeds(machine);
  if (hwloc_topology_export_xmlbuffer(machine, &text, &bytes, 0) != 0) {
    status = colli_error_sys(error, COLL_ERR_SYSTEM, "topology", "hwloc_topology_export_xmlbuffer",
                             errno, "hwloc cannot describe the machine as XML");
  } else {
    fwrite(text, 1, strlen(text), out);
    hwloc_free_xmlbuffer(machine, text);
  }
  hwloc_topology_destroy(machine);
  return status;
}

coll_status colli_topo_try(const char *source, FILE *out, coll_error *error) {
  hwloc_topology_t machine;
  (void)out;
  coll_status status = open_machine(source, &machine, error);
  if (status == COLL_OK)
    hwloc_topology_destroy(machine);
  return status;
}
