/*
 * verbs_device.h: which devices and ports to use. A *rail* is one port of one device, opened, with
 * all that its connections depend on.
 *
 * Rails are all usable ports that COLL_VERBS_DEVICE and COLL_VERBS_PORT allow, if they are as fast
 * as the fastest of these and on the same kind of network. Those near this rank's GPU come first,
 * of equally near ones, or if the rank has none, those near this thread's NUMA node. If a device is
 * at a switch with the GPU, and COLL_VERBS_DEVICE names none, those farther away in the same
 * network are left to other GPUs. A port that is down or has no address is not usable.
 */
#ifndef COLLI_TRANSPORTS_VERBS_DEVICE_H
#define COLLI_TRANSPORTS_VERBS_DEVICE_H

#include <stdbool.h>

#include "coll/coll_transport.h"
#include "libcoll/base/pci.h"
#include "libcoll/net/interfaces.h"
#include "transports/verbs/verbs_lib.h"

#define VERBS_MAX_RAILS  4
#define VERBS_RAIL_GIDS  2
#define VERBS_NAME_BYTES 64
#define VERBS_RAIL_TEXT  240

/* The COLL_VERBS_ settings, and COLL_TCP_IFNAME. */
typedef struct verbs_settings {
  const char *devices; /* valid as long as the environment that it was read from */
  const char *ifname;  /* RoCE: addresses of these interfaces first */
  int port;            /* 0: any */
  int gid_index;       /* -1: chosen */
  uint8_t traffic_class;
  uint8_t service_level;
  uint8_t timeout; /* of a queue pair: an unanswered packet is repeated after 4.096 us << timeout */
  uint8_t retry;   /* how often */
  const char *gpu; /* PCI address of this rank's GPU, whose place is known; or NULL */
  colli_pci_place gpu_place;
} verbs_settings;

/* An address of a port: an entry of its GID table. */
typedef struct verbs_gid {
  union ibv_gid raw;
  uint32_t index;
  uint32_t type;   /* enum ibv_gid_type */
  colli_addr addr; /* RoCE: the IP address that it is made of, with its subnet; else family 0 */
} verbs_gid;

typedef struct verbs_rail {
  struct ibv_context *context;
  char name[VERBS_NAME_BYTES]; /* "mlx5_0" */
  uint8_t port;
  uint8_t link_layer; /* IBV_LINK_LAYER_INFINIBAND or _ETHERNET */
  uint16_t lid;       /* InfiniBand */
  uint16_t pkey_index;
  enum ibv_mtu mtu;               /* active */
  uint32_t mbit;                  /* 0: unknown */
  verbs_gid gid[VERBS_RAIL_GIDS]; /* best first; RoCE: all of one type, different families */
  int ngids;                      /* at least 1 */
  struct ibv_device_attr limits;
  bool relaxed_ordering;       /* writes may overtake each other if the registration allows it */
  uint64_t odp_general;        /* on-demand paging: enum ibv_odp_general_caps; 0: none */
  uint32_t odp_rc;             /* of reliable connections: enum ibv_odp_transport_cap_bits */
  char pci[COLLI_PCI_ADDRESS]; /* "0000:3b:00.0", or "" */
  colli_pci_place place;       /* there */
  char why[COLLI_PCI_WHY];     /* how near it is to this rank's GPU; "": that is not known */
  int async_fd;                /* nonblocking; verbs_event.h reads it */
  bool listed;                 /* the system lists the device, until it is removed */
} verbs_rail;

/* Reads the settings. INVALID_USAGE if they contradict each other. */
coll_status verbs_settings_read(const coll_transport_env *env, verbs_settings *settings,
                                verbs_fault *fault);

/*
 * Opens up to `max` rails. Returns how many; 0 with the reason: UNSUPPORTED where there is no
 * device at all, INVALID_USAGE for settings that fit none, SYSTEM where there are devices that
 * cannot be used.
 */
int verbs_rails_open(const verbs_lib *lib, const verbs_settings *settings, verbs_rail *rails,
                     int max, verbs_fault *fault);

void verbs_rails_close(const verbs_lib *lib, verbs_rail *rails, int count);

/* Writes "mlx5_0:1 InfiniBand 200 Gbit/s LID 7, 0000:3b:00.0" and returns text. */
const char *verbs_rail_text(const verbs_rail *rail, char text[VERBS_RAIL_TEXT]);

#endif
