/*
 * hier_part.h: a part of a hierarchical algorithm (hier.h): an algorithm of the table among some of
 * the ranks, on some chunks of the vector, whose schedule becomes steps of the whole.
 */
#ifndef COLLI_ALGO_HIER_PART_H
#define COLLI_ALGO_HIER_PART_H

#include "libcoll/algo/emit.h"

/* The rows of scratch, each as long as the vector. */
#define COLLI_ROW_KEPT   0 /* of a part */
#define COLLI_ROW_RESULT 1 /* what a part leaves for the next one, where OUTPUT has no room */

/* What becomes of all parts of one rank. */
typedef struct colli_whole {
  colli_builder *builder;
  int nchunks;
  int rows; /* of scratch that the parts need */
} colli_whole;

/* A part, for one rank. */
typedef struct colli_part {
  const colli_algo *algo;
  colli_shape among; /* its ranks; `coll` is the algorithm's */
  const int *ranks;  /* in the whole */
  int chunks;        /* of the whole: a multiple of the algorithm's own chunks for this shape */
  int first;         /* ... which follow each other from this one on, or */
  const int *place;  /* these; -1: there is none, so the steps that move it are left out */
  int lane;
  int in, out;   /* buffers that are its INPUT and OUTPUT; SCRATCH: COLLI_ROW_RESULT */
  bool complete; /* its reduction is the last one */
} colli_part;

/* The number of a part's own chunks. */
int colli_part_own(const colli_algo *algo, const colli_shape *among);

/*
 * Adds the steps of a part. Its chunks may be larger than the whole algorithm's: then it runs
 * several times, each time on the next piece of each of its chunks. A part of one rank has no
 * steps. Errors: NO_MEMORY; INTERNAL: such an algorithm cannot be a part.
 */
coll_status colli_part_add(colli_whole *whole, const colli_part *part);

#endif
