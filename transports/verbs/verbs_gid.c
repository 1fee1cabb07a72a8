/*
 * verbs_gid.c: the addresses of a port.
 *
 * InfiniBand: entry 0. RoCE has an entry for each IP address of the network interface and each
 * version of the protocol: version 2, which crosses routers, goes before 1, and addresses that are
 * valid everywhere before those of one cable. The best of each family is offered; which of them a
 * pair of ranks uses follows from both their lists (verbs_addr.h).
 */
#include <string.h>

#include "transports/verbs/verbs_device_internal.h"

#define MAX_GIDS      256 /* address vectors have 8 bits for the index */
#define MAX_INTERFACE 64

/*
 * This host's IP addresses, from which the subnets of GIDs follow: all, and those that
 * COLL_TCP_IFNAME allows.
 */
typedef struct interfaces {
  colli_addr all[MAX_INTERFACE], allowed[MAX_INTERFACE];
  int nall, nallowed;
} interfaces;

/* The entry of a list with the same IP address, or NULL. */
static const colli_addr *find_addr(const colli_addr *list, int count, const colli_addr *addr) {
  for (int i = 0; i < count; i++)
    if (list[i].family == addr->family && memcmp(list[i].ip, addr->ip, sizeof(addr->ip)) == 0)
      return &list[i];
  return NULL;
}

/* The IP address that a RoCE GID is made of. */
static void read_addr(const union ibv_gid *gid, colli_addr *addr) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  memset(addr, 0, sizeof(*addr));
  if (memcmp(gid->raw, mapped, sizeof(mapped)) == 0) {
    addr->family = 4;
    memcpy(addr->ip, gid->raw + 12, 4);
  } else {
    addr->family = 6;
    memcpy(addr->ip, gid->raw, 16);
  }
}

/* Reads one entry; false if it is empty. */
static bool read_gid(const verbs_lib *lib, struct ibv_context *context, int port, int index,
                     verbs_gid *gid) {
  static const union ibv_gid zero;
  struct ibv_gid_entry entry = {0};
  if (lib->query_gid_ex(context, (uint32_t)port, (uint32_t)index, &entry, 0, sizeof(entry)) != 0 ||
      memcmp(&entry.gid, &zero, sizeof(zero)) == 0)
    return false;
  *gid = (verbs_gid){.raw = entry.gid, .index = (uint32_t)index, .type = entry.gid_type};
  return true;
}

/* How good a RoCE address is; 0: unusable. The version counts most. */
static int score_gid(const verbs_gid *gid, const interfaces *known) {
  if (colli_addr_loopback(&gid->addr) ||
      (gid->type != IBV_GID_TYPE_ROCE_V2 && gid->type != IBV_GID_TYPE_ROCE_V1))
    return 0;
  return 1 + (find_addr(known->allowed, known->nallowed, &gid->addr) ? 1 : 0) +
         (colli_addr_link_local(&gid->addr) ? 0 : 2) + (gid->type == IBV_GID_TYPE_ROCE_V2 ? 4 : 0);
}

/*
 * Reads a RoCE entry and its subnet, which is unknown for addresses of other network namespaces.
 * Returns its score.
 */
static int read_roce(const verbs_lib *lib, struct ibv_context *context, int port, int index,
                     const interfaces *known, verbs_gid *gid) {
  if (!read_gid(lib, context, port, index, gid))
    return 0;
  read_addr(&gid->raw, &gid->addr);
  const colli_addr *same = find_addr(known->all, known->nall, &gid->addr);
  gid->addr.prefix = same ? same->prefix : 0;
  return score_gid(gid, known);
}

/* Offers the best addresses of a RoCE port: at most one of each family, all of one version. */
static void choose_roce(const verbs_lib *lib, verbs_rail *rail, struct ibv_context *context,
                        int first, int last, const interfaces *known) {
  verbs_gid best[2]; /* of IPv4 and of IPv6 */
  int scores[2] = {0, 0};
  for (int index = first; index <= last; index++) {
    verbs_gid gid;
    int how = read_roce(lib, context, rail->port, index, known, &gid);
    int family = how > 0 && gid.addr.family == 6;
    if (how > scores[family]) {
      best[family] = gid;
      scores[family] = how;
    }
  }
  int better = scores[1] > scores[0];
  if (scores[better] > 0)
    rail->gid[rail->ngids++] = best[better];
  if (scores[!better] > 0 && best[!better].type == best[better].type)
    rail->gid[rail->ngids++] = best[!better];
}

/* The addresses of this host's interfaces, as far as there are any. */
static void list_interfaces(const verbs_settings *settings, interfaces *known) {
  coll_error ignored = COLL_ERROR_INIT;
  known->nall = colli_net_interfaces("", known->all, MAX_INTERFACE, &ignored);
  known->nallowed = *settings->ifname ? colli_net_interfaces(settings->ifname, known->allowed,
                                                             MAX_INTERFACE, &ignored)
                                      : 0;
}

bool verbs_gids_choose(const verbs_lib *lib, const verbs_settings *settings, verbs_rail *rail,
                       struct ibv_context *context, int entries, verbs_refusal *refusal) {
  entries = entries < MAX_GIDS ? entries : MAX_GIDS;
  int wanted = settings->gid_index;
  if (wanted >= entries) {
    verbs_refuse(refusal, VERBS_REFUSED_ADDRESS, COLL_ERR_INVALID_USAGE, NULL, 0,
                 "%s port %d has %d GID entries, so COLL_VERBS_GID_INDEX=%d is none; "
                 "`ibv_devinfo -v` lists them",
                 rail->name, rail->port, entries > 0 ? entries : 0, wanted);
    return false;
  }
  rail->ngids = 0;
  if (rail->link_layer == IBV_LINK_LAYER_INFINIBAND) {
    rail->ngids = read_gid(lib, context, rail->port, wanted >= 0 ? wanted : 0, &rail->gid[0]);
  } else {
    interfaces known;
    list_interfaces(settings, &known);
    choose_roce(lib, rail, context, wanted >= 0 ? wanted : 0, wanted >= 0 ? wanted : entries - 1,
                &known);
  }
  if (rail->ngids > 0)
    return true;
  if (wanted >= 0)
    verbs_refuse(refusal, VERBS_REFUSED_ADDRESS, COLL_ERR_INVALID_USAGE, NULL, 0,
                 "GID entry %d of %s port %d holds no address that can be used; "
                 "`ibv_devinfo -v` lists those that do: correct or unset COLL_VERBS_GID_INDEX",
                 wanted, rail->name, rail->port);
  else
    verbs_refuse(refusal, VERBS_REFUSED_ADDRESS, COLL_ERR_SYSTEM, NULL, 0,
                 rail->link_layer == IBV_LINK_LAYER_INFINIBAND
                     ? "%s port %d has no GID; is the subnet manager running?"
                     : "%s port %d has no GID: give its network interface an IP address "
                       "(`rdma link` shows which one that is)",
                 rail->name, rail->port);
  return false;
}
