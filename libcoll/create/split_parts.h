/*
 * split_parts.h: what all ways to make a communicator from another have in common. Each member
 * contributes a record. Ways differ in how the members get each other's: one all-gather of the
 * whole parent (split.c), or messages among the members alone (create_group.c).
 */
#ifndef COLLI_CREATE_SPLIT_PARTS_H
#define COLLI_CREATE_SPLIT_PARTS_H

#include "libcoll/comm/comm.h"
#include "libcoll/create/create.h"
#include "libcoll/create/split.h"

/* What a rank tells the others. */
typedef struct colli_split_record {
  int32_t color;
  int32_t key;
  uint32_t number; /* with which its peers address the new communicator */
  uint32_t serial; /* of the communicators begun on this rank */
  uint32_t check;  /* of a list of ranks */
} colli_split_record;
_Static_assert(sizeof(colli_split_record) == 20, "travels as it is");

struct colli_split {
  coll_comm *parent;
  colli_split_kind kind;
  const char *name;
  unsigned made; /* of the parent, this one included */
  int tag;       /* of a group */
  colli_mux_child *child;
  coll_request *op; /* the all-gather, or NULL */
  coll_comm **to;   /* of a nonblocking one: where the caller wants the new communicator */
  colli_split_record mine;
  colli_settings settings;      /* not cleared: it is large, and filled in as a whole */
  colli_split_record records[]; /* by rank of the parent; the same */
};

/* The name of a call, for messages: "split". */
const char *colli_split_name(colli_split_kind kind);

/* Begins a communicator: checks the settings, and fills in `mine`. */
coll_status colli_split_prepare(coll_comm *parent, const colli_split_call *call,
                                colli_split **split);

/* Makes this rank's communicator of all ranks whose records have its color. */
coll_status colli_split_make(colli_split *split, coll_comm **child);

/* Checks a list of ranks, finds this rank's place in it (call->key), and sums it up. */
coll_status colli_split_read_list(coll_comm *comm, const int *ranks, int count,
                                  colli_split_call *call);

/* Fails the parent, because this rank and another one gave different lists. */
coll_status colli_split_disagree(const colli_split *split, int rank, const char *function,
                                 const char *remedy);

/* Hands over the error record of a failed call as the configuration says. */
void colli_split_tell(const coll_comm *parent, const coll_config *config);

#endif
