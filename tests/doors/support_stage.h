/*
 * support_stage.h: one rank of three runs out of something while it creates a communicator, makes
 * the first connections, shrinks or grows; what becomes of all three.
 */
#ifndef TESTS_SUPPORT_STAGE_H
#define TESTS_SUPPORT_STAGE_H

#include <coll/coll.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "support_shortage.h"

enum { RANKS = 3 };

/* During what calls fail: a creation over TCP, the first sum over TCP, a shrink, a growth by rank
 * 2; a creation and first sum over shared memory, with COLL_TLS=1, with COLL_DATA_CHECK=mac. */
typedef enum phase { CREATION, FIRST_SUM, SHRINK, GROW, SHM, TLS, MAC, PHASES } phase;

typedef struct shortage_case {
  phase phase;
  int victim;
  shortage_call call; /* SHORTAGE_COUNT: any, at random */
  int nth;            /* 0: none fails; of random calls: the seed */
  bool for_good;
  int sys_errno; /* 0: the usual one */
} shortage_case;

/* What became of a rank. */
typedef struct outcome {
  bool over;
  coll_status status;
  coll_error error;
  int failed;       /* how many calls failed */
  int fds;          /* descriptors that leaked */
  int leaked;       /* allocations that leaked */
  bool in_libs;     /* LeakSanitizer found some */
  const char *deed; /* the last one */
  char where[160];
  double seconds;
} outcome;

/* In shared memory. */
typedef struct stage {
  shortage_case what;
  int more;       /* so many ranks after the victim are victims, too */
  bool unhurried; /* nobody may be late, even on a slow machine */
  coll_id id;
  coll_id join_id;
  atomic_int arrived;
  atomic_int over;   /* ranks */
  atomic_int open;   /* 1: join_id is there; -1: it will not be */
  atomic_int growth; /* which one the members are in; past the last one: there is no more */
  outcome ranks[RANKS];
  int seen[SHORTAGE_COUNT]; /* calls of the victim in the phase */
} stage;

const char *phase_name(phase which);

/* Runs all ranks of a stage, in shared_memory(). */
void run_ranks(stage *s);

/* What is wrong with a rank's outcome; NULL: nothing. */
const char *judge(const stage *s, int rank);

/* Plays a case and prints what is wrong, or, if `aloud`, what became of each rank. How many calls
 * failed, or -1 if something is wrong. */
int play(const shortage_case *what, bool aloud);

/* Reads the words of "sum,2,calloc,17,always", as many as there are: how many, or 0 if one is
 * malformed. */
int read_case(const char *text, shortage_case *what);

#endif
