/*
 * fastpath.h: the fast path of short collectives. When a plan is made, this rank's schedule is
 * compiled for the plan's count into a short array of *fast steps*, one per message, with all
 * addresses resolved. A call runs them before it fills in a request; most short calls are then
 * complete. Where a fast step cannot continue, the executor takes over from that slice. Only the
 * executor waits, reports errors, and handles rare cases.
 */
#ifndef COLLI_EXEC_FASTPATH_H
#define COLLI_EXEC_FASTPATH_H

#include "libcoll/exec/exec.h"

/* One slice of one step of the schedule. */
typedef struct colli_fastpath_step {
  unsigned bits;   /* of the step */
  int peer;        /* to or from which it sends or receives; -1: it only copies */
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
  unsigned polls; /* fruitless polls for a message before the executor takes over */
} colli_fastpath_call;

/*
 * Compiles a schedule into *fastpath, which is allocated if it is NULL and otherwise must come from
 * here; in_first and out_first as in coll_request. False: no fast step, or out of memory; then
 * operations run without it.
 */
bool colli_fastpath_make(colli_fastpath **fastpath, const colli_sched *sched,
                         const colli_partition *partition, size_t elem_bytes, size_t in_first,
                         size_t out_first);

/*
 * Whether the connections of a fast path exist and can run it: polling costs no system call,
 * messages are sent from slots (others gain little, and might read a buffer after a later step has
 * stored to it), and no buffer is worth registering. The answer of a connection never changes.
 */
bool colli_fastpath_can(const colli_exec *exec, const colli_fastpath *fastpath);

/*
 * Runs fast steps until one cannot continue; returns how many were run. Requires
 * colli_fastpath_can(). `op`, which is not started yet, keeps the pending sends.
 */
int colli_fastpath_run(colli_exec *exec, const colli_fastpath *fastpath,
                       const colli_fastpath_call *call, coll_request *op);

/* Starts an operation whose first `ran` fast steps were run. */
void colli_fastpath_resume(colli_exec *exec, const colli_fastpath *fastpath, int ran,
                           coll_request *op);

#endif
