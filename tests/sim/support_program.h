/*
 * support_program.h: a random program that all ranks run: a sequence of collectives and messages,
 * several in flight. Every result that is reported as COLL_OK is checked.
 */
#ifndef TESTS_SIM_SUPPORT_PROGRAM_H
#define TESTS_SIM_SUPPORT_PROGRAM_H

#include "support_world.h"

#define PROGRAM_MAX_OPS 16

/* One operation; coll is COLLI_SENDRECV for a message from `root` to `peer`. */
typedef struct program_op {
  colli_coll coll;
  coll_type type;
  coll_op op;
  size_t count;
  int root;
  int peer;
  bool in_place;
  uint64_t seed;
} program_op;

/* One rank's part in one operation. */
typedef struct program_part {
  coll_request *request;
  char *in, *out;
  bool started, done;
} program_part;

/* The state of one rank. */
typedef struct program_rank {
  program_part part[PROGRAM_MAX_OPS];
  int next; /* the first operation that is not started */
  int open; /* in flight */
  bool done;
  coll_status status; /* of the first operation that failed */
  coll_error error;   /* its record */
  uint64_t done_ns;
} program_rank;

typedef struct program {
  int nops;
  int window; /* operations in flight */
  program_op ops[PROGRAM_MAX_OPS];
  char *expected[PROGRAM_MAX_OPS]; /* results of all-reduces, made when first needed */
  int nranks;
  bool leave_early; /* a rank that failed destroys its communicator at once */
  int odd_rank;     /* -1, or the rank that makes odd_op its operation odd_index */
  int odd_index;
  program_op odd_op;
  world *world;
  program_rank *ranks;
  int wrong; /* results reported as COLL_OK that are not right */
  uint64_t seed;
} program;

/* Draws a program for the ranks of a world, with sizes around chunk boundaries. */
void program_make(program *p, world *w, const world_config *config, uint64_t seed);

/* Runs it on all ranks; false if it does not end within limit_ns of virtual time. */
bool program_run(program *p, uint64_t limit_ns);

/* Frees the program; call it after world_close(), which may read its buffers. */
void program_free(program *p);

/* Prints the program of a failing seed. */
void program_print(const program *p);

#endif
