/*
 * sysfs.c: reads this machine from the kernel's files, for a build without hwloc. Objects are
 * numbered as hwloc does it: from the package down, each kind by its first processing unit.
 */
#include <ctype.h>
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "topology/read.h"

#define MOST_CACHES 16 /* of one processing unit that are looked at */

/* What a processing unit belongs to: the first unit of each; -1: none. From the outermost. */
enum { PACKAGE, NODE, L3, L2, CORE, LEVELS };

typedef struct unit {
  int number;
  int first[LEVELS];
} unit;

/* A machine while it is read. */
typedef struct reader {
  const char *root;
  colli_topo *topo;
  unit *units;
  int nunits;
} reader;

/* ---- files ----------------------------------------------------------------------------------- */

/* Reads the first line of a file below the root: false if there is none. */
__attribute__((format(printf, 4, 5))) static bool read_line(const char *root, char *line,
                                                            size_t room, const char *format, ...) {
  char path[PATH_MAX];
  int used = snprintf(path, sizeof(path), "%s/", root);
  va_list args;
  va_start(args, format);
  vsnprintf(path + used, sizeof(path) - (size_t)used, format, args);
  va_end(args);
  FILE *file = fopen(path, "re");
  if (file == NULL)
    return false;
  const bool read = fgets(line, (int)room, file) != NULL;
  fclose(file);
  if (read)
    line[strcspn(line, "\n")] = '\0';
  return read;
}

/* Takes the next range off a list such as 0-3,8: false at its end. */
static bool next_range(const char **list, int *first, int *last) {
  char *end;
  long from = strtol(*list, &end, 10), to = from;
  if (end == *list || from < 0)
    return false;
  if (*end == '-')
    to = strtol(end + 1, &end, 10);
  *list = *end == ',' ? end + 1 : end;
  *first = (int)from;
  *last = to < COLLI_CPUS_MOST ? (int)to : COLLI_CPUS_MOST - 1;
  return from < COLLI_CPUS_MOST;
}

/* The first number of a list, or -1. */
static int first_of(const char *list) {
  int first, last;
  return next_range(&list, &first, &last) ? first : -1;
}

/* Bytes of the kernel's text for a size, such as 32768K. */
static uint64_t parse_size(const char *text) {
  char *end;
  const uint64_t number = strtoull(text, &end, 10);
  return *end == 'K' ? number << 10 : *end == 'M' ? number << 20 : number;
}

/* ---- processing units ------------------------------------------------------------------------ */

/* Finds the caches of levels 2 and 3 of a unit. */
static void read_caches(reader *r, unit *u) {
  char text[4096], type[32];
  for (int i = 0; i < MOST_CACHES; i++) {
    const char *cache = "devices/system/cpu/cpu%d/cache/index%d/%s";
    char path[128];
    snprintf(path, sizeof(path), cache, u->number, i, "level");
    if (!read_line(r->root, text, sizeof(text), "%s", path))
      return;
    const int level = atoi(text);
    snprintf(path, sizeof(path), cache, u->number, i, "type");
    if ((level != 2 && level != 3) || !read_line(r->root, type, sizeof(type), "%s", path) ||
        strcmp(type, "Instruction") == 0)
      continue;
    uint64_t *bytes = level == 3 ? &r->topo->l3_bytes : &r->topo->l2_bytes;
    snprintf(path, sizeof(path), cache, u->number, i, "size");
    if (*bytes == 0 && read_line(r->root, text, sizeof(text), "%s", path))
      *bytes = parse_size(text);
    snprintf(path, sizeof(path), cache, u->number, i, "shared_cpu_list");
    if (read_line(r->root, text, sizeof(text), "%s", path))
      u->first[level == 3 ? L3 : L2] = first_of(text);
  }
}

/* Finds the core and the package of a unit. */
static void read_unit(reader *r, unit *u) {
  char list[4096];
  const char *topology = "devices/system/cpu/cpu%d/topology/%s";
  char path[128];
  for (int level = 0; level < LEVELS; level++)
    u->first[level] = -1;
  u->first[CORE] = u->number;
  /* The first name of each is of kernels since 5.0. */
  static const char *const names[][2] = {{"core_cpus_list", "thread_siblings_list"},
                                         {"package_cpus_list", "core_siblings_list"}};
  for (int i = 0; i < 2; i++)
    for (int j = 0; j < 2; j++) {
      snprintf(path, sizeof(path), topology, u->number, names[i][j]);
      if (read_line(r->root, list, sizeof(list), "%s", path)) {
        u->first[i == 0 ? CORE : PACKAGE] = first_of(list);
        break;
      }
    }
  read_caches(r, u);
}

/* Reads all units that are online. */
static coll_status read_units(reader *r) {
  char online[4096];
  const char *list = online;
  int first, last, most = 0;
  if (!read_line(r->root, online, sizeof(online), "devices/system/cpu/online"))
    return COLL_ERR_SYSTEM;
  while (next_range(&list, &first, &last)) {
    most += last - first + 1;
    r->topo->npu_numbers = last + 1;
  }
  r->units = calloc((size_t)most + 1, sizeof(*r->units));
  if (r->units == NULL)
    return COLL_ERR_NO_MEMORY;
  list = online;
  while (next_range(&list, &first, &last))
    for (int number = first; number <= last && r->nunits < most; number++) {
      r->units[r->nunits].number = number;
      read_unit(r, &r->units[r->nunits++]);
    }
  return r->nunits > 0 ? COLL_OK : COLL_ERR_SYSTEM;
}

/* Notes for each unit the first unit of its NUMA node. */
static void read_nodes(reader *r) {
  char nodes[1024], units[4096];
  const char *list = nodes;
  int first, last, from, to;
  if (!read_line(r->root, nodes, sizeof(nodes), "devices/system/node/online"))
    return;
  while (next_range(&list, &first, &last))
    for (int node = first; node <= last; node++) {
      if (!read_line(r->root, units, sizeof(units), "devices/system/node/node%d/cpulist", node))
        continue;
      for (const char *rest = units; next_range(&rest, &from, &to);)
        for (int i = 0; i < r->nunits; i++)
          if (r->units[i].number >= from && r->units[i].number <= to)
            r->units[i].first[NODE] = first_of(units);
    }
}

/* Orders units from the outermost level down. */
static int compare_units(const void *a, const void *b) {
  const unit *left = a, *right = b;
  for (int level = 0; level < LEVELS; level++)
    if (left->first[level] != right->first[level])
      return left->first[level] < right->first[level] ? -1 : 1;
  return left->number < right->number ? -1 : left->number > right->number;
}

/* ---- cores ----------------------------------------------------------------------------------- */

/* Makes cores of the ordered units, and numbers what they belong to. */
static coll_status make_cores(reader *r) {
  colli_topo *topo = r->topo;
  int *counts[LEVELS] = {&topo->npackages, &topo->nnuma, &topo->nl3, &topo->nl2, &topo->ncores};
  int now[LEVELS] = {-1, -1, -1, -1, -1};
  colli_cpus allowed;
  memset(&allowed, 0, sizeof(allowed));
  (void)sched_getaffinity(0, sizeof(allowed), &allowed.set);
  topo->npus = r->nunits;
  topo->cores = calloc((size_t)r->nunits, sizeof(*topo->cores));
  topo->core_of_pu = malloc((size_t)topo->npu_numbers * sizeof(*topo->core_of_pu));
  if (topo->cores == NULL || topo->core_of_pu == NULL)
    return COLL_ERR_NO_MEMORY;
  for (int i = 0; i < topo->npu_numbers; i++)
    topo->core_of_pu[i] = -1;
  for (int i = 0; i < r->nunits; i++) {
    const unit *u = &r->units[i];
    for (int level = 0; level < LEVELS; level++)
      if (u->first[level] >= 0 && (i == 0 || u->first[level] != r->units[i - 1].first[level]))
        now[level] = (*counts[level])++;
    colli_topo_core *core = &topo->cores[now[CORE]];
    if (i == 0 || u->first[CORE] != r->units[i - 1].first[CORE])
      *core = (colli_topo_core){u->number,
                                u->first[PACKAGE] < 0 ? -1 : now[PACKAGE],
                                u->first[NODE] < 0 ? -1 : now[NODE],
                                u->first[L3] < 0 ? -1 : now[L3],
                                u->first[L2] < 0 ? -1 : now[L2],
                                false};
    if (CPU_ISSET_S((size_t)u->number, sizeof(allowed), &allowed.set) && !core->allowed) {
      core->allowed = true;
      core->os_index = u->number;
    }
    topo->core_of_pu[u->number] = now[CORE];
  }
  return COLL_OK;
}

/* ---- devices --------------------------------------------------------------------------------- */

/* The logical number of the NUMA node to which a PCI device is attached, and its package; both -1
 * if they are not known. */
static void find_near(const reader *r, const char *bus, int *node, int *package) {
  char text[4096];
  *node = *package = -1;
  if (!read_line(r->root, text, sizeof(text), "bus/pci/devices/%s/numa_node", bus) ||
      !isdigit((unsigned char)text[0]) ||
      !read_line(r->root, text, sizeof(text), "devices/system/node/node%d/cpulist", atoi(text)))
    return;
  const int number = first_of(text);
  if (number < 0 || number >= r->topo->npu_numbers || r->topo->core_of_pu[number] < 0)
    return;
  const colli_topo_core *core = &r->topo->cores[r->topo->core_of_pu[number]];
  *node = core->numa_node;
  *package = core->package;
}

/* Calls `add` for each entry of a folder that has a PCI device, with the folder that it links to.
 */
static coll_status for_each(reader *r, const char *folder, const char *link,
                            coll_status (*add)(reader *r, const char *name, const char *target)) {
  char path[PATH_MAX], target[PATH_MAX];
  coll_status status = COLL_OK;
  snprintf(path, sizeof(path), "%s/%s", r->root, folder);
  struct dirent **entries;
  const int count = scandir(path, &entries, NULL, alphasort);
  for (int i = 0; i < count; i++) {
    snprintf(path, sizeof(path), "%s/%s/%s%s", r->root, folder, entries[i]->d_name, link);
    if (status == COLL_OK && entries[i]->d_name[0] != '.' && realpath(path, target) != NULL)
      status = add(r, entries[i]->d_name, target);
    free(entries[i]);
  }
  if (count >= 0)
    free(entries);
  return status;
}

static coll_status add_device(reader *r, colli_device_kind kind, const char *name,
                              const char *target) {
  colli_topo *topo = r->topo;
  const size_t bytes = ((size_t)topo->ndevices + 1) * sizeof(*topo->devices);
  colli_topo_device *more = realloc(topo->devices, bytes), device = {.kind = kind};
  if (more == NULL)
    return COLL_ERR_NO_MEMORY;
  topo->devices = more;
  char bus[COLLI_PCI_ADDRESS];
  colli_pci_place place;
  device.numa_node = device.package = -1;
  snprintf(device.name, sizeof(device.name), "%s", name);
  if (colli_pci_parse(target, bus, &place) > 0)
    snprintf(device.bus, sizeof(device.bus), "%s", bus);
  if (device.bus[0] != '\0')
    find_near(r, device.bus, &device.numa_node, &device.package);
  device.link_mbit = colli_topo_link_mbit(r->root, kind, name);
  more[topo->ndevices++] = device;
  return COLL_OK;
}

static coll_status add_net(reader *r, const char *name, const char *target) {
  return add_device(r, COLLI_DEVICE_NET, name, target);
}

static coll_status add_rdma(reader *r, const char *name, const char *target) {
  return add_device(r, COLLI_DEVICE_RDMA, name, target);
}

/* Adds the place of a PCI device if it is a display, a GPU or a network card. */
static coll_status add_pci(reader *r, const char *name, const char *target) {
  colli_topo *topo = r->topo;
  char text[32], bus[COLLI_PCI_ADDRESS];
  if (!read_line(r->root, text, sizeof(text), "bus/pci/devices/%s/class", name))
    return COLL_OK;
  const int kind = colli_topo_pci_kind((unsigned)strtoul(text, NULL, 16) >> 8); /* "0x030200" */
  if (kind < 0)
    return COLL_OK;
  colli_topo_pci *more = realloc(topo->pci, ((size_t)topo->npci + 1) * sizeof(*more));
  colli_topo_pci pci = {.kind = (colli_device_kind)kind};
  if (more == NULL)
    return COLL_ERR_NO_MEMORY;
  topo->pci = more;
  if (colli_pci_parse(target, bus, &pci.place) > 0)
    snprintf(pci.bus, sizeof(pci.bus), "%s", bus);
  find_near(r, pci.bus, &pci.place.numa_node, &pci.package);
  more[topo->npci++] = pci;
  return COLL_OK;
}

/* ---- entry point ----------------------------------------------------------------------------- */

static coll_status read_all(reader *r) {
  coll_status status = read_units(r);
  if (status != COLL_OK)
    return status;
  read_nodes(r);
  qsort(r->units, (size_t)r->nunits, sizeof(*r->units), compare_units);
  const long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
  r->topo->memory_bytes = pages > 0 ? (uint64_t)pages * (uint64_t)page_bytes : 0;
  status = make_cores(r);
  if (status == COLL_OK)
    status = for_each(r, "class/net", "/device", add_net);
  if (status == COLL_OK)
    status = for_each(r, "class/infiniband", "/device", add_rdma);
  if (status == COLL_OK)
    status = for_each(r, "bus/pci/devices", "", add_pci);
  return status;
}

coll_status colli_topo_read_sysfs(const char *root, colli_topo **topo, coll_error *error) {
  reader r = {.root = root, .topo = calloc(1, sizeof(*r.topo))};
  *topo = NULL;
  const coll_status status = r.topo == NULL ? COLL_ERR_NO_MEMORY : read_all(&r);
  free(r.units);
  if (status != COLL_OK) {
    colli_topo_free(r.topo);
    return colli_error_set(error, status, "topology",
                           status == COLL_ERR_SYSTEM ? "%s does not say which processors there are"
                                                     : "out of memory for the machine in %s",
                           root);
  }
  snprintf(r.topo->source, sizeof(r.topo->source), "this machine, read from %s without hwloc",
           root);
  *topo = r.topo;
  return COLL_OK;
}
