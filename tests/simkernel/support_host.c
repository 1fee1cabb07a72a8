/*
 * support_host.c: what a rank of the simulated kernel learns of its host, random bytes, and what
 * replaces parts of the library that have no place in a simulation: status pages (real memory that
 * other processes look at), the test of shared memory, and HMAC, which is slow.
 */
#include <errno.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <openssl/hmac.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

#include "libcoll/base/movers.h"
#include "libcoll/base/shared.h"
#include "libcoll/comm/shown.h"
#include "support_machine.h"
#include "topology/topology.h"

#define WRAP(result, name, ...)                                                                    \
  result __real_##name(__VA_ARGS__);                                                               \
  result __wrap_##name(__VA_ARGS__);                                                               \
  result __wrap_##name(__VA_ARGS__)

/* An interface with its names and addresses in one piece. */
typedef struct interface {
  struct ifaddrs entry;
  struct sockaddr_in ip, mask;
  char name[8];
} interface;

static void fill_interface(interface *at, const char *name, uint32_t ip, unsigned flags) {
  snprintf(at->name, sizeof(at->name), "%s", name);
  at->ip = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(ip)};
  at->mask = (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(0xff000000)};
  at->entry = (struct ifaddrs){.ifa_name = at->name,
                               .ifa_flags = IFF_UP | IFF_RUNNING | flags,
                               .ifa_addr = (struct sockaddr *)&at->ip,
                               .ifa_netmask = (struct sockaddr *)&at->mask};
}

WRAP(int, getifaddrs, struct ifaddrs **list) {
  if (!sk.current)
    return __real_getifaddrs(list);
  interface *all = calloc(2, sizeof(*all));
  if (!all)
    abort();
  fill_interface(&all[0], "lo", INADDR_LOOPBACK, IFF_LOOPBACK);
  fill_interface(&all[1], "eth0", 10u << 24 | (uint32_t)(sk.current->host + 1), 0);
  all[0].entry.ifa_next = &all[1].entry;
  *list = &all[0].entry;
  return 0;
}

WRAP(void, freeifaddrs, struct ifaddrs *list) {
  if (sk.current)
    free(list);
  else
    __real_freeifaddrs(list);
}

WRAP(int, gethostname, char *name, size_t bytes) {
  if (!sk.current)
    return __real_gethostname(name, bytes);
  snprintf(name, bytes, "host%d", sk.current->host);
  return 0;
}

WRAP(pid_t, getpid, void) {
  return sk.current ? 1000 + sk.current->rank : __real_getpid();
}

WRAP(ssize_t, getrandom, void *bytes, size_t count, unsigned flags) {
  if (!sk.current)
    return __real_getrandom(bytes, count, flags);
  for (size_t i = 0; i < count; i += 8) {
    const uint64_t number = colli_prng_next(&sk.current->prng);
    memcpy((char *)bytes + i, &number, count - i < 8 ? count - i : 8);
  }
  return (ssize_t)count;
}

WRAP(uint64_t, colli_host_id, const char *text, uint64_t *machine) {
  if (!sk.current)
    return __real_colli_host_id(text, machine);
  *machine = (uint64_t)sk.current->host + 1;
  return *machine;
}

/* Eight processors on each host, whatever this machine has. */
WRAP(int, sched_getaffinity, pid_t pid, size_t bytes, cpu_set_t *set) {
  if (!sk.current)
    return __real_sched_getaffinity(pid, bytes, set);
  memset(set, 0, bytes);
  for (int cpu = 0; cpu < 8; cpu++)
    CPU_SET(cpu, set);
  return 0;
}

/* Files of this machine's kernel say nothing about the simulated one. */
WRAP(FILE *, fopen, const char *path, const char *mode) {
  if (!sk.current || (strncmp(path, "/proc/", 6) && strncmp(path, "/sys/", 5)))
    return __real_fopen(path, mode);
  errno = ENOENT;
  return NULL;
}

WRAP(int, colli_status_open, colli_status_page *status, const colli_status_head *head) {
  return sk.current ? ENOSYS : __real_colli_status_open(status, head);
}

WRAP(void, colli_family_offer_status, colli_family *family, colli_rank_info *info) {
  if (!sk.current)
    __real_colli_family_offer_status(family, info);
}

WRAP(void, colli_shared_probe, colli_shared_capacity *capacity) {
  if (sk.current)
    memset(capacity, 0, sizeof(*capacity));
  else
    __real_colli_shared_probe(capacity);
}

/* Ranks of a simulation share the process, but not its list of what moves while one waits. */
WRAP(bool, colli_movers_add, colli_mover *mover) {
  return !sk.current && __real_colli_movers_add(mover);
}

/* ---- a fast hash instead of HMAC -----------------------------------------------------------
 */

static uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product =
      (unsigned __int128)(a ^ 0x9e3779b97f4a7c15ull) * (b ^ 0xbf58476d1ce4e5b9ull);
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

/* Mixes bytes into two states. */
static void absorb(uint64_t state[2], const unsigned char *bytes, size_t count) {
  uint64_t word[2];
  for (; count >= sizeof(word); bytes += sizeof(word), count -= sizeof(word)) {
    memcpy(word, bytes, sizeof(word));
    state[0] = mix(state[0] ^ word[0], state[1]);
    state[1] = mix(state[1] ^ word[1], state[0]);
  }
  memset(word, 0, sizeof(word));
  memcpy(word, bytes, count);
  state[0] = mix(state[0] ^ word[0] ^ count << 56, state[1]);
  state[1] = mix(state[1] ^ word[1], state[0]);
}

WRAP(unsigned char *, HMAC, const EVP_MD *md, const void *key, int key_bytes,
     const unsigned char *bytes, size_t count, unsigned char *out, unsigned *out_bytes) {
  if (!sk.current)
    return __real_HMAC(md, key, key_bytes, bytes, count, out, out_bytes);
  uint64_t state[2] = {0x243f6a8885a308d3ull, 0x13198a2e03707344ull};
  absorb(state, key, (size_t)key_bytes);
  absorb(state, bytes, count);
  for (unsigned i = 0; i < 4; i++) {
    const uint64_t word = mix(state[0] + i, state[1]);
    memcpy(out + 8 * i, &word, sizeof(word));
  }
  if (out_bytes)
    *out_bytes = 32;
  return out;
}
