/*
 * choose.h: which algorithm does a call. COLL_ALGO decides if it says anything about it, else the
 * tuner if there is one and it answers, else the cost model. All ranks come to the same answer, as
 * they ask with the same numbers.
 */
#ifndef COLLI_TUNING_CHOOSE_H
#define COLLI_TUNING_CHOOSE_H

#include "libcoll/tuning/force.h"
#include "libcoll/tuning/select.h"
#include "libcoll/tuning/tuner.h"

#define COLLI_MEMOS 128 /* a power of two */

/*
 * What the model said for a class of sizes: four classes lie between a power of two and the next.
 * It is asked about the smallest size of the class, so that the answer does not depend on which
 * size came first.
 */
typedef struct colli_memo {
  const colli_algo *algo; /* NULL: empty entry */
  size_t chunk_bytes;
  size_t elem_bytes;
  int size_class;
  uint8_t coll;
  uint8_t order;
  bool in_place;
  bool varying;
} colli_memo;

/* What a communicator chooses by. */
typedef struct colli_chooser {
  const colli_limits *limits;
  const colli_model *model;
  colli_force force;
  colli_tuner *tuner; /* the family's, or NULL */
  colli_memo memo[COLLI_MEMOS];
} colli_chooser;

/*
 * Chooses for `count` elements of elem_bytes bytes as they travel; call_bytes: the same count in
 * the caller's type. choice->predicted_ns is not set. Errors: INVALID_USAGE (a forced algorithm
 * cannot do the shape, or the tuner's answer is none), INTERNAL.
 */
coll_status colli_choose(colli_chooser *chooser, const colli_shape *shape, size_t count,
                         size_t elem_bytes, size_t call_bytes, colli_choice *choice,
                         coll_error *error);

#endif
