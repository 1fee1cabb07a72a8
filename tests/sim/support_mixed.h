/*
 * support_mixed.h: random programs of everything: collectives in all forms, messages with tags,
 * groups, communicators split from each other. Every result that is COLL_OK is compared with a
 * plain reference.
 */
#ifndef TESTS_SIM_SUPPORT_MIXED_H
#define TESTS_SIM_SUPPORT_MIXED_H

#include "case.h"
#include "support_world.h"

#define MIXED_STEPS 14
#define MIXED_COMMS 5
#define MIXED_OPEN  4
#define MIXED_RANKS 12

/* A communicator that this rank is in. */
typedef struct mixed_member {
  coll_comm *comm; /* NULL: not in it */
  int rank, nranks;
  uint64_t number; /* distinguishes the communicators of one split */
  bool failed;     /* a call on it, after which none is made */
} mixed_member;

/* An operation in flight, on a communicator. */
typedef struct mixed_open {
  case_state *state;
  coll_request *request;
  int member;
} mixed_open;

/* The state of a rank's program; members[0] is the base. */
typedef struct mixed_rank {
  struct mixed_plan *plan;
  mixed_member members[MIXED_COMMS];
  int nmembers;
  mixed_open open[MIXED_OPEN];
  int nopen;
  colli_prng own; /* of this rank alone */
  bool wrong;     /* a result, which it has said */
  bool over;
} mixed_rank;

/* The program of a seed, the same for all ranks. failed: called after each call that failed (the
 * rank is that of the base); NULL: it is printed, and the program has failed. A rank ends at its
 * first failure unless goes_on: then it goes on with the other communicators. */
typedef struct mixed_plan {
  uint64_t seed;
  world_config config;
  void (*failed)(void *ctx, int rank, const coll_comm *comm, coll_status status);
  void *ctx;
  bool names_sources; /* no receive takes a message from any rank */
  bool goes_on[MIXED_RANKS];
  mixed_rank ranks[MIXED_RANKS];
} mixed_plan;

/* One rank's program, for world_run_fibers() with a mixed_plan: 1 if a result was wrong, or if a
 * call failed and nobody judges that. */
int mixed_run(coll_comm *comm, int rank, int nranks, void *arg);

/* Destroys the communicators that a rank has left, except the base; and then, when that is
 * destroyed too, the buffers of its operations. */
void mixed_leave(mixed_rank *in);
void mixed_free(mixed_rank *in);

#endif
