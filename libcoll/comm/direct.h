/* direct.h: what a communicator needs for calls that stay in GPU memory: stream/direct.c. */
#ifndef COLLI_COMM_DIRECT_H
#define COLLI_COMM_DIRECT_H

#include "libcoll/gpu/peers.h"
#include "libcoll/gpu/programs.h"

/* How calls in streams run, as COLL_GPU_MODE says. */
typedef enum colli_gpu_mode {
  COLLI_GPU_AUTO,   /* the best of the others that the GPUs allow */
  COLLI_GPU_STAGED, /* on copies in host memory */
  COLLI_GPU_ORDERED /* in GPU memory; the host tells streams when all ranks have come */
} colli_gpu_mode;

/* The parts of one rank. NULL in a communicator whose calls are staged; then it is so on all ranks.
 */
typedef struct colli_direct {
  colli_gpu_peers *peers;
  const colli_gpu_programs *programs; /* of the device */
  colli_gpu_mode mode;                /* never AUTO or STAGED */
  unsigned rounds; /* of calls so far: each uses another slot than the one before */
  void *stream;    /* of the last call, */
  int open;        /* calls that have not ended, without those in graphs */
} colli_direct;

#endif
