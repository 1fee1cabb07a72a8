/* verbs_addr.c: which rail of one rank goes with which of another. */
#include "transports/verbs/verbs_addr.h"

#include <stdio.h>
#include <string.h>

/*
 * Guesses for networks that were not measured: a write over a switch, and the speed of links whose
 * speed is unknown.
 */
#define ALPHA_NS     2000.0
#define DEFAULT_GBIT 10.0

#define MOST VERBS_MAX_RAILS

void verbs_wire_pack(const verbs_rail *rail, verbs_wire_rail *wire) {
  *wire = (verbs_wire_rail){.lid = rail->lid, .mtu = (uint8_t)rail->mtu};
  uint32_t gbit = rail->mbit / 1000;
  wire->gbit = (uint16_t)(gbit < UINT16_MAX ? gbit : UINT16_MAX);
  for (int i = 0; i < rail->ngids && i < VERBS_RAIL_GIDS; i++) {
    memcpy(wire->gid[i], rail->gid[i].raw.raw, sizeof(wire->gid[i]));
    wire->prefix[i] = rail->gid[i].addr.prefix;
  }
  if (rail->link_layer == IBV_LINK_LAYER_INFINIBAND)
    wire->type = VERBS_NET_INFINIBAND;
  else
    wire->type = rail->gid[0].type == IBV_GID_TYPE_ROCE_V2 ? VERBS_NET_ROCE_V2 : VERBS_NET_ROCE_V1;
}

/* Whether a GID is set. */
static bool is_there(const uint8_t gid[16]) {
  static const uint8_t zero[16];
  return memcmp(gid, zero, sizeof(zero)) != 0;
}

/* The IP address of a RoCE GID, family 0 if there is none. */
static colli_addr addr_of(const verbs_wire_rail *rail, int gid) {
  static const uint8_t mapped[12] = {[10] = 0xff, [11] = 0xff};
  const uint8_t *raw = rail->gid[gid];
  colli_addr addr = {.prefix = rail->prefix[gid]};
  if (!is_there(raw))
    return addr;
  bool v4 = memcmp(raw, mapped, sizeof(mapped)) == 0;
  addr.family = v4 ? 4 : 6;
  memcpy(addr.ip, v4 ? raw + 12 : raw, v4 ? 4 : 16);
  uint8_t most = v4 ? 32 : 128;
  addr.prefix = addr.prefix <= most ? addr.prefix : 0;
  return addr;
}

/*
 * How good a pair two rails are with one GID of each. 0: they cannot connect; 1: perhaps over
 * routers; 2: on one subnet. Symmetric.
 */
static int affinity(const verbs_wire_rail *a, int i, const verbs_wire_rail *b, int j) {
  if (!is_there(a->gid[i]) || !is_there(b->gid[j]))
    return 0;
  if (a->type == VERBS_NET_INFINIBAND) /* the first half of a GID is the subnet */
    return a->lid && b->lid && memcmp(a->gid[i], b->gid[j], 8) == 0 ? 2 : 0;
  colli_addr one = addr_of(a, i), other = addr_of(b, j);
  int how = colli_addr_affinity(&one, &other);
  if (how == 1 && one.prefix == 0 && other.prefix == 0 && a->type == VERBS_NET_ROCE_V1)
    return 1; /* subnets unknown */
  if (how == 1 && colli_addr_link_local(&one))
    return 1;
  return a->type == VERBS_NET_ROCE_V1 && how < 2 ? 0 : how; /* version 1 crosses no router */
}

/* Whether this version can use a rail. */
static bool is_valid(const verbs_wire_rail *rail) {
  return rail->type >= VERBS_NET_INFINIBAND && rail->type <= VERBS_NET_ROCE_V2 &&
         rail->mtu >= IBV_MTU_256 && rail->mtu <= IBV_MTU_4096;
}

/* The best GIDs of two rails; 0 if they cannot reach each other. */
static int best_gids(const verbs_wire_rail *a, const verbs_wire_rail *b, uint8_t *gid_a,
                     uint8_t *gid_b) {
  int best = 0;
  if (!is_valid(a) || !is_valid(b) || a->type != b->type)
    return 0;
  for (int i = 0; i < VERBS_RAIL_GIDS; i++)
    for (int j = 0; j < VERBS_RAIL_GIDS; j++) {
      int how = affinity(a, i, b, j);
      if (how > best) {
        best = how;
        *gid_a = (uint8_t)i;
        *gid_b = (uint8_t)j;
      }
    }
  return best;
}

/*
 * Pairs rails from a's point of view, the best pairs first. Of equal pairs those with equal numbers
 * come first, as hosts tend to be wired alike.
 */
static int pair_up(const verbs_wire_rail *a, int na, const verbs_wire_rail *b, int nb,
                   verbs_path paths[VERBS_MAX_RAILS]) {
  unsigned used_a = 0, used_b = 0;
  int count = 0;
  for (int how = 2; how >= 1; how--)
    for (int apart = 0; apart < MOST; apart++)
      for (int i = 0; i < na; i++)
        for (int side = -1; side <= 1; side += 2) {
          int j = i + side * apart;
          uint8_t gid_a = 0, gid_b = 0;
          if (j < 0 || j >= nb || used_a & 1u << i || used_b & 1u << j ||
              best_gids(&a[i], &b[j], &gid_a, &gid_b) != how)
            continue;
          used_a |= 1u << i;
          used_b |= 1u << j;
          uint8_t mtu = a[i].mtu < b[j].mtu ? a[i].mtu : b[j].mtu;
          paths[count++] = (verbs_path){(uint8_t)i, (uint8_t)j, gid_a, gid_b, mtu, how == 2};
        }
  return count;
}

int verbs_paths(const verbs_wire_rail *mine, int nmine, const verbs_wire_rail *theirs, int ntheirs,
                verbs_path paths[VERBS_MAX_RAILS], char *why, size_t why_bytes) {
  int count = 0;
  snprintf(why, why_bytes, "%s", "");
  if (nmine < 1 || nmine > MOST || ntheirs < 1 || ntheirs > MOST) {
    snprintf(why, why_bytes, "one of the ranks has no usable port");
    return 0;
  }
  /*
   * Both sides must find the same pairs: they pair from the view of the one whose description is
   * smaller.
   */
  size_t common = (size_t)(nmine < ntheirs ? nmine : ntheirs) * sizeof(*mine);
  int order = memcmp(mine, theirs, common);
  if (order < 0 || (order == 0 && nmine <= ntheirs)) {
    count = pair_up(mine, nmine, theirs, ntheirs, paths);
  } else {
    count = pair_up(theirs, ntheirs, mine, nmine, paths);
    for (int i = 0; i < count; i++) {
      verbs_path path = paths[i];
      paths[i] = (verbs_path){path.theirs, path.mine, path.their_gid,
                              path.my_gid, path.mtu,  path.same_subnet};
    }
  }
  if (count == 0)
    snprintf(why, why_bytes, "%s",
             mine[0].type == theirs[0].type && mine[0].type == VERBS_NET_INFINIBAND
                 ? "different InfiniBand subnets"
             : mine[0].type == theirs[0].type ? "no pair of RoCE addresses of one family"
                                              : "InfiniBand, RoCE v1 and v2 do not mix");
  return count;
}

void verbs_paths_link(const verbs_wire_rail *mine, const verbs_wire_rail *theirs,
                      const verbs_path *paths, int npaths, coll_link *link) {
  static const char *const nets[] = {"?", "InfiniBand", "RoCE v1", "RoCE v2"};
  double gbit = 0;
  for (int i = 0; i < npaths; i++) {
    double one = mine[paths[i].mine].gbit, other = theirs[paths[i].theirs].gbit;
    double both = one < other ? one : other;
    gbit += both > 0 ? both : DEFAULT_GBIT;
  }
  *link = (coll_link){.alpha_ns = ALPHA_NS, .ns_per_byte = npaths > 0 ? 8 / gbit : 0};
  if (npaths > 0)
    snprintf(link->reason, sizeof(link->reason), "%s%s, %.0f Gbit/s over %d rail%s",
             nets[mine[paths[0].mine].type & 3],
             paths[0].same_subnet ? "" : " between subnets, perhaps routed", gbit, npaths,
             npaths == 1 ? "" : "s");
}

void verbs_path_address(const verbs_rail *self, const verbs_settings *settings,
                        const verbs_path *path, const verbs_wire_rail *peer,
                        struct ibv_ah_attr *attr) {
  *attr = (struct ibv_ah_attr){.port_num = self->port, .sl = settings->service_level};
  if (self->link_layer == IBV_LINK_LAYER_INFINIBAND) {
    attr->dlid = peer->lid; /* one subnet: no global header */
    return;
  }
  attr->is_global = 1;
  memcpy(attr->grh.dgid.raw, peer->gid[path->their_gid], sizeof(attr->grh.dgid.raw));
  attr->grh.sgid_index = (uint8_t)self->gid[path->my_gid].index;
  attr->grh.hop_limit = 255;
  attr->grh.traffic_class = settings->traffic_class;
}
