/*
 * meet_args.h: what the host passes to coll_meet, the barrier between ranks whose GPUs reach each
 * other's memory. Included by the host's C and by the kernel, see fold_args.h.
 *
 * Each rank has, in memory of its own device, a word for each rank, and a state. A meet is an
 * epoch: a rank writes its number into its word at each peer, and waits until its own words have
 * this or a later one. Words are never reset, numbers wrap around, and no rank is more than one
 * epoch ahead.
 */
#ifndef COLLI_GPU_KERNELS_MEET_ARGS_H
#define COLLI_GPU_KERNELS_MEET_ARGS_H

#include "libcoll/gpu/kernels/fold_args.h"

/* Reads of a word before a waiting rank looks at the host's word, which is far away. */
#define COLL_GPU_MEET_READS 64

/*
 * A rank's state, in memory of its device. The kernel advances it, so that launches of graphs and
 * other calls mix. The host sets it and the words to 0, or `epoch` and all words of all ranks to
 * another number, before any rank meets.
 */
struct coll_gpu_meet_state {
  uint32_t epoch;    /* of the latest meet that ended */
  uint32_t released; /* 1 once a meet ended by *abort: this rank meets nobody any more */
};

/*
 * Arguments of coll_meet, which runs as one block; a thread for each rank is enough.
 *
 * What a stream wrote and read before the kernel comes before what its peers' streams do after
 * theirs, copies included. A rank's meets follow each other.
 *
 * When *abort is not 0, a rank that waits gives up: the kernel ends, *left remains, and later ones
 * return at once. They tell nobody anything, so no peer takes such a rank for one that came. Where
 * all peers have come, the rank passes all the same. *arrived is written just after the peers are
 * told, so one of them may have passed a moment earlier.
 */
struct coll_gpu_meet {
  uint64_t there[COLL_GPU_PLACES]; /* this rank's word at rank i; its own place is not used */
  uint64_t more_there;             /* table of the others' addresses, readable by the device */
  uint64_t here;                   /* this rank's words, 4 bytes for each rank */
  uint64_t state;                  /* its coll_gpu_meet_state */
  uint64_t abort;                  /* word of the host: not 0 releases this rank */
  uint64_t arrived;                /* of the host, for watching: the epoch at which it came */
  uint64_t left;                   /* and the one that it has passed; they order nothing */
  uint32_t rank, nranks;
};

COLL_GPU_ASSERT(sizeof(struct coll_gpu_meet_state) == 8, "host and device agree");
COLL_GPU_ASSERT(sizeof(struct coll_gpu_meet) == 120, "host and device agree");
COLL_GPU_ASSERT(offsetof(struct coll_gpu_meet, more_there) == 64, "host and device agree");
COLL_GPU_ASSERT(offsetof(struct coll_gpu_meet, rank) == 112, "host and device agree");

#endif
