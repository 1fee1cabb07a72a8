/* verbs_mr.c: registrations: single ones, slots, and the regions of coll_mem_alloc(). */
#include "transports/verbs/verbs_mr.h"

#include <errno.h>
#include <linux/mman.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "libcoll/base/shared.h"

#define HUGE_BYTES   ((size_t)2 << 20)
#define CAP_IPC_LOCK 14 /* its bit in /proc/self/status */

/* ---- the locked-memory limit ----------------------------------------------------------------- */

/*
 * What the kernel says about this process: how many bytes are pinned, and whether the limit
 * applies.
 */
static void read_status(unsigned long long *pinned, bool *unbound) {
  char line[256];
  unsigned long long value;
  *pinned = 0;
  *unbound = false;
  FILE *file = fopen("/proc/self/status", "re");
  while (file && fgets(line, sizeof(line), file))
    if (sscanf(line, "VmPin: %llu kB", &value) == 1)
      *pinned = value * 1024;
    else if (sscanf(line, "CapEff: %llx", &value) == 1)
      *unbound = value >> CAP_IPC_LOCK & 1;
  if (file)
    fclose(file);
  if (!*unbound)
    return;
  /* The limit also applies to root in a container's own user namespace. */
  unsigned long long first, outside, count = 0;
  file = fopen("/proc/self/uid_map", "re");
  if (file && fscanf(file, "%llu %llu %llu", &first, &outside, &count) == 3)
    *unbound = first == 0 && outside == 0 && count == UINT32_MAX;
  if (file)
    fclose(file);
}

/* Whether so many more bytes are within the limit, which goes to *limit. */
static bool within_limit(size_t bytes, unsigned long long *limit) {
  struct rlimit lock;
  unsigned long long pinned;
  bool unbound;
  if (getrlimit(RLIMIT_MEMLOCK, &lock) != 0 || lock.rlim_cur == RLIM_INFINITY) {
    *limit = ~0ull;
    return true;
  }
  *limit = lock.rlim_cur;
  read_status(&pinned, &unbound);
  return unbound || pinned + bytes <= *limit;
}

bool verbs_lock_allowed(size_t bytes, verbs_fault *fault) {
  unsigned long long limit;
  if (within_limit(bytes, &limit))
    return true;
  verbs_fault_set(fault, COLL_ERR_SYSTEM, NULL, 0,
                  "%zu KiB of memory must be locked for verbs, but this process may lock %llu: "
                  "raise `ulimit -l` (batch systems: LimitMEMLOCK=infinity of their daemon; docker "
                  "run --ulimit memlock=-1), or lower COLL_SLOT_BYTES",
                  bytes >> 10, limit >> 10);
  return false;
}

/* ---- single registrations -------------------------------------------------------------------- */

/* The rights that a use needs. */
static unsigned access_for(const verbs_domain *domain, verbs_use use) {
  if (use == VERBS_USE_READ)
    return 0;
  return IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
         (use == VERBS_USE_WRITE && domain->rail->relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING
                                                                   : 0);
}

/* Registers with given rights; NULL with errno. */
static struct ibv_mr *register_as(const verbs_domain *domain, void *memory, size_t bytes,
                                  unsigned access) {
  errno = 0;
  if (access & IBV_ACCESS_OPTIONAL_RANGE)
    return domain->lib->reg_mr_iova2(domain->pd, memory, bytes, (uintptr_t)memory, access);
  return domain->lib->reg_mr(domain->pd, memory, bytes, (int)access);
}

/* Whether the device can use memory that is not pinned, for the work requests of this transport. */
static bool has_paging(const verbs_rail *rail) {
  const uint32_t needed = IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_SEND;
  return rail->odp_general & IBV_ODP_SUPPORT && (rail->odp_rc & needed) == needed;
}

/* Says why memory could not be registered. */
static void explain_refusal(const verbs_domain *domain, size_t bytes, int sys_errno,
                            verbs_fault *fault) {
  const verbs_rail *rail = domain->rail;
  unsigned long long limit;
  if ((sys_errno == ENOMEM || sys_errno == EPERM) && !verbs_lock_allowed(bytes, fault)) {
    fault->syscall = "ibv_reg_mr";
    fault->sys_errno = sys_errno;
    return;
  }
  (void)within_limit(bytes, &limit);
  if (sys_errno == ENOMEM)
    verbs_fault_set(fault, COLL_ERR_NO_MEMORY, "ibv_reg_mr", sys_errno,
                    "device %s cannot register %zu KiB: memory is short, or `ulimit -l`%s does not "
                    "suffice, or the device has no room for more registrations",
                    rail->name, bytes >> 10, limit == ~0ull ? " (unlimited)" : "");
  else
    verbs_fault_set(fault, COLL_ERR_SYSTEM, "ibv_reg_mr", sys_errno,
                    "device %s cannot register %zu bytes", rail->name, bytes);
}

struct ibv_mr *verbs_mr_register(const verbs_domain *domain, const void *memory, size_t bytes,
                                 verbs_use use, verbs_fault *fault) {
  void *start = (void *)(uintptr_t)memory;
  unsigned access = access_for(domain, use);
  struct ibv_mr *mr = register_as(domain, start, bytes, access);
  int sys_errno = errno;
  if (!mr && (sys_errno == ENOMEM || sys_errno == EPERM) && has_paging(domain->rail))
    mr = register_as(domain, start, bytes, access | IBV_ACCESS_ON_DEMAND);
  if (!mr)
    explain_refusal(domain, bytes, sys_errno, fault);
  return mr;
}

struct ibv_mr *verbs_mr_register_dmabuf(const verbs_domain *domain, int fd, uint64_t offset,
                                        size_t bytes, uint64_t iova, verbs_use use,
                                        verbs_fault *fault) {
  struct ibv_mr *mr = NULL;
  int sys_errno = EOPNOTSUPP;
  if (domain->lib->reg_dmabuf_mr) {
    errno = 0;
    mr = domain->lib->reg_dmabuf_mr(domain->pd, offset, bytes, iova, fd,
                                    (int)access_for(domain, use));
    sys_errno = errno;
  }
  if (mr)
    return mr;
  if (sys_errno == EOPNOTSUPP || sys_errno == ENOSYS || sys_errno == EPROTONOSUPPORT)
    verbs_fault_set(fault, COLL_ERR_UNSUPPORTED, "ibv_reg_dmabuf_mr", sys_errno,
                    "device %s, its driver or libibverbs cannot use memory of other devices: that "
                    "takes rdma-core 34 and Linux 5.12 or newer",
                    domain->rail->name);
  else
    verbs_fault_set(fault, sys_errno == ENOMEM ? COLL_ERR_NO_MEMORY : COLL_ERR_SYSTEM,
                    "ibv_reg_dmabuf_mr", sys_errno,
                    "device %s cannot register %zu bytes of another device's memory",
                    domain->rail->name, bytes);
  return NULL;
}

void verbs_mr_release(const verbs_domain *domain, struct ibv_mr *mr) {
  if (mr)
    (void)domain->lib->dereg_mr(mr); /* fails only for a lost device, which has released it */
}

/* ---- slots ----------------------------------------------------------------------------------- */

/*
 * Maps huge pages that were set aside; NULL if there are none. All are allocated here: a page that
 * is missing when it is touched would kill the process.
 */
static void *map_huge(size_t bytes) {
#ifdef MADV_POPULATE_WRITE
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB | MAP_HUGE_2MB, -1, 0);
  if (memory == MAP_FAILED)
    return NULL;
  if (madvise(memory, bytes, MADV_POPULATE_WRITE) == 0)
    return memory;
  munmap(memory, bytes);
#else
  (void)bytes;
#endif
  return NULL;
}

coll_status verbs_slab_create(const verbs_domain *domain, size_t bytes, verbs_use use,
                              verbs_slab *slab, verbs_fault *fault) {
  *slab = (verbs_slab){0};
  if (bytes >= HUGE_BYTES) {
    slab->bytes = (bytes + HUGE_BYTES - 1) / HUGE_BYTES * HUGE_BYTES;
    slab->memory = map_huge(slab->bytes);
    slab->huge = slab->memory != NULL;
  }
  if (!slab->memory) {
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    slab->bytes = (bytes + page - 1) / page * page;
    slab->memory = colli_shared_map(-1, slab->bytes, true);
  }
  if (!slab->memory)
    return verbs_fault_set(fault, COLL_ERR_NO_MEMORY, "mmap", errno,
                           "out of memory for %zu KiB of slots", bytes >> 10);
  /* Before Linux 5.12 a fork could leave the child with the pages that the device writes to. */
  (void)madvise(slab->memory, slab->bytes, MADV_DONTFORK);
  slab->mr = verbs_mr_register(domain, slab->memory, slab->bytes, use, fault);
  if (slab->mr)
    return COLL_OK;
  verbs_slab_destroy(domain, slab);
  return fault->status;
}

void verbs_slab_destroy(const verbs_domain *domain, verbs_slab *slab) {
  verbs_mr_release(domain, slab->mr);
  if (slab->memory)
    munmap(slab->memory, slab->bytes);
  *slab = (verbs_slab){0};
}

/* ---- regions --------------------------------------------------------------------------------- */

/* The number of areas that begin at or before an address. */
static int count_before(const verbs_cache *cache, uintptr_t address) {
  int low = 0, high = cache->count;
  while (low < high) {
    int middle = low + (high - low) / 2;
    if (cache->areas[middle].begin <= address)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

coll_status verbs_cache_add(verbs_cache *cache, uint32_t region, const void *memory, size_t bytes) {
  if (cache->count == cache->capacity) {
    int capacity = cache->capacity ? 2 * cache->capacity : 16;
    verbs_area *areas = realloc(cache->areas, (size_t)capacity * sizeof(*areas));
    if (!areas)
      return COLL_ERR_NO_MEMORY;
    cache->areas = areas;
    cache->capacity = capacity;
  }
  int at = count_before(cache, (uintptr_t)memory);
  memmove(&cache->areas[at + 1], &cache->areas[at],
          (size_t)(cache->count - at) * sizeof(*cache->areas));
  cache->areas[at] = (verbs_area){
      .begin = (uintptr_t)memory, .bytes = bytes, .region = region, .use = VERBS_USE_WRITE};
  cache->count++;
  return COLL_OK;
}

void verbs_cache_remove(verbs_cache *cache, uint32_t region) {
  for (int i = 0; i < cache->count; i++) {
    if (cache->areas[i].region != region)
      continue;
    verbs_mr_release(&cache->domain, cache->areas[i].mr);
    cache->count--;
    memmove(&cache->areas[i], &cache->areas[i + 1],
            (size_t)(cache->count - i) * sizeof(*cache->areas));
    return;
  }
}

/* Whether a range lies entirely in an area. */
static bool is_within(const verbs_area *area, uintptr_t begin, size_t bytes) {
  size_t offset = begin - area->begin;
  return offset <= area->bytes && bytes <= area->bytes - offset;
}

/* ---- buffers of operations ------------------------------------------------------------------- */

/* Whether a buffer and an area overlap. */
static bool overlaps(const verbs_buffer *buffer, const verbs_area *area) {
  return buffer->begin < area->begin + area->bytes && area->begin < buffer->begin + buffer->bytes;
}

/* A list with capacity for one more. Out of memory: the old list, and *capacity stays. */
static void *grow_list(void *list, int count, int *capacity, size_t bytes) {
  int more = *capacity ? 2 * *capacity : 8;
  void *bigger = count < *capacity ? NULL : realloc(list, (size_t)more * bytes);
  *capacity = bigger ? more : *capacity;
  return bigger ? bigger : list;
}

void verbs_cache_register(verbs_cache *cache, const void *owner, const void *memory, size_t bytes,
                          verbs_use use) {
  verbs_buffer buffer = {owner, (uintptr_t)memory, bytes};
  int at = count_before(cache, buffer.begin) - 1;
  if (at >= 0 && is_within(&cache->areas[at], buffer.begin, bytes))
    return;
  cache->buffers =
      grow_list(cache->buffers, cache->nbuffers, &cache->buffer_capacity, sizeof(buffer));
  cache->registered = grow_list(cache->registered, cache->nregistered, &cache->registered_capacity,
                                sizeof(*cache->registered));
  cache->short_of_memory |=
      cache->nbuffers == cache->buffer_capacity || cache->nregistered == cache->registered_capacity;
  if (cache->short_of_memory)
    return;
  cache->buffers[cache->nbuffers++] = buffer;
  for (int i = 0; i < cache->nregistered; i++)
    if (overlaps(&buffer, &cache->registered[i]))
      return; /* what lies in that area uses its registration, the rest is copied */
  cache->registered[cache->nregistered++] =
      (verbs_area){.begin = buffer.begin, .bytes = bytes, .use = use};
}

/* Whether a registered buffer still overlaps an area. */
static bool is_registered(const verbs_cache *cache, const verbs_area *area) {
  for (int i = 0; i < cache->nbuffers; i++)
    if (overlaps(&cache->buffers[i], area))
      return true;
  return false;
}

void verbs_cache_release(verbs_cache *cache, const void *owner) {
  int kept = 0;
  for (int i = 0; i < cache->nbuffers; i++)
    if (cache->buffers[i].owner != owner)
      cache->buffers[kept++] = cache->buffers[i];
  cache->nbuffers = kept;
  kept = 0;
  for (int i = 0; i < cache->nregistered; i++) {
    if (is_registered(cache, &cache->registered[i]))
      cache->registered[kept++] = cache->registered[i];
    else
      verbs_mr_release(&cache->domain, cache->registered[i].mr);
  }
  cache->nregistered = kept;
}

/* ---- both ------------------------------------------------------------------------------------ */

/* The area in which a range lies entirely, or NULL. */
static verbs_area *find_area(verbs_cache *cache, uintptr_t begin, size_t bytes) {
  int at = count_before(cache, begin) - 1;
  if (at >= 0 && is_within(&cache->areas[at], begin, bytes))
    return &cache->areas[at];
  for (int i = 0; i < cache->nregistered && !cache->short_of_memory; i++)
    if (is_within(&cache->registered[i], begin, bytes))
      return &cache->registered[i];
  return NULL;
}

struct ibv_mr *verbs_cache_find(verbs_cache *cache, const void *memory, size_t bytes,
                                verbs_use use) {
  verbs_area *area = find_area(cache, (uintptr_t)memory, bytes);
  if (!area || area->refused || (use == VERBS_USE_WRITE && area->use != use))
    return NULL;
  verbs_fault fault;
  if (!area->mr)
    area->mr = verbs_mr_register(&cache->domain, (const void *)area->begin, area->bytes, area->use,
                                 &fault);
  area->refused = !area->mr;
  if (area->refused && !cache->refused) {
    cache->refused = true;
    cache->fault = fault;
  }
  return area->mr;
}

void verbs_cache_free(verbs_cache *cache) {
  for (int i = 0; i < cache->count; i++)
    verbs_mr_release(&cache->domain, cache->areas[i].mr);
  for (int i = 0; i < cache->nregistered; i++)
    verbs_mr_release(&cache->domain, cache->registered[i].mr);
  free(cache->areas);
  free(cache->buffers);
  free(cache->registered);
  *cache = (verbs_cache){.domain = cache->domain};
}
