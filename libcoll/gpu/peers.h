/*
 * peers.h: an area of each rank's GPU memory into which all ranks of a communicator can look. A
 * rank offers its own one, and maps those of the others, which may be threads of this process or
 * other processes.
 *
 * An area has words by which ranks meet, three slots, into which its rank puts what others read,
 * and two rooms for results that only its rank uses.
 */
#ifndef COLLI_GPU_PEERS_H
#define COLLI_GPU_PEERS_H

#include "libcoll/gpu/devices.h"

#define COLLI_GPU_WORDS_BYTES 65536 /* at the beginning of an area: a word for each rank, */
#define COLLI_GPU_STATE_AT    49152 /* and the state of meets */
#define COLLI_GPU_SLOTS       3

/* What a rank tells the others. It travels as it is. */
typedef struct colli_gpu_offer {
  colli_cu_ipc_handle handle; /* opens the area in other processes, if `shared` */
  colli_cu_uuid uuid;         /* of the device */
  uint64_t at;                /* the area in the process that owns it */
  uint64_t process;           /* which that is, among those of its host */
  uint64_t events[2];         /* the caller's, for ranks of the same process */
  uint64_t party;             /* the same, rank 0's */
  uint64_t slot_bytes;
  int32_t device; /* its number in that process */
  uint8_t ready;  /* there is an area; else why not: */
  uint8_t shared;
  uint8_t mode; /* colli_gpu_mode */
  char reason[117];
} colli_gpu_offer;

typedef struct colli_gpu_peers {
  colli_gpu *gpu;
  int device; /* of this rank */
  int rank, nranks;
  size_t slot_bytes;
  colli_cu_deviceptr *area; /* nranks: where this process sees them */
  bool *opened;             /* nranks: the area belongs to another process */
} colli_gpu_peers;

/*
 * Makes this rank's area on a device, and fills in *offer, whose mode is the caller's. Errors:
 * SYSTEM (the driver's error), NO_MEMORY (also of the device).
 */
coll_status colli_gpu_peers_open(colli_gpu *gpu, int device, int rank, int nranks,
                                 size_t slot_bytes, colli_gpu_peers **out, colli_gpu_offer *offer,
                                 coll_error *error);

/*
 * Maps the areas of all others, which are ready. Errors: UNSUPPORTED (a rank has other settings, or
 * its memory cannot be reached), SYSTEM. Some may be mapped then.
 */
coll_status colli_gpu_peers_map(colli_gpu_peers *peers, const colli_gpu_offer *offers,
                                coll_error *error);

/* Whether a device of this process can use memory of the device with that name. */
bool colli_gpu_reaches(const colli_gpu *gpu, int device, const colli_cu_uuid *uuid);

/* Unmaps the others' areas, when no stream uses them any more. */
void colli_gpu_peers_unmap(colli_gpu_peers *peers);

/* Frees all but, if `keep`, this rank's area, because another one may not have unmapped it: then
 * the driver must not be told. NULL is fine. */
void colli_gpu_peers_free(colli_gpu_peers *peers, bool keep);

/* Where a rank's slot begins. */
static inline colli_cu_deviceptr colli_gpu_peers_slot(const colli_gpu_peers *peers, int rank,
                                                      int slot) {
  return peers->area[rank] + COLLI_GPU_WORDS_BYTES + (size_t)slot * peers->slot_bytes;
}

/* Words by which kernels meet: see kernels/meet_args.h. */
static inline colli_cu_deviceptr colli_gpu_peers_state(const colli_gpu_peers *peers) {
  return peers->area[peers->rank] + COLLI_GPU_STATE_AT;
}

/* This rank's room for a result, of a captured call or of others. Parts of calls that are divided
 * among groups leave one of the two free, for pieces (stream/levels_call.c). */
static inline colli_cu_deviceptr colli_gpu_peers_result(const colli_gpu_peers *peers,
                                                        bool captured) {
  return colli_gpu_peers_slot(peers, peers->rank, COLLI_GPU_SLOTS + captured);
}

#endif
