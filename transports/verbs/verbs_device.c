/* verbs_device.c: opens the devices and ports to use. */
#include "transports/verbs/verbs_device.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/fork.h"
#include "libcoll/base/libc.h"
#include "transports/verbs/verbs_device_internal.h"
#include "transports/verbs/verbs_event.h"

#define MAX_FOUND      64 /* ports that are examined */
#define KERNEL_DEVICES "/sys/class/infiniband"

/* A port that can be a rail. */
typedef struct candidate {
  struct ibv_device *device;
  verbs_rail rail; /* without its context */
} candidate;

typedef struct search {
  const verbs_lib *lib;
  const verbs_settings *settings;
  candidate *found; /* of MAX_FOUND */
  int count;
  verbs_refusal refusal;
} search;

/* ---- one port -------------------------------------------------------------------------------- */

/* A link's speed from the codes of its width and lane speed, which are single bits; 0: unknown. */
static uint32_t mbit_of(const struct ibv_port_attr *attr) {
  static const uint32_t lane_mbit[8] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000};
  static const uint32_t lane_count[5] = {1, 4, 8, 12, 2};
  int speed = __builtin_ffs(attr->active_speed) - 1, width = __builtin_ffs(attr->active_width) - 1;
  if (speed < 0 || width < 0 || width >= 5)
    return 0;
  return lane_mbit[speed] * lane_count[width];
}

/* What can be done about a port that is not active. */
static const char *advice_for(const struct ibv_port_attr *attr) {
  if (attr->link_layer != IBV_LINK_LAYER_INFINIBAND)
    return "set its network interface up (`rdma link` shows which one that is) and check the cable";
  return attr->state == IBV_PORT_INIT || attr->state == IBV_PORT_ARMED
             ? "the cable is fine, but no subnet manager has set it up: start one (opensm) or ask "
               "who runs it"
             : "check the cable and the switch";
}

/* Examines one port of an open device; true if it can be a rail. */
static bool examine_port(search *s, struct ibv_context *context, verbs_rail *rail) {
  struct ibv_port_attr attr;
  int error = verbs_query_port(s->lib, context, rail->port, &attr);
  if (error != 0) {
    verbs_refuse(&s->refusal, VERBS_REFUSED_OPEN, COLL_ERR_SYSTEM, "ibv_query_port",
                 error > 0 ? error : errno, "%s port %d does not answer", rail->name, rail->port);
    return false;
  }
  rail->link_layer = attr.link_layer == IBV_LINK_LAYER_ETHERNET ? IBV_LINK_LAYER_ETHERNET
                                                                : IBV_LINK_LAYER_INFINIBAND;
  attr.link_layer = rail->link_layer;
  if (attr.state != IBV_PORT_ACTIVE) {
    verbs_refuse(&s->refusal, VERBS_REFUSED_DOWN, COLL_ERR_SYSTEM, NULL, 0,
                 "%s port %d is not active (%s): %s", rail->name, rail->port,
                 s->lib->port_state_str(attr.state), advice_for(&attr));
    return false;
  }
  if (rail->link_layer == IBV_LINK_LAYER_INFINIBAND && attr.lid == 0) {
    verbs_refuse(&s->refusal, VERBS_REFUSED_ADDRESS, COLL_ERR_SYSTEM, NULL, 0,
                 "%s port %d has no LID: is the subnet manager running?", rail->name, rail->port);
    return false;
  }
  rail->lid = attr.lid;
  rail->mtu = attr.active_mtu >= IBV_MTU_256 && attr.active_mtu <= IBV_MTU_4096 ? attr.active_mtu
                                                                                : IBV_MTU_1024;
  rail->mbit = mbit_of(&attr);
  return verbs_gids_choose(s->lib, s->settings, rail, context, attr.gid_tbl_len, &s->refusal);
}

/* ---- one device ------------------------------------------------------------------------------ */

/*
 * Whether a device has the kind of connection that this transport uses. iWARP needs librdmacm to
 * connect; others, such as EFA, have no reliable connections at all.
 */
static bool is_usable_kind(search *s, const struct ibv_device *device, const char *name) {
  if (device->transport_type == IBV_TRANSPORT_IB && device->node_type == IBV_NODE_CA)
    return true;
  verbs_refuse(&s->refusal, VERBS_REFUSED_KIND, COLL_ERR_UNSUPPORTED, NULL, 0,
               "device %s is %s; libcoll uses InfiniBand and RoCE", name,
               device->transport_type == IBV_TRANSPORT_IWARP
                   ? "an iWARP adapter"
                   : "no adapter with reliable connections");
  return false;
}

/* Opens a device, or says why not. */
static struct ibv_context *open_device(search *s, struct ibv_device *device, const char *name) {
  errno = 0;
  colli_fork_hold();
  struct ibv_context *context = s->lib->open_device(device);
  if (context) {
    colli_fd_enlist(context->cmd_fd);
    colli_fd_enlist(context->async_fd);
  }
  colli_fork_release();
  if (context)
    return context;
  int error = errno;
  const char *advice = "look at dmesg";
  if (error == EACCES || error == EPERM)
    advice = "give the user read and write permission on it (udev sets mode 0666 usually; in a "
             "container: --device=/dev/infiniband)";
  else if (error == ENOENT || error == ENXIO || error == ENODEV)
    advice = "it is not there; in a container: --device=/dev/infiniband";
  verbs_refuse(&s->refusal, VERBS_REFUSED_OPEN, COLL_ERR_SYSTEM, "ibv_open_device", error,
               "device %s cannot be opened through /dev/infiniband/%s: %s", name, device->dev_name,
               advice);
  return NULL;
}

/* Closes it again. */
static void close_device(const verbs_lib *lib, struct ibv_context *context) {
  colli_fork_hold();
  colli_fd_delist(context->cmd_fd);
  colli_fd_delist(context->async_fd);
  lib->close_device(context);
  colli_fork_release();
}

/* Asks what the device can do; false if it does not answer. */
static bool query_limits(search *s, struct ibv_context *context, verbs_rail *rail) {
  struct ibv_device_attr_ex extended;
  memset(&extended, 0, sizeof(extended));
  struct verbs_context *ops = verbs_get_ctx_op(context, query_device_ex);
  int error = ops ? ops->query_device_ex(context, NULL, &extended, sizeof(extended))
                  : s->lib->query_device(context, &extended.orig_attr);
  if (error != 0) {
    verbs_refuse(&s->refusal, VERBS_REFUSED_OPEN, COLL_ERR_SYSTEM, "ibv_query_device",
                 error > 0 ? error : errno, "device %s does not answer", rail->name);
    return false;
  }
  rail->limits = extended.orig_attr;
  if (extended.odp_caps.general_caps & IBV_ODP_SUPPORT) {
    rail->odp_general = extended.odp_caps.general_caps;
    rail->odp_rc = extended.odp_caps.per_transport_caps.rc_odp_caps;
  }
  return true;
}

/* Examines all ports of a device. */
static void examine_device(search *s, struct ibv_device *device) {
  const char *name = s->lib->get_device_name(device);
  if (!name)
    return;
  if (!verbs_device_allowed(s->settings, name, 0)) {
    verbs_refuse(&s->refusal, VERBS_REFUSED_SETTINGS, COLL_ERR_INVALID_USAGE, NULL, 0,
                 "COLL_VERBS_DEVICE=%s leaves out every device, such as %s; `ibv_devices` lists "
                 "them",
                 s->settings->devices, name);
    return;
  }
  if (!is_usable_kind(s, device, name))
    return;
  struct ibv_context *context = open_device(s, device, name);
  if (!context)
    return;
  verbs_rail rail = {.async_fd = -1};
  snprintf(rail.name, sizeof(rail.name), "%s", name);
  verbs_locality_find(device, &rail);
  rail.relaxed_ordering = *rail.pci != 0;
  bool usable = query_limits(s, context, &rail);
  for (int port = 1; usable && port <= rail.limits.phys_port_cnt && s->count < MAX_FOUND; port++) {
    rail.port = (uint8_t)port;
    if (!verbs_device_allowed(s->settings, name, port))
      verbs_refuse(&s->refusal, VERBS_REFUSED_SETTINGS, COLL_ERR_INVALID_USAGE, NULL, 0,
                   "COLL_VERBS_DEVICE and COLL_VERBS_PORT leave out every port, such as %s:%d; "
                   "`ibv_devinfo` lists them",
                   name, port);
    else if (examine_port(s, context, &rail))
      s->found[s->count++] = (candidate){device, rail};
  }
  close_device(s->lib, context);
}

/* ---- choice ---------------------------------------------------------------------------------- */

/* This thread's NUMA node. */
static int own_node(void) {
  unsigned cpu, node;
  return getcpu(&cpu, &node) == 0 ? (int)node : -1;
}

/* Whether a port may be a rail beside another one: as fast, and on the same kind of network. */
static bool is_alike(const candidate *a, const candidate *b) {
  return a->rail.mbit == b->rail.mbit && a->rail.link_layer == b->rail.link_layer;
}

/* Whether two ports are in one network: then whoever reaches one reaches the other. */
static bool share_network(const verbs_rail *a, const verbs_rail *b) {
  return a->link_layer == IBV_LINK_LAYER_INFINIBAND
             ? memcmp(a->gid[0].raw.raw, b->gid[0].raw.raw, sizeof(uint64_t)) == 0
             : colli_addr_affinity(&a->gid[0].addr, &b->gid[0].addr) == 2;
}

/* The fastest port, the first of equals. */
static int find_best(const search *s) {
  int best = 0;
  for (int i = 0; i < s->count; i++)
    best = s->found[i].rail.mbit > s->found[best].rail.mbit ? i : best;
  return best;
}

/* Whether ports are chosen by what is near the rank's GPU: only if all that may be used are in one
 * network. Else ranks of several GPUs would choose ports that do not reach each other. */
static bool tells_by_gpu(const search *s, int best) {
  bool tells = s->settings->gpu != NULL;
  for (int i = 0; i < s->count; i++)
    tells &= !is_alike(&s->found[i], &s->found[best]) ||
             share_network(&s->found[i].rail, &s->found[best].rail);
  return tells;
}

/* How far a port is from this rank's GPU and, if that does not tell ports apart, from this thread:
 * the smaller the nearer. */
static int remoteness(const search *s, bool by_gpu, const verbs_rail *rail, int node) {
  const bool near = node >= 0 && rail->place.numa_node == node;
  return 2 * (by_gpu ? colli_pci_order(&s->settings->gpu_place, &rail->place) : 0) - near;
}

/*
 * Orders the ports that are as fast as the fastest one and of its kind, by their numbers: nearest
 * first. Returns how many they are. Equally near ones follow in the order of the list, beginning at
 * the one that is nearest to the GPU and wrapping around, so that ranks of several GPUs do not all
 * take the same one.
 */
static int order_candidates(const search *s, int best, bool by_gpu, int order[MAX_FOUND]) {
  const int node = own_node();
  int kept = 0, far[MAX_FOUND];
  for (int i = 0; i < s->count; i++)
    far[i] = remoteness(s, by_gpu, &s->found[i].rail, node);
  int first = by_gpu ? best : 0;
  for (int i = s->count - 1; i >= 0 && by_gpu; i--)
    if (is_alike(&s->found[i], &s->found[best]) && far[i] <= far[first])
      first = i;
  for (int i = 0; i < s->count; i++) {
    const int one = (first + i) % s->count;
    if (!is_alike(&s->found[one], &s->found[best]))
      continue;
    int at = kept++;
    for (; at > 0 && far[one] < far[order[at - 1]]; at--)
      order[at] = order[at - 1];
    order[at] = one;
  }
  return kept;
}

/* Opens the chosen ports for good. */
static int open_rails(search *s, verbs_rail *rails, int max) {
  const int best = find_best(s);
  const bool by_gpu = tells_by_gpu(s, best);
  int order[MAX_FOUND], opened = 0, wanted = order_candidates(s, best, by_gpu, order);
  for (int i = 0; i < wanted && opened < max; i++) {
    const candidate *one = &s->found[order[i]];
    verbs_rail *rail = &rails[opened];
    *rail = one->rail;
    rail->context = open_device(s, one->device, rail->name);
    if (!rail->context)
      continue;
    const colli_pci_distance distance =
        colli_pci_distance_of(&s->settings->gpu_place, &rail->place);
    if (by_gpu && distance != COLLI_PCI_UNKNOWN)
      (void)colli_pci_explain(distance, s->settings->gpu, rail->why);
    rail->async_fd = rail->context->async_fd;
    rail->listed = verbs_event_listed(rail);
    int flags = fcntl(rail->async_fd, F_GETFL);
    if (flags < 0 || fcntl(rail->async_fd, F_SETFL, flags | O_NONBLOCK) != 0) {
      verbs_refuse(&s->refusal, VERBS_REFUSED_OPEN, COLL_ERR_SYSTEM, "fcntl", errno,
                   "the events of device %s cannot be read", rail->name);
      close_device(s->lib, rail->context);
      continue;
    }
    opened++;
  }
  return opened;
}

/* Says why libibverbs lists no device. */
static void explain_none(int sys_errno, verbs_fault *fault) {
  DIR *folder = opendir(KERNEL_DEVICES);
  const struct dirent *entry = NULL;
  char name[VERBS_NAME_BYTES] = "";
  while (folder && !*name && (entry = readdir(folder)))
    if (*entry->d_name != '.')
      snprintf(name, sizeof(name), "%.63s", entry->d_name);
  if (folder)
    closedir(folder);
  if (*name)
    verbs_fault_set(
        fault, COLL_ERR_SYSTEM, "ibv_get_device_list", sys_errno,
        "the kernel has device %s, but libibverbs cannot drive it: install its driver "
        "(Debian: ibverbs-providers) and load the module ib_uverbs, unless the device is being "
        "removed",
        name);
  else
    verbs_fault_set(fault, COLL_ERR_UNSUPPORTED, NULL, 0,
                    "this machine has no InfiniBand or RoCE device (`ibv_devices` lists none)");
}

int verbs_rails_open(const verbs_lib *lib, const verbs_settings *settings, verbs_rail *rails,
                     int max, verbs_fault *fault) {
  search s = {.lib = lib, .settings = settings};
  int ndevices = 0, opened = 0;
  errno = 0;
  struct ibv_device **list = lib->get_device_list(&ndevices);
  if (!list || ndevices <= 0) {
    explain_none(errno, fault);
    if (list)
      lib->free_device_list(list);
    return 0;
  }
  s.found = calloc(MAX_FOUND, sizeof(*s.found));
  if (!s.found)
    verbs_refuse(&s.refusal, VERBS_REFUSED_OPEN, COLL_ERR_NO_MEMORY, "malloc", ENOMEM,
                 "out of memory for the list of verbs devices");
  for (int i = 0; s.found && i < ndevices && list[i]; i++)
    examine_device(&s, list[i]);
  if (s.count > 0)
    opened = open_rails(&s, rails, max);
  free(s.found);
  lib->free_device_list(list);
  if (opened > 0)
    return opened;
  if (s.refusal.stage == 0)
    verbs_refuse(&s.refusal, VERBS_REFUSED_OPEN, COLL_ERR_SYSTEM, NULL, 0,
                 "no verbs device of this machine has a port");
  *fault = s.refusal.fault;
  if (s.refusal.ports > 1) {
    size_t used = strlen(fault->detail);
    snprintf(fault->detail + used, sizeof(fault->detail) - used, " (and %d more)",
             s.refusal.ports - 1);
  }
  return 0;
}

void verbs_rails_close(const verbs_lib *lib, verbs_rail *rails, int count) {
  for (int i = 0; i < count; i++) {
    if (rails[i].context)
      close_device(lib, rails[i].context);
    rails[i].context = NULL;
    rails[i].async_fd = -1;
  }
}

const char *verbs_rail_text(const verbs_rail *rail, char text[VERBS_RAIL_TEXT]) {
  char addr[COLLI_ADDR_TEXT] = "", speed[32] = "", lid[16] = "";
  colli_addr first = rail->gid[0].addr;
  bool ethernet = rail->link_layer == IBV_LINK_LAYER_ETHERNET;
  if (rail->mbit >= 1000)
    snprintf(speed, sizeof(speed), " %u Gbit/s", (unsigned)(rail->mbit / 1000));
  if (!ethernet)
    snprintf(lid, sizeof(lid), " LID %u", (unsigned)rail->lid);
  else
    (void)colli_addr_host_text(&first, addr);
  snprintf(text, VERBS_RAIL_TEXT, "%s:%u %s%s%s%s%s%s%s", rail->name, (unsigned)rail->port,
           !ethernet                                   ? "InfiniBand"
           : rail->gid[0].type == IBV_GID_TYPE_ROCE_V2 ? "RoCE v2"
                                                       : "RoCE v1",
           speed, lid, *addr ? " " : "", addr, *rail->pci ? ", " : "", rail->pci);
  return text;
}
