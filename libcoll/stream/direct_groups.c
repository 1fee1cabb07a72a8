/* direct_groups.c: who reaches whom, and the groups that this makes. */
#include "libcoll/stream/direct_groups.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/comm.h"
#include "libcoll/gpu/rdma.h"
#include "libcoll/progress/enter.h"
#include "libcoll/run/gpu_lend.h"
#include "libcoll/stream/direct.h"

#define MOST_DEVICES 64 /* of a host; ranks with others are alone */

/* What each rank says of its device. */
typedef struct own_device {
  colli_cu_uuid uuid;
  uint8_t ready;
  uint8_t lends;    /* memory to some peer's network, perhaps */
  char reason[110]; /* why it is not ready */
} own_device;

/* Whether a device lends memory, and some peer is connected by what takes it. */
static bool lends_some(const coll_comm *comm, int device) {
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_gpu_is_taken(comm, rank))
      return colli_gpu_can_lend(comm->gpu, device, &comm->log);
  return false;
}

/* Fills in this rank's device; *device is its number in this process. */
static void look(coll_comm *comm, own_device *mine, int *device) {
  coll_error error = COLL_ERROR_INIT;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  coll_status status = colli_direct_check(comm, device, &error);
  if (status == COLL_OK) {
    const colli_cu_result result = comm->gpu->cuda.device_get_uuid(&mine->uuid, *device);
    if (result != COLLI_CUDA_SUCCESS)
      status = colli_cuda_fail(&comm->gpu->cuda, &error, "cuDeviceGetUuid", *device, result);
  }
  mine->lends = status == COLL_OK && lends_some(comm, *device);
  colli_call_resume(comm);
  mine->ready = status == COLL_OK;
  if (status != COLL_OK)
    snprintf(mine->reason, sizeof(mine->reason), "%.109s", error.message);
}

/* A rank, to be sorted. */
typedef struct neighbour {
  int host; /* its first rank */
  int rank;
} neighbour;

static int by_host(const void *a, const void *b) {
  const neighbour *left = a, *right = b;
  if (left->host != right->host)
    return left->host < right->host ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* Lists all ranks host by host, in their order. */
static void sort_ranks(const coll_comm *comm, neighbour *sorted) {
  for (int rank = 0; rank < comm->nranks; rank++)
    sorted[rank] = (neighbour){colli_rank_host(comm->table, rank), rank};
  qsort(sorted, (size_t)comm->nranks, sizeof(*sorted), by_host);
}

/* The end of the host that begins there. */
static int end_of_host(const coll_comm *comm, const neighbour *sorted, int begin) {
  int end = begin;
  while (end < comm->nranks && sorted[end].host == sorted[begin].host)
    end++;
  return end;
}

/* The numbers of the devices of a host's ranks. */
static void number_devices(const neighbour *host, int count, const own_device *devices,
                           int *number) {
  int next = 0;
  for (int i = 0; i < count; i++) {
    const int rank = host[i].rank;
    number[rank] = -1;
    for (int k = 0; k < i && number[rank] < 0; k++)
      if (memcmp(&devices[host[k].rank].uuid, &devices[rank].uuid, sizeof(colli_cu_uuid)) == 0)
        number[rank] = number[host[k].rank];
    if (number[rank] < 0)
      number[rank] = next++;
  }
}

/* The bit of a device in a set; 0 if there are too many. */
static uint64_t bit_of(int number) {
  return number < MOST_DEVICES ? (uint64_t)1 << number : 0;
}

/* The devices of its host that this rank's one reaches. */
static uint64_t find_reached(coll_comm *comm, const neighbour *host, int count,
                             const own_device *devices, const int *number, int device) {
  uint64_t reached = 0;
  colli_call_pause(comm);
  for (int i = 0; i < count; i++) {
    const uint64_t bit = bit_of(number[host[i].rank]);
    if (!(reached & bit) && colli_gpu_reaches(comm->gpu, device, &devices[host[i].rank].uuid))
      reached |= bit;
  }
  colli_call_resume(comm);
  return reached;
}

/* Whether two ranks of a host reach each other. */
static bool reach_each_other(const int *number, const uint64_t *reached, int a, int b) {
  return (reached[a] & bit_of(number[b])) && (reached[b] & bit_of(number[a]));
}

/* Puts each rank of a host into the first group that it fits, or into a new one. */
static void form_groups(const neighbour *host, int count, const int *number,
                        const uint64_t *reached, int *group) {
  for (int i = 0; i < count; i++) {
    const int rank = host[i].rank;
    group[rank] = rank;
    for (int g = 0; g < i && group[rank] == rank; g++) {
      const int lead = host[g].rank;
      bool fits = group[lead] == lead;
      for (int k = g; k < i && fits; k++)
        fits = group[host[k].rank] != lead || reach_each_other(number, reached, host[k].rank, rank);
      if (fits)
        group[rank] = lead;
    }
  }
}

/* Tells the others what this rank has, and what it reaches. */
static coll_status exchange(coll_comm *comm, const neighbour *sorted, own_device *devices,
                            int *number, uint64_t *reached, bool *lend) {
  own_device mine = {.ready = 0};
  int device = 0;
  look(comm, &mine, &device);
  coll_status status =
      colli_direct_gather(comm, &colli_direct_joining, &mine, devices, sizeof(mine));
  *lend = true;
  for (int rank = 0; rank < comm->nranks && status == COLL_OK; rank++) {
    *lend &= devices[rank].lends;
    devices[rank].reason[sizeof(devices[rank].reason) - 1] = 0;
    if (!devices[rank].ready)
      status = colli_direct_refuse(comm, &colli_direct_joining, COLL_ERR_UNSUPPORTED, rank,
                                   devices[rank].reason);
  }
  if (status != COLL_OK)
    return status;
  uint64_t own = 0;
  for (int i = 0, end; i < comm->nranks; i = end) {
    end = end_of_host(comm, sorted, i);
    number_devices(&sorted[i], end - i, devices, number);
    if (sorted[i].host == colli_rank_host(comm->table, comm->rank))
      own = find_reached(comm, &sorted[i], end - i, devices, number, device);
  }
  return colli_direct_gather(comm, &colli_direct_joining, &own, reached, sizeof(own));
}

coll_status colli_direct_groups(coll_comm *comm, int *group, bool *lend) {
  const size_t n = (size_t)comm->nranks;
  neighbour *sorted = malloc(n * sizeof(*sorted));
  own_device *devices = malloc(n * sizeof(*devices));
  int *number = malloc(n * sizeof(*number));
  uint64_t *reached = malloc(n * sizeof(*reached));
  coll_status status = COLL_ERR_NO_MEMORY;
  if (sorted && devices && number && reached) {
    sort_ranks(comm, sorted);
    status = exchange(comm, sorted, devices, number, reached, lend);
  } else {
    (void)colli_comm_refuse(comm, status, "comm_use_gpu", "out of memory for the GPUs of %d ranks",
                            comm->nranks);
  }
  for (int i = 0, end; status == COLL_OK && i < comm->nranks; i = end) {
    end = end_of_host(comm, sorted, i);
    form_groups(&sorted[i], end - i, number, reached, group);
  }
  free(sorted);
  free(devices);
  free(number);
  free(reached);
  return status;
}
