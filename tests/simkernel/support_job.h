/*
 * support_job.h: a job in the simulated kernel: its ranks create a communicator, do all-reduces,
 * agree on whether these succeeded, and shrink if not, until the survivors agree that they did.
 * Each rank keeps a diary of its calls, from which the rules are checked afterwards.
 */
#ifndef TESTS_SIMKERNEL_SUPPORT_JOB_H
#define TESTS_SIMKERNEL_SUPPORT_JOB_H

#include <coll/coll.h>

#include "support_kernel.h"

#define JOB_ENTRIES 64 /* of a diary */

typedef enum job_call { JOB_CREATE, JOB_REDUCE, JOB_AGREE, JOB_SHRINK } job_call;

typedef struct job_entry {
  job_call call;
  coll_status status;
  uint64_t comm;  /* on which it was made; JOB_CREATE: 0 */
  uint64_t child; /* JOB_CREATE, JOB_SHRINK: the new communicator, or 0 */
  int nranks;     /* of the new one */
  uint64_t word;  /* JOB_AGREE */
  int absent;
  int peer; /* the one to blame, numbered as at the beginning, or -1 */
  uint64_t begin_ns, end_ns;
  bool ended;
  char message[400];
} job_entry;

typedef struct job_config {
  sk_config kernel;
  int timeout_ms, create_timeout_ms, heartbeat_ms;
  int rounds; /* all-reduces on each communicator */
  size_t count;
  uint64_t pause_ns; /* between all-reduces */
  int maker;         /* the rank that makes the id */
  int fan_out;       /* ranks check in in a tree, so many at each; 0: all at the maker */
  uint64_t skew_ns;  /* at most, by which ranks begin to create it after the first of them */
  bool direct;       /* ranks shrink without an agreement */
  bool stays;        /* ranks go on with all-reduces until one fails */
  /* Called when a rank is about to make a call; generation: of its communicator. */
  void (*about)(int rank, job_call call, int generation);
} job_config;

typedef struct job_rank {
  job_entry entries[JOB_ENTRIES];
  int count;
  int wrong;         /* elements of results that were not what they must be */
  uint64_t ended_ns; /* its program */
  bool happy;        /* has agreed that all-reduces succeeded */
  uint64_t comm;     /* on that communicator */
  coll_comm *now;    /* the one that it uses, for faults by the test */
} job_rank;

extern job_rank *job_ranks; /* after job_run() */

/* Runs the job. False if a rank did not end; printed. */
bool job_run(const job_config *config);
void job_free(void);

/* Settings with short deadlines. */
job_config job_defaults(uint64_t seed, int nranks, int ranks_per_host);

/*
 * Checks that hold whatever happens: all living ranks have ended, each call in time; results are
 * right; at most one communicator came from one; agreements have one result. Returns how many
 * violations there are, which it prints.
 */
int job_check(void);

/* The same where ranks died, and nothing else happened: the survivors are together at the end. */
int job_check_together(void);

/* Prints all diaries. */
void job_print(void);

/* The last entry of a kind, or NULL. */
const job_entry *job_last(int rank, job_call call);

#endif
