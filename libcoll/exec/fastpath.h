/*
 * fastpath.h: the short way through short operations. A *script* is what a rank's schedule comes to
 * for one count: its slices, a *line* each, cut beforehand. A blocking call runs its script
 * before it makes an operation of itself: most short ones are complete when it ends. Where a line
 * cannot go on, the executor takes over from there; it does what is rare, and it alone waits.
 */
#ifndef COLLI_EXEC_FASTPATH_H
#define COLLI_EXEC_FASTPATH_H

#include "libcoll/exec/exec.h"

typedef struct colli_fastpath_step {
  unsigned bits;   /* of its step */
  int peer;        /* that it sends to or receives from; -1: it only copies */
  uint8_t src_in;  /* it reads `in`, else `out` */
  uint8_t dst_in;  /* never but in place */
  size_t src, dst; /* bytes from there */
  size_t count, bytes;
  int step; /* where the executor would be: the step, and how many elements of it are done */
  size_t done;
} colli_fastpath_step;

typedef struct colli_fastpath {
  bool whole; /* to the schedule's end */
  int lane;
  int count;
  size_t longest; /* bytes of a line */
  colli_fastpath_step line[];
} colli_fastpath;

/* What one call adds to a script. */
typedef struct colli_fastpath_call {
  const char *in;
  char *out;
  const coll_tag *tag;
  colli_reduce_fn reduce;
  unsigned looks; /* for a message, in vain, before it gives up */
} colli_fastpath_call;

/*
 * Writes the script of a schedule to *script, which is allocated if it is NULL, and otherwise must
 * come from here; in_first and out_first as in coll_request. False where it would have no line, or
 * without memory: an operation can do without.
 */
bool colli_fastpath_make(colli_fastpath **fastpath, const colli_sched *sched,
                         const colli_partition *partition, size_t elem_bytes, size_t in_first,
                         size_t out_first);

/*
 * Runs a script, for an operation that has not been started, until a line cannot go on; returns how
 * many lines it ran. `op` keeps sends that are not through.
 */
int colli_fastpath_run(colli_exec *exec, const colli_fastpath *fastpath,
                       const colli_fastpath_call *call, coll_request *op);

/* Starts an operation whose first `lines` lines were run. */
void colli_fastpath_resume(colli_exec *exec, const colli_fastpath *fastpath, int lines,
                           coll_request *op);

#endif
