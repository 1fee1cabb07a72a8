/* interfaces.c: the network interfaces of this host, their addresses and speeds. */
#include "libcoll/net/interfaces.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"

#define MAX_FOUND 64 /* addresses of one host that are looked at */

typedef struct interface {
  colli_addr addr;
  bool loopback;
  bool link_local;
  long mbit; /* 0: unknown */
} interface;

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

/* The speed of an interface in Mbit/s; 0 if the kernel does not know. */
static long interface_mbit(const char *name) {
  char path[64 + IF_NAMESIZE];
  long mbit = 0;
  snprintf(path, sizeof(path), "/sys/class/net/%s/speed", name);
  FILE *file = fopen(path, "re");
  if (!file)
    return 0;
  if (fscanf(file, "%ld", &mbit) != 1 || mbit < 0)
    mbit = 0;
  fclose(file);
  return mbit;
}

/* The number of leading one bits of a network mask. */
static uint8_t mask_bits(const uint8_t *mask, int bytes) {
  uint8_t bits = 0;
  for (int i = 0; i < bytes * 8 && (mask[i / 8] & (0x80 >> (i % 8))); i++)
    bits++;
  return bits;
}

/* Order of preference for qsort. */
static int by_preference(const void *left, const void *right) {
  const interface *a = left, *b = right;
  if (a->loopback != b->loopback)
    return a->loopback ? 1 : -1;
  if (a->link_local != b->link_local)
    return a->link_local ? 1 : -1;
  if (a->mbit != b->mbit)
    return a->mbit > b->mbit ? -1 : 1;
  if (a->addr.family != b->addr.family)
    return a->addr.family < b->addr.family ? -1 : 1;
  return memcmp(a->addr.ip, b->addr.ip, sizeof(a->addr.ip));
}

/* Reads one entry of getifaddrs(); true if its address may be offered to peers: it has all
 * `flags`. */
static bool read_interface(const struct ifaddrs *ifa, const char *filter, unsigned flags,
                           interface *out) {
  if (!ifa->ifa_addr || (ifa->ifa_flags & flags) != flags ||
      !filter_allows(filter, ifa->ifa_name) || !colli_net_from_sockaddr(ifa->ifa_addr, &out->addr))
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
  out->mbit = out->loopback ? 0 : interface_mbit(ifa->ifa_name);
  return true;
}

/* Interfaces that lead to containers and virtual machines of this host, never to another host. */
static const char inner[] = "^docker,^veth,^virbr";

/* Reads the interfaces that have all `flags`; *count of them. Whether one is not loopback. */
static bool read_interfaces(const struct ifaddrs *list, const char *filter, unsigned flags,
                            interface all[MAX_FOUND], int *count) {
  bool any = false;
  *count = 0;
  for (const struct ifaddrs *ifa = list; ifa && *count < MAX_FOUND; ifa = ifa->ifa_next)
    if (read_interface(ifa, filter, flags, &all[*count])) {
      any |= !all[*count].loopback;
      ++*count;
    }
  return any;
}

int colli_net_interfaces(const char *ifname, colli_addr *addrs, int max, coll_error *error) {
  struct ifaddrs *list;
  interface all[MAX_FOUND];
  int count = 0;
  if (getifaddrs(&list) != 0) {
    colli_error_sys(error, COLL_ERR_SYSTEM, "create", "getifaddrs", errno,
                    "the network interfaces of this host cannot be listed");
    return 0;
  }
  /* When a container has just been started, its link may take a moment to run. */
  const char *first = *ifname ? ifname : inner;
  if (!read_interfaces(list, first, IFF_UP | IFF_RUNNING, all, &count) &&
      !read_interfaces(list, ifname, IFF_UP | IFF_RUNNING, all, &count))
    (void)read_interfaces(list, ifname, IFF_UP, all, &count);
  freeifaddrs(list);
  if (count == 0) {
    colli_error_set(
        error, COLL_ERR_INVALID_USAGE, "create",
        "no network interface that is up and has an address matches COLL_TCP_IFNAME=%s; "
        "`ip addr` lists those that there are",
        *ifname ? ifname : "(all)");
    return 0;
  }
  qsort(all, (size_t)count, sizeof(*all), by_preference);
  /* Even a host with too many addresses offers loopback, because ranks of the same host use it. */
  int first_loopback = 0;
  while (first_loopback < count && !all[first_loopback].loopback)
    first_loopback++;
  if (count > max && max > 1 && first_loopback < count && first_loopback >= max)
    all[max - 1] = all[first_loopback];
  int used = count < max ? count : max;
  for (int i = 0; i < used; i++)
    addrs[i] = all[i].addr;
  return used;
}
