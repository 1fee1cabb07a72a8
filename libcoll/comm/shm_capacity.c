/* shm_capacity.c: makes the slots fit where shared memory is limited, and says so. */
#include "libcoll/comm/shm_capacity.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/libc.h"
#include "libcoll/sched/sched.h"
#include "transports/shm/shm.h"

#define SLOT_LEAST 4096 /* smaller slots, with messages of less than a page, would not pay off */
#define PEERS_MOST 32   /* peers of a rank on a large host, unless it calls all-to-all */

/* The ranks of one host. */
typedef struct capacity_host {
  int ranks;
  uint64_t dev_shm, tmp; /* the least that any of them found */
} capacity_host;

void colli_shm_capacity_describe(const colli_shared_capacity *found, colli_rank_info *info) {
  bool bounded = found->memfd_errno != 0;
  info->dev_shm_free = bounded ? found->dev_shm_bytes : COLLI_SHM_UNBOUNDED;
  info->tmp_free = bounded ? found->tmp_bytes : COLLI_SHM_UNBOUNDED;
}

bool colli_shm_capacity_limited(const colli_rank_table *table) {
  colli_rank_walk walk = colli_rank_walk_over(table, COLLI_RANK_FIELD(dev_shm_free));
  for (int rank = 0; rank < table->nranks; rank++)
    if (colli_rank_walk_to(&walk, rank)->dev_shm_free != COLLI_SHM_UNBOUNDED)
      return true;
  return false;
}

/* Examines the host of a rank; true if this is the host's first rank whose memory is limited. */
static bool leads_host(const colli_rank_info *table, int nranks, int rank, capacity_host *host) {
  *host = (capacity_host){0, COLLI_SHM_UNBOUNDED, COLLI_SHM_UNBOUNDED};
  if (table[rank].dev_shm_free == COLLI_SHM_UNBOUNDED)
    return false;
  for (int r = 0; r < nranks; r++) {
    const colli_rank_info *info = &table[r];
    if (info->host_id != table[rank].host_id)
      continue;
    if (r < rank && info->dev_shm_free != COLLI_SHM_UNBOUNDED)
      return false;
    host->ranks++;
    if (info->dev_shm_free < host->dev_shm)
      host->dev_shm = info->dev_shm_free;
    if (info->tmp_free < host->tmp)
      host->tmp = info->tmp_free;
  }
  return true;
}

/* Whether the segments of a host's ranks fit: one per pair, and one more for each lane to both ring
 * neighbours. An eighth stays free, because others use the same folder and communicators may be
 * split. */
static bool fits(const capacity_host *host, uint64_t capacity, size_t slot_bytes,
                 unsigned slot_count) {
  uint64_t peers = host->ranks - 1 < PEERS_MOST ? (uint64_t)host->ranks - 1 : PEERS_MOST;
  uint64_t segments = (uint64_t)host->ranks * (peers + COLLI_MAX_LANES);
  uint64_t bytes = shm_ring_bytes(slot_bytes, slot_count);
  return bytes > 0 && segments <= capacity / 8 * 7 / bytes;
}

/* The largest slots that fit on a host, in /dev/shm if possible; 0 if none fit. */
static size_t host_slots(const capacity_host *host, const colli_rank_info *info, size_t wanted,
                         bool *in_tmp) {
  size_t least = info->slot_bytes ? wanted : SLOT_LEAST; /* what a user has set is not changed */
  const uint64_t capacities[] = {host->dev_shm, host->tmp};
  /* A checksum takes another page of each slot. */
  size_t more = info->data_check == COLLI_DATA_CHECK_CRC32C ? 4096 : 0;
  for (int i = 0; i < 2; i++)
    for (size_t bytes = wanted; bytes >= least; bytes /= 2)
      if (fits(host, capacities[i], bytes + more, info->slot_count)) {
        *in_tmp = i == 1;
        return bytes;
      }
  return 0;
}

bool colli_shm_capacity_check(colli_rank_info *table, int nranks, uint32_t shm) {
  bool changed = false;
  for (int rank = 0; rank < nranks; rank++) {
    capacity_host host;
    bool in_tmp;
    size_t wanted = table[0].slot_bytes ? table[0].slot_bytes : SLOT_LEAST;
    if (!leads_host(table, nranks, rank, &host) || host_slots(&host, table, wanted, &in_tmp) > 0)
      continue;
    for (int r = 0; r < nranks; r++)
      if (table[r].host_id == table[rank].host_id)
        table[r].transports &= ~shm;
    changed = true;
  }
  return changed;
}

bool colli_shm_capacity_restrict(colli_rank_table *table, uint32_t shm) {
  if (!colli_shm_capacity_limited(table))
    return true;
  colli_rank_info *all = colli_rank_table_unpack(table);
  const bool done = all && (!colli_shm_capacity_check(all, table->nranks, shm) ||
                            colli_rank_table_replace(table, all));
  free(all);
  return done;
}

size_t colli_shm_capacity_slots(const colli_rank_info *table, int nranks, uint32_t shm,
                                size_t wanted) {
  for (int rank = 0; rank < nranks; rank++) {
    capacity_host host;
    bool in_tmp;
    if (!(table[rank].transports & shm) || !leads_host(table, nranks, rank, &host))
      continue;
    size_t bytes = host_slots(&host, table, wanted, &in_tmp);
    wanted = bytes > 0 ? bytes : wanted;
  }
  return wanted;
}

/* "has 64 MiB free", "cannot be used (No such file or directory)" */
static void say_found(char *text, size_t size, uint64_t bytes, int sys_errno) {
  if (sys_errno)
    snprintf(text, size, "cannot be used (%s)", strerrordesc_np(sys_errno));
  else
    snprintf(text, size, "has %llu %s free", (unsigned long long)bytes >> (bytes >> 20 ? 20 : 10),
             bytes >> 20 ? "MiB" : "KiB");
}

void colli_shm_capacity_explain(const colli_rank_info *table, int nranks, int rank, uint32_t shm,
                                const colli_shared_capacity *found, size_t wanted,
                                size_t slot_bytes, const colli_log *log) {
  capacity_host host;
  bool in_tmp = false;
  char space[96], slots[96] = "", use[160] = "TCP";
  if (!found->memfd_errno || !leads_host(table, nranks, rank, &host))
    return;
  say_found(space, sizeof(space), found->dev_shm_bytes, found->dev_shm_errno);
  bool memory = table[rank].transports & shm;
  if (memory) {
    (void)host_slots(&host, table, slot_bytes, &in_tmp);
    snprintf(use, sizeof(use), "memory in files of %s", in_tmp ? colli_shared_tmp() : "/dev/shm");
  }
  if (memory && slot_bytes < wanted)
    snprintf(slots, sizeof(slots), " and slots of %zu KiB instead of %zu", slot_bytes / 1024,
             wanted / 1024);
  bool enough = memory && !in_tmp && slot_bytes == wanted;
  colli_log_write(log, COLLI_LOG_WARN,
                  "memfd_create is refused here (%s) and /dev/shm %s: the %d rank%s of this host "
                  "use%s %s%s; allow memfd_create%s",
                  strerrordesc_np(found->memfd_errno), space, host.ranks, host.ranks > 1 ? "s" : "",
                  host.ranks > 1 ? "" : "s", use, slots,
                  enough ? "" : ", or make /dev/shm larger (docker run --shm-size)");
}
