/* levels_shape.h: which calls are long enough to be divided among the ranks of a group, and into
 * which pieces: for the library and for coll_explain. */
#ifndef COLLI_COMM_LEVELS_SHAPE_H
#define COLLI_COMM_LEVELS_SHAPE_H

#include <stddef.h>

#include "libcoll/sched/collective.h"

/* Parts of a staged call whose copies are on the host at a time; later ones use the memory of
 * earlier ones. One is as long as a slot, divided by this. */
#define COLLI_STAGED_DEPTH 4

#define COLLI_LEVELS_ALIGN 16 /* elements: pieces begin at multiples, for kernels */

/* Whether each rank's piece of a call is at least as long as a part of a staged call. Shorter calls
 * would wait more often than they save copies. */
static inline bool colli_levels_is_long(colli_coll coll, size_t bytes, int size,
                                        size_t part_bytes) {
  return bytes >= (coll == COLLI_ALLGATHER ? 1 : (size_t)size) * part_bytes;
}

/* Where the piece of a rank of a group begins; that of the one after the last is the end. */
static inline size_t colli_levels_piece_at(size_t count, int place, int size) {
  const size_t each = count / (size_t)size / COLLI_LEVELS_ALIGN * COLLI_LEVELS_ALIGN;
  return place < size ? each * (size_t)place : count;
}

#endif
