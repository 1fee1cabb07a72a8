/*
 * support_meet_driver.h: ranks that meet on devices of the fake driver. In each round a rank copies
 * a row to one of its two slots, meets, and sums up all ranks' slots, each by a kernel or a copy of
 * its stream. Ranks may be threads or processes.
 */
#ifndef TESTS_GPU_SUPPORT_MEET_DRIVER_H
#define TESTS_GPU_SUPPORT_MEET_DRIVER_H

#include "libcoll/gpu/kernels/meet_args.h"
#include "tests/gpu/driver/use.h"

enum { PARTIES = 12, PARTY_ROUNDS = 6, PARTY_COUNT = 301, PARTY_ROW = 304 };

/* What peers may access of a rank, in one piece of memory of its device. */
typedef struct party_block {
  uint32_t words[16];
  struct coll_gpu_meet_state state;
  uint32_t unused[14];
  uint32_t slot[2][PARTY_ROW];
} party_block;

/* What the host and a rank's device share. */
typedef struct party_host {
  uint32_t abort, arrived, left;
  uint64_t more_there[PARTIES], more_slots[2][PARTIES];
} party_host;

/* A rank of a communicator. */
typedef struct party {
  use u; /* with its device and the kernels that it needs */
  colli_cu_stream stream;
  int rank, ranks;
  party_block *block;                              /* its own; where the test sees it */
  colli_cu_deviceptr at;                           /* where its device does */
  uint32_t (*rows)[PARTY_ROW], (*sums)[PARTY_ROW]; /* of the rounds */
  party_host *host;
  struct coll_gpu_meet meet;
  uint64_t slots[2][PARTIES]; /* of all ranks, as this rank's device addresses them */
  uint32_t threads;           /* of coll_meet */
} party;

/* Loads the driver and the kernels, on a device. */
void party_load(use *u, int device);

/* The address of memory as devices have it. Each file that includes use.h has its own
 * use_address(), and only that of the file that loaded the driver is set. */
colli_cu_deviceptr party_address(const volatile void *place);

/* Makes a rank with its own stream and memory, on the device that is current. */
void party_open(party *p, const use *u, int rank, int ranks, uint32_t threads);

/* Tells a rank where it finds rank `peer`'s block. For itself as well. */
void party_connect(party *p, int peer, colli_cu_deviceptr block);

/* Puts the parts of a round into a stream. */
void party_write(party *p, uint32_t round);
void party_meet(party *p);
void party_sum(party *p, uint32_t round);

/* All of a round. */
void party_round(party *p, uint32_t round);

/* Whether the sums of a round are right. */
bool party_right(const party *p, uint32_t round);

/* A word of the host that a device writes. */
static inline uint32_t party_word(const uint32_t *word) {
  return __atomic_load_n(word, __ATOMIC_SEQ_CST);
}

#endif
