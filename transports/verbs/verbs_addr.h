/*
 * verbs_addr.h: rails as they travel in blobs, and which rail of one rank goes with which of
 * another. Both ranks compute the same pairs from both blobs.
 */
#ifndef COLLI_TRANSPORTS_VERBS_ADDR_H
#define COLLI_TRANSPORTS_VERBS_ADDR_H

#include "transports/verbs/verbs_device.h"

/* What kind of network a rail is on; in verbs_wire_rail.type. */
typedef enum verbs_net {
  VERBS_NET_NONE,
  VERBS_NET_INFINIBAND,
  VERBS_NET_ROCE_V1,
  VERBS_NET_ROCE_V2
} verbs_net;

/* A rail as other ranks know it, in host byte order, like all of a blob. */
typedef struct verbs_wire_rail {
  uint8_t gid[VERBS_RAIL_GIDS][16]; /* zeros: none */
  uint8_t prefix[VERBS_RAIL_GIDS];  /* RoCE: bits of the subnet */
  uint16_t lid;
  uint16_t gbit; /* 0: unknown */
  uint8_t type;  /* verbs_net */
  uint8_t mtu;   /* enum ibv_mtu */
} verbs_wire_rail;
_Static_assert(sizeof(verbs_wire_rail) == 40, "travels in blobs");

/* A pair of rails that reach each other. */
typedef struct verbs_path {
  uint8_t mine, theirs;      /* rails */
  uint8_t my_gid, their_gid; /* which of their GIDs */
  uint8_t mtu;               /* the smaller of both: enum ibv_mtu */
  bool same_subnet;
} verbs_path;

/* How to address the other end of a path: what an address vector takes. `self` is the own rail. */
void verbs_path_address(const verbs_rail *self, const verbs_settings *settings,
                        const verbs_path *path, const verbs_wire_rail *peer,
                        struct ibv_ah_attr *attr);

void verbs_wire_pack(const verbs_rail *rail, verbs_wire_rail *wire);

/*
 * Pairs the rails of two ranks, best first; each rail is in one pair at most. Returns how many (at
 * most VERBS_MAX_RAILS); 0 with the reason in `why`. From the other side's view the same pairs come
 * in the same order. Takes whatever a peer may have sent.
 */
int verbs_paths(const verbs_wire_rail *mine, int nmine, const verbs_wire_rail *theirs, int ntheirs,
                verbs_path paths[VERBS_MAX_RAILS], char *why, size_t why_bytes);

/*
 * Fills in a coll_link: the time of an empty message, that of a byte over these paths, and a text.
 */
void verbs_paths_link(const verbs_wire_rail *mine, const verbs_wire_rail *theirs,
                      const verbs_path *paths, int npaths, coll_link *link);

#endif
