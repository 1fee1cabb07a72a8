/*
 * choose.h: chooses a call's algorithm. COLL_ALGO decides if it covers the call; else the tuner, if
 * there is one and it answers; else the cost model. All ranks use the same numbers, so they choose
 * the same.
 */
#ifndef COLLI_TUNING_CHOOSE_H
#define COLLI_TUNING_CHOOSE_H

#include "libcoll/tuning/force.h"
#include "libcoll/tuning/select.h"
#include "libcoll/tuning/tuner.h"

#define COLLI_MEMOS 128 /* a power of two */

/*
 * The model's choice for a class of sizes. There are four classes between a power of two and the
 * next. The model is asked about the smallest size of the class, so that the choice does not depend
 * on which size came first.
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
  colli_memo *memo;   /* COLLI_MEMOS entries, from the first question to the model on */
} colli_chooser;

/*
 * Chooses for `count` elements of elem_bytes bytes on the wire; call_bytes: the size of as many
 * elements in the caller's type. Does not set choice->predicted_ns. Errors: INVALID_USAGE (a forced
 * algorithm does not support the shape, or the tuner's answer is invalid), INTERNAL.
 */
coll_status colli_choose(colli_chooser *chooser, const colli_shape *shape, size_t count,
                         size_t elem_bytes, size_t call_bytes, colli_choice *choice,
                         coll_error *error);

/* Forgets what the model has chosen, because that has changed. */
void colli_chooser_forget(colli_chooser *chooser);

/* Frees what it has read and remembered. */
void colli_chooser_free(colli_chooser *chooser);

#endif
