/* interfaces.c: the network interfaces of this host, their addresses and speeds. */
#include "libcoll/net/interfaces.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <ifaddrs.h>
#include <limits.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"

#define MAX_FOUND  256  /* addresses of one host that are looked at */
#define CPUS_MOST  8192 /* processors that Linux supports at most */
#define DEPTH_MOST 4    /* of interfaces on top of each other */

/* Whether one filter item, such as "eth" or "=eth0", matches a name. */
static bool item_matches(const char *item, size_t length, const char *name) {
  if (length > 0 && *item == '=')
    return strlen(name) == length - 1 && strncmp(name, item + 1, length - 1) == 0;
  return length > 0 && strncmp(name, item, length) == 0;
}

/* Whether the filter allows an interface: no exclusion matches it and, if there are inclusions, one
 * does. */
static bool filter_allows(const char *filter, const char *name) {
  bool wanted = false, any_wanted = false;
  while (*filter) {
    size_t length = strcspn(filter, ",");
    if (*filter == '^') {
      if (item_matches(filter + 1, length - 1, name))
        return false;
    } else if (length > 0) {
      any_wanted = true;
      wanted = wanted || item_matches(filter, length, name);
    }
    filter += length + (filter[length] == ',');
  }
  return wanted || !any_wanted;
}

/* Leaves out interfaces that lead to containers and virtual machines of this host, never to another
 * host. */
static const char container_filter[] = "^docker,^veth,^virbr";

/* Which interfaces may be used: those that a filter allows, but not those of containers and virtual
 * machines unless `allows_containers`. */
typedef struct interface_rule {
  const char *filter;
  bool allows_containers;
} interface_rule;

/* What COLL_TCP_IFNAME says: interfaces of containers are used only if it names interfaces, and not
 * only some to leave out. */
static interface_rule read_rule(const char *ifname) {
  interface_rule rule = {.filter = ifname};
  for (const char *item = ifname; *item && !rule.allows_containers; item += *item == ',') {
    rule.allows_containers = *item != '^' && *item != ',';
    item += strcspn(item, ",");
  }
  return rule;
}

/* Whether an interface of that name may be used. */
static bool rule_allows(const interface_rule *rule, const char *name) {
  return filter_allows(rule->filter, name) &&
         (rule->allows_containers || filter_allows(container_filter, name));
}

/* A number that the kernel knows of an interface, in sysfs at `root`; -1 if it does not. */
static long read_number(const char *root, const char *name, const char *what) {
  char path[PATH_MAX];
  long number;
  snprintf(path, sizeof(path), "%s/class/net/%s/%s", root, name, what);
  FILE *file = fopen(path, "re");
  if (!file)
    return -1;
  if (fscanf(file, "%ld", &number) != 1 || number < 0)
    number = -1;
  fclose(file);
  return number;
}

bool colli_interface_near(const char *root, const char *name) {
  char path[PATH_MAX];
  cpu_set_t may[CPUS_MOST / CPU_SETSIZE];
  const long node = read_number(root, name, "device/numa_node");
  if (node < 0 || sched_getaffinity(0, sizeof(may), may) != 0)
    return false;
  for (size_t cpu = 0; cpu < CPUS_MOST; cpu++) {
    if (!CPU_ISSET_S(cpu, sizeof(may), may))
      continue;
    snprintf(path, sizeof(path), "%s/devices/system/cpu/cpu%zu/node%ld", root, cpu, node);
    if (access(path, F_OK) == 0)
      return true;
  }
  return false;
}

/* ---- cards ----------------------------------------------------------------------------------- */

/* Whether sysfs has a file of an interface. */
static bool has_file(const char *root, const char *name, const char *what) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/class/net/%s/%s", root, name, what);
  return access(path, F_OK) == 0;
}

/* Whether an interface is a tunnel (VXLAN, Geneve), below which sysfs lists a card although it is
 * none. */
static bool is_tunnel(const char *root, const char *name) {
  char path[PATH_MAX], line[64];
  bool is = false;
  snprintf(path, sizeof(path), "%s/class/net/%s/uevent", root, name);
  FILE *file = fopen(path, "re");
  while (file && !is && fgets(line, sizeof(line), file))
    is = strcmp(line, "DEVTYPE=vxlan\n") == 0 || strcmp(line, "DEVTYPE=geneve\n") == 0;
  if (file)
    fclose(file);
  return is;
}

/* Finds the card, or the bond of several, that an interface is or is on top of, through `depth`
 * others at most; false: there is none. */
static bool find_card(const char *root, const char *name, int depth, char card[IF_NAMESIZE]) {
  char path[PATH_MAX];
  bool found = has_file(root, name, "device"), below = false;
  const bool is_bond = has_file(root, name, "bonding");
  snprintf(path, sizeof(path), "%s/class/net/%s", root, name);
  DIR *folder = found || is_tunnel(root, name) ? NULL : opendir(path);
  for (const struct dirent *entry; folder && !found && !below && (entry = readdir(folder));)
    if (strncmp(entry->d_name, "lower_", 6) == 0) {
      found = is_bond;
      below = !is_bond && depth > 0 && find_card(root, entry->d_name + 6, depth - 1, card);
    }
  if (folder)
    closedir(folder);
  if (found)
    snprintf(card, IF_NAMESIZE, "%s", name);
  return found || below;
}

colli_interface_kind colli_interface_find_kind(const char *root, const char *name) {
  char card[IF_NAMESIZE];
  if (find_card(root, name, DEPTH_MOST, card))
    return COLLI_INTERFACE_CARD;
  return has_file(root, name, "bridge") ? COLLI_INTERFACE_BRIDGE : COLLI_INTERFACE_OTHER;
}

/* Reads a line that the kernel has of an interface; "" if there is none. */
static void read_line(const char *root, const char *name, const char *what, char *line, int room) {
  char path[PATH_MAX];
  snprintf(path, sizeof(path), "%s/class/net/%s/%s", root, name, what);
  FILE *file = fopen(path, "re");
  if (!file || !fgets(line, room, file))
    *line = '\0';
  if (file)
    fclose(file);
}

int colli_interface_spread(const char *root, const char *name) {
  char card[IF_NAMESIZE], mode[64], policy[64], cards[512];
  if (!find_card(root, name, DEPTH_MOST, card))
    return 1;
  read_line(root, card, "bonding/mode", mode, sizeof(mode));
  read_line(root, card, "bonding/xmit_hash_policy", policy, sizeof(policy));
  read_line(root, card, "bonding/slaves", cards, sizeof(cards));
  if ((strncmp(mode, "balance-xor", 11) != 0 && strncmp(mode, "802.3ad", 7) != 0) ||
      (strncmp(policy, "layer3+4", 8) != 0 && strncmp(policy, "encap3+4", 8) != 0))
    return 1;
  int count = 0;
  for (const char *at = cards + strspn(cards, " \n"); *at; count++) {
    at += strcspn(at, " \n");
    at += strspn(at, " \n");
  }
  return count > 1 ? count : 1;
}

/* Where the card that an interface is, or is on top of, is plugged in; false: it has none, or
 * several. */
static bool find_place(const char *root, unsigned index, colli_pci_place *place) {
  char name[IF_NAMESIZE], card[IF_NAMESIZE], folder[PATH_MAX], address[COLLI_PCI_ADDRESS];
  if (!if_indextoname(index, name) || !find_card(root, name, DEPTH_MOST, card))
    return false;
  snprintf(folder, sizeof(folder), "%s/class/net/%s/device", root, card);
  return colli_pci_find(folder, address, place);
}

colli_pci_distance colli_interface_distance(const char *root, unsigned index, const char *gpu) {
  colli_pci_place its, card;
  return colli_pci_find_at(root, gpu, &its) && find_place(root, index, &card)
             ? colli_pci_distance_of(&its, &card)
             : COLLI_PCI_UNKNOWN;
}

/* Finds how far interfaces are from a GPU. */
static void find_far(const char *gpu, colli_interface *all, int count) {
  colli_pci_place its, card;
  if (!gpu || !colli_pci_find_at("/sys", gpu, &its))
    return;
  for (int i = 0; i < count; i++)
    all[i].far = colli_pci_order(&its, find_place("/sys", all[i].addr.scope, &card) ? &card : NULL);
}

/* ---- order ----------------------------------------------------------------------------------- */

/* The number of leading one bits of a network mask. */
static uint8_t mask_bits(const uint8_t *mask, int bytes) {
  uint8_t bits = 0;
  for (int i = 0; i < bytes * 8 && (mask[i / 8] & (0x80 >> (i % 8))); i++)
    bits++;
  return bits;
}

/* Compares addresses, so that every rank orders them alike. */
static int compare_addresses(const colli_addr *a, const colli_addr *b) {
  if (a->family != b->family)
    return a->family < b->family ? -1 : 1;
  return memcmp(a->ip, b->ip, sizeof(a->ip));
}

/* Compares what is behind interfaces, and how fast they are. */
static int compare_links(const colli_interface *a, const colli_interface *b) {
  if (a->kind != b->kind)
    return a->kind < b->kind ? -1 : 1;
  return a->mbit != b->mbit ? (a->mbit > b->mbit ? -1 : 1) : 0;
}

/* For qsort: the order that all ranks of a host have in common, in which addresses are chosen. */
static int by_link(const void *left, const void *right) {
  const colli_interface *a = left, *b = right;
  if (a->loopback != b->loopback)
    return a->loopback ? 1 : -1;
  if (a->kind == b->kind && a->link_local != b->link_local)
    return a->link_local ? 1 : -1;
  const int links = compare_links(a, b);
  return links ? links : compare_addresses(&a->addr, &b->addr);
}

/* For qsort: this rank's order. */
static int by_preference(const void *left, const void *right) {
  const colli_interface *a = left, *b = right;
  if (a->loopback != b->loopback)
    return a->loopback ? 1 : -1;
  if (a->link_local != b->link_local)
    return a->link_local ? 1 : -1;
  const int links = compare_links(a, b);
  if (links || a->far != b->far)
    return links ? links : a->far - b->far;
  if (a->near == b->near)
    return compare_addresses(&a->addr, &b->addr);
  return a->near ? -1 : 1;
}

/* ---- which are offered ----------------------------------------------------------------------- */

/* What a further address has to bring, from round to round. */
enum { NEW_FAMILY, NEW_INTERFACE, NEW_NETWORK, NOTHING_NEW, LOOPBACK, ROUNDS };

/* Whether two addresses of this host are of the same network, as far as one can tell. */
static bool share_network(const colli_addr *a, const colli_addr *b) {
  if (a->family == 6 && b->family == 6 && colli_addr_link_local(a) && colli_addr_link_local(b))
    return a->scope == b->scope;
  return colli_addr_affinity(a, b) == 2;
}

/* Whether an address brings nothing of a round's that another one does not. */
static bool repeats(const colli_addr *other, const colli_addr *addr, int round) {
  if (round == NEW_FAMILY)
    return other->family == addr->family;
  if (round == NEW_INTERFACE)
    return other->scope == addr->scope;
  return round == NEW_NETWORK && share_network(other, addr);
}

/* Whether an address has its turn in a round. */
static bool has_turn(const colli_addr *all, const bool *chosen, int count, int index, int round) {
  const colli_addr *addr = &all[index];
  if (colli_addr_loopback(addr) || round == LOOPBACK)
    return round == LOOPBACK;
  if ((round == NEW_FAMILY && colli_addr_link_local(addr)) ||
      (round == NEW_INTERFACE && addr->scope == 0))
    return false;
  for (int i = 0; i < count; i++)
    if (chosen[i] && repeats(&all[i], addr, round))
      return false;
  return true;
}

int colli_addrs_choose(const colli_addr *all, int count, int max, size_t room, bool *chosen) {
  int used = 0;
  memset(chosen, 0, (size_t)count * sizeof(*chosen));
  for (int round = 0; round < ROUNDS; round++)
    for (int i = 0; i < count && used < max; i++) {
      const size_t bytes = colli_addr_bytes(&all[i]);
      if (chosen[i] || bytes > room || !has_turn(all, chosen, count, i, round))
        continue;
      chosen[i] = true;
      room -= bytes;
      used++;
    }
  return used;
}

/* Moves the at most `max` addresses that are offered to the beginning; returns how many they are.
 * Even a host with too many offers loopback, because ranks of the same host use it. */
static int cut(colli_interface *all, int count, int max) {
  colli_addr addrs[MAX_FOUND] = {{0}};
  bool chosen[MAX_FOUND];
  int used = 0, loopback = 0;
  COLLI_ASSERT(max < count && count <= MAX_FOUND);
  for (int i = 0; i < count; i++)
    addrs[i] = all[i].addr;
  while (loopback < count && !colli_addr_loopback(&all[loopback].addr))
    loopback++;
  const bool keeps = loopback < count && max > 1;
  (void)colli_addrs_choose(addrs, count, keeps ? max - 1 : max, SIZE_MAX, chosen);
  if (keeps && !chosen[loopback])
    chosen[loopback] = true;
  for (int i = 0; i < count; i++)
    if (chosen[i])
      all[used++] = all[i];
  COLLI_ASSERT(used <= max);
  return used;
}

int colli_interfaces_order(colli_interface *all, int count, int max) {
  qsort(all, (size_t)count, sizeof(*all), by_link);
  const int used = count > max ? cut(all, count, max) : count;
  qsort(all, (size_t)used, sizeof(*all), by_preference);
  return used;
}

/* Reads one entry of getifaddrs(); true if its address may be offered to peers: it has all
 * `flags`. */
static bool read_interface(const struct ifaddrs *ifa, const interface_rule *rule, unsigned flags,
                           colli_interface *out) {
  if (!ifa->ifa_addr || (ifa->ifa_flags & flags) != flags || !rule_allows(rule, ifa->ifa_name) ||
      !colli_net_from_sockaddr(ifa->ifa_addr, &out->addr))
    return false;
  if (ifa->ifa_netmask && out->addr.family == 4)
    out->addr.prefix =
        mask_bits((const uint8_t *)&((const struct sockaddr_in *)ifa->ifa_netmask)->sin_addr, 4);
  else if (ifa->ifa_netmask)
    out->addr.prefix =
        mask_bits((const uint8_t *)&((const struct sockaddr_in6 *)ifa->ifa_netmask)->sin6_addr, 16);
  if (out->addr.scope == 0) /* else it is link-local, and the kernel has said so */
    out->addr.scope = if_nametoindex(ifa->ifa_name);
  out->loopback = (ifa->ifa_flags & IFF_LOOPBACK) != 0;
  out->link_local = colli_addr_link_local(&out->addr);
  out->mbit = out->loopback ? -1 : read_number("/sys", ifa->ifa_name, "speed");
  out->far = 0;
  out->near = !out->loopback && colli_interface_near("/sys", ifa->ifa_name);
  out->kind = colli_interface_find_kind("/sys", ifa->ifa_name);
  return true;
}

/* Reads the interfaces that have all `flags`; *count of them. Whether one is not loopback. */
static bool read_interfaces(const struct ifaddrs *list, const interface_rule *rule, unsigned flags,
                            colli_interface all[MAX_FOUND], int *count) {
  bool any = false;
  *count = 0;
  for (const struct ifaddrs *ifa = list; ifa && *count < MAX_FOUND; ifa = ifa->ifa_next)
    if (read_interface(ifa, rule, flags, &all[*count])) {
      any |= !all[*count].loopback;
      ++*count;
    }
  return any;
}

int colli_net_interfaces(const char *ifname, colli_addr *addrs, int max, coll_error *error) {
  return colli_net_interfaces_for(ifname, NULL, addrs, max, error);
}

int colli_net_interfaces_for(const char *ifname, const char *gpu, colli_addr *addrs, int max,
                             coll_error *error) {
  struct ifaddrs *list;
  colli_interface all[MAX_FOUND];
  int count = 0;
  if (getifaddrs(&list) != 0) {
    colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getifaddrs", errno,
                    "the network interfaces of this host cannot be listed");
    return 0;
  }
  /* When a container has just been started, its link may take a moment to run. */
  const interface_rule usual = read_rule(ifname), with_containers = {ifname, true};
  if (!read_interfaces(list, &usual, IFF_UP | IFF_RUNNING, all, &count) &&
      !read_interfaces(list, &with_containers, IFF_UP | IFF_RUNNING, all, &count))
    (void)read_interfaces(list, &with_containers, IFF_UP, all, &count);
  freeifaddrs(list);
  if (count == 0) {
    colli_error_set(
        error, COLL_ERR_INVALID_USAGE, "create",
        "no network interface that is up and has an address matches COLL_TCP_IFNAME=%s; "
        "`ip addr` lists those that there are",
        *ifname ? ifname : "(all)");
    return 0;
  }
  find_far(gpu, all, count);
  const int used = colli_interfaces_order(all, count, max);
  for (int i = 0; i < used; i++)
    addrs[i] = all[i].addr;
  return used;
}

/* The speed of the card of an interface, unless it is among the `count` of `seen`, to which it is
 * added; 0: it is, or there is none; -1: the kernel does not know. */
static long card_mbit(const struct ifaddrs *ifa, const interface_rule *rule, unsigned *seen,
                      int *count) {
  const unsigned up = IFF_UP | IFF_RUNNING;
  colli_addr addr;
  char card[IF_NAMESIZE];
  if (!ifa->ifa_addr || (ifa->ifa_flags & (up | IFF_LOOPBACK)) != up ||
      !rule_allows(rule, ifa->ifa_name) || !colli_net_from_sockaddr(ifa->ifa_addr, &addr) ||
      colli_addr_link_local(&addr))
    return 0;
  const bool has_card = find_card("/sys", ifa->ifa_name, DEPTH_MOST, card);
  const unsigned index = has_card ? if_nametoindex(card) : 0;
  for (int i = 0; i < *count; i++)
    if (seen[i] == index)
      return 0;
  if (index == 0)
    return 0;
  seen[(*count)++] = index;
  const long mbit = read_number("/sys", card, "speed");
  return mbit > 0 ? mbit : -1;
}

double colli_net_cards_mbit(const char *ifname) {
  struct ifaddrs *list;
  const interface_rule rule = read_rule(ifname);
  unsigned seen[MAX_FOUND];
  int count = 0;
  double sum = 0;
  if (getifaddrs(&list) != 0)
    return 0;
  for (const struct ifaddrs *ifa = list; ifa && count < MAX_FOUND && sum >= 0;
       ifa = ifa->ifa_next) {
    const long mbit = card_mbit(ifa, &rule, seen, &count);
    sum = mbit < 0 ? -1 : sum + (double)mbit;
  }
  freeifaddrs(list);
  return sum > 0 ? sum : 0;
}
