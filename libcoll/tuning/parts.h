/*
 * parts.h: what a call takes that is made as several equal ones, one after the other, of which some
 * are under way at a time: a staged call in a stream of a GPU (stream/staged_parts.h). The executor
 * runs them as it runs the passes of one call: a rank begins the next as soon as it has ended its
 * own work on the one before.
 */
#ifndef COLLI_TUNING_PARTS_H
#define COLLI_TUNING_PARTS_H

#include "libcoll/tuning/select.h"

/* The time of one part, in ns. */
typedef struct colli_parts {
  double first; /* if it is alone */
  double next;  /* for each more, if all have been started */
} colli_parts;

/* The partition of a call whose passes are those of so many calls. */
colli_partition colli_parts_as_passes(const colli_partition *part, size_t parts);

/* Prices a part for which an algorithm was chosen. */
colli_parts colli_parts_price(const colli_choice *choice, const colli_shape *shape,
                              size_t elem_bytes, const colli_model *model);

/* What else there is to do for a part, in ns: work that is done for one part at a time, and waits,
 * during which other parts go on. */
typedef struct colli_parts_besides {
  double work, wait;
} colli_parts_besides;

/* The time from one part to the next: that of the network or of other work, whichever takes longer,
 * but of a part's whole way at least 1 / ahead, as so many are under way. */
double colli_parts_pace(const colli_parts *price, size_t ahead, colli_parts_besides besides);

/* What all parts take. */
double colli_parts_time(const colli_parts *price, size_t parts, size_t ahead,
                        colli_parts_besides besides);

#endif
