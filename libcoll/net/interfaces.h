/* interfaces.h: the network interfaces of this host: which addresses it offers, and how fast they
 * are. */
#ifndef COLLI_NET_INTERFACES_H
#define COLLI_NET_INTERFACES_H

#include "libcoll/base/pci.h"
#include "libcoll/net/sockets.h"

/* What is behind an interface. Later ones are used later. */
typedef enum colli_interface_kind {
  COLLI_INTERFACE_CARD,  /* a card, as of VLANs, bonds and bridges of cards */
  COLLI_INTERFACE_OTHER, /* nothing that is known: a tunnel, a link into a container, ... */
  COLLI_INTERFACE_BRIDGE /* the same, of a bridge: it probably leads to containers of this host */
} colli_interface_kind;

/* An address of this host, and what is known of its interface. */
typedef struct colli_interface {
  colli_addr addr;
  bool loopback;
  bool link_local;
  bool near; /* as colli_interface_near() */
  int far;   /* from this rank's GPU, as colli_pci_order(); the same for all if that is not known */
  colli_interface_kind kind;
  long mbit; /* -1: unknown */
} colli_interface;

/* Whether the card of an interface is on a NUMA node on which this thread may run, as sysfs at
 * `root` has it. Of interfaces in software nobody knows; then it is not. */
bool colli_interface_near(const char *root, const char *name);

/* What the card of the interface with an index shares with the GPU at a PCI address, as sysfs at
 * `root` has it. */
colli_pci_distance colli_interface_distance(const char *root, unsigned index, const char *gpu);

/* Among how many cards an interface deals out connections, as sysfs at `root` has it: those of a
 * bond that looks at ports (modes balance-xor and 802.3ad, layer3+4 or encap3+4), also below a VLAN
 * or bridge; else 1. */
int colli_interface_spread(const char *root, const char *name);

/* What is behind an interface, as sysfs at `root` has it. */
colli_interface_kind colli_interface_find_kind(const char *root, const char *name);

/*
 * Chooses of `count` addresses of this host, best first, the at most `max` that are to be offered:
 * into chosen[]. IPv4 takes 4 bytes of the room for them, IPv6 16. The first of each family come
 * first, then one of each interface, one of each network, others, and loopback last. Returns how
 * many.
 */
int colli_addrs_choose(const colli_addr *all, int count, int max, size_t room, bool *chosen);

/*
 * Moves the at most `max` addresses that are to be offered to the beginning, best first, and
 * returns their number: those that colli_addrs_choose() chooses, of interfaces with a card first,
 * and loopback. Which ones these are does not depend on what is near, so that ranks of one host
 * have the same networks.
 */
int colli_interfaces_order(colli_interface *all, int count, int max);

/*
 * Lists the addresses of this host's running interfaces, best first: global before link-local, real
 * interfaces before loopback, those with a card before others, fastest first, of equally fast ones
 * those near this thread; loopback is always last. `ifname`: a comma-separated list of name
 * prefixes, "^name" to exclude and "=name" for the exact name, as NCCL's users know. Those that
 * lead to containers and virtual machines of this host only (docker, veth, virbr) are left out,
 * unless the list has a name that is not to be excluded, or there are no others. Returns their
 * number (at most max); 0, with the error filled in, if none match.
 */
int colli_net_interfaces(const char *ifname, colli_addr *addrs, int max, coll_error *error);

/* The same for a rank that uses the GPU at a PCI address (NULL: none): of equally fast interfaces
 * those nearest to that come first. */
int colli_net_interfaces_for(const char *ifname, const char *gpu, colli_addr *addrs, int max,
                             coll_error *error);

/* The speed in Mbit/s of all network cards together that are running, have an address and match
 * `ifname`; 0: the kernel does not know it of one of them, or there is none. VLANs and bridges are
 * those of their card, bonds count as one; tunnels and links into containers do not count, nor do
 * cards with link-local addresses only. */
double colli_net_cards_mbit(const char *ifname);

#endif
