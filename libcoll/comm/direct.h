/* direct.h: what a communicator needs for calls that stay in GPU memory: stream/direct.c. */
#ifndef COLLI_COMM_DIRECT_H
#define COLLI_COMM_DIRECT_H

#include "libcoll/gpu/kernels/fold_args.h"
#include "libcoll/gpu/peer_memory.h"
#include "libcoll/gpu/programs.h"

/* How calls in streams run, as COLL_GPU_MODE says. */
typedef enum colli_gpu_mode {
  COLLI_GPU_AUTO,    /* the best of the others that the GPUs allow */
  COLLI_GPU_STAGED,  /* on copies in host memory */
  COLLI_GPU_ORDERED, /* in GPU memory; the host tells streams when all ranks have come */
  COLLI_GPU_SPIN,    /* the same, but they tell each other: one rank a GPU */
  COLLI_GPU_MEET     /* the same, but calls wait for each other, and streams for events: ranks are
                        threads that share a GPU */
} colli_gpu_mode;

/* Calls that may be open at a time before the end of one hides that of another. A stream that a
 * failure has let go may end its calls before those of another one. */
#define COLLI_DIRECT_ENDS 8192

/* Words in pinned memory by which the host and this rank's streams know of each other. */
typedef struct colli_direct_words {
  /* A guard (fold_args.h), by the host: not 0: streams go on without the others: who spins gives
   * up, and nobody writes into a slot any more. */
  _Alignas(64) uint32_t stopped[COLL_GPU_GUARD_WORDS][COLL_GPU_GUARD_BYTES / sizeof(uint32_t)];
  _Alignas(64) uint32_t arrived; /* by kernels: the last meet to which a stream came, */
  _Alignas(64) uint32_t left;    /* and that all ranks came to */
  _Alignas(64) uint32_t ended[COLLI_DIRECT_ENDS]; /* by streams: a call with this remainder has */
} colli_direct_words;

/* Memory that all ranks have mapped: stream/direct_register.c. */
struct coll_registration {
  coll_registration *next;
  colli_gpu_memory memory;
  uint64_t own; /* this rank's */
  size_t bytes;
  uint32_t number;   /* the same on all ranks; from 1 on */
  int eager, graphs; /* calls that use it: in streams, and in graphs */
  bool owned;        /* coll_mem_alloc_gpu() has allocated it */
};

typedef struct colli_direct_party colli_direct_party;

/* The parts of one rank. NULL in a communicator whose calls are staged; then it is so on all ranks.
 */
typedef struct colli_direct {
  colli_gpu_peers *peers;
  const colli_gpu_programs *programs; /* of the device */
  colli_gpu_mode mode;                /* never AUTO or STAGED */
  colli_pinned *words;                /* colli_direct_words */
  colli_pinned *there;                /* SPIN: where this rank's words at the others are, or NULL */
  colli_cu_event events[3];           /* MEET: at this rank's last two meets, and at its last end */
  colli_cu_event (*theirs)[2];        /* nranks: the first two of each rank */
  colli_direct_party *party;          /* MEET: of all ranks, stream/direct_party.h; or NULL */
  colli_cu_event end;                 /* the party's, after the last call; NULL: events[2] is */
  uint32_t meets, calls; /* put into streams so far, without those that the host answers */
  unsigned rounds;       /* so far: each uses another slot than the one before */
  bool has_graphs;       /* some call was captured */
  bool joined;           /* all ranks have their parts */
  colli_pinned *gone;    /* colli_direct_gone() */
  coll_registration *registered;
  uint32_t registrations; /* so far */
} colli_direct;

static inline colli_direct_words *colli_direct_words_of(const colli_direct *direct) {
  return direct->words->memory;
}

/* nranks words in pinned memory, of captured calls or of others: not 0 if a rank had gone on
 * without the others when this one had read its memory in place. */
static inline uint32_t *colli_direct_gone(const colli_direct *direct, bool captured) {
  return (uint32_t *)direct->gone->memory + (captured ? direct->peers->nranks : 0);
}

#endif
