/* split.h: the parts of coll_comm_split() and its relatives, for callers that must not wait. */
#ifndef COLLI_CREATE_SPLIT_H
#define COLLI_CREATE_SPLIT_H

#include <stdbool.h>
#include <stdint.h>

#include "coll/coll.h"

typedef enum colli_split_kind {
  COLLI_SPLIT_COLORS,
  COLLI_SPLIT_DUP,
  COLLI_SPLIT_SUBSET,
  COLLI_SPLIT_GROUP, /* of the listed ranks alone */
  COLLI_SPLIT_LEVEL  /* a part of the parent: comm/levels.h */
} colli_split_kind;

/* One rank's arguments. */
typedef struct colli_split_call {
  colli_split_kind kind;
  int color;
  int key;
  int tag;        /* of a group */
  uint32_t check; /* must be the same on all ranks */
  const coll_config *config;
} colli_split_call;

typedef struct colli_split colli_split; /* one that is under way */

/* Starts a split; its all-gather advances with the parent. */
coll_status colli_split_start(coll_comm *parent, const colli_split_call *call, colli_split **split);
bool colli_split_done(const colli_split *split);

/* Waits until a split is done, and ends it; *child is NULL on an error or without a color. */
coll_status colli_split_finish(colli_split *split, coll_comm **child);

/* Drops a split whose all-gather is done or was never started. */
void colli_split_drop(colli_split *split);

#endif
