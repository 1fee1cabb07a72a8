/*
 * fastpath.h: the fast path of short collectives. When a plan is made, this rank's schedule is
 * written out for the plan's count as a short array of *fast steps*, one a message, with all
 * addresses worked out. A call runs them before it fills in a request: most short calls are
 * complete then. Where a fast step cannot go on, the executor takes over from that very slice; it
 * alone waits, reports errors, and does what is rare.
 */
#ifndef COLLI_EXEC_FASTPATH_H
#define COLLI_EXEC_FASTPATH_H

#include "libcoll/exec/exec.h"

/* One slice of one step of the schedule. */
typedef struct colli_fastpath_step {
  unsigned bits;   /* of the step */
  int peer;        /* that it sends to or receives from; -1: it only copies */
  uint8_t src_in;  /* it reads `in`, else `out` */
  uint8_t dst_in;  /* it stores to `in`, else `out`; only in place */
  size_t src, dst; /* bytes from there */
  size_t count, bytes;
  int sched_step;    /* where the executor would be: the index of the step in the schedule, */
  size_t sched_done; /* and how many elements of it are done */
} colli_fastpath_step;

typedef struct colli_fastpath {
  bool whole; /* the steps go to the schedule's end */
  int lane;
  int count;
  size_t longest; /* bytes of a message */
  colli_fastpath_step steps[];
} colli_fastpath;

/* What one call adds. */
typedef struct colli_fastpath_call {
  const char *in;
  char *out;
  const coll_tag *tag;
  colli_reduce_fn reduce;
  unsigned polls; /* for a message, in vain, before the executor takes over */
} colli_fastpath_call;

/*
 * Writes out a schedule to *fastpath, which is allocated if it is NULL, and otherwise must come
 * from here; in_first and out_first as in coll_request. False if there is no fast step, or no
 * memory: an operation can do without.
 */
bool colli_fastpath_make(colli_fastpath **fastpath, const colli_sched *sched,
                         const colli_partition *partition, size_t elem_bytes, size_t in_first,
                         size_t out_first);

/*
 * Whether the connections of a fast path exist and can run it: polls cost no system call, messages
 * are sent from slots (others gain little, and may read a buffer after a later step has stored to
 * it), and no buffer is worth registering. A connection's answer never changes.
 */
bool colli_fastpath_can(const colli_exec *exec, const colli_fastpath *fastpath);

/*
 * Runs fast steps until one cannot go on; returns how many were run. Only after
 * colli_fastpath_can(). `op`, which has not been started, keeps sends that are pending.
 */
int colli_fastpath_run(colli_exec *exec, const colli_fastpath *fastpath,
                       const colli_fastpath_call *call, coll_request *op);

/* Starts an operation whose first `ran` fast steps were run. */
void colli_fastpath_resume(colli_exec *exec, const colli_fastpath *fastpath, int ran,
                           coll_request *op);

#endif
