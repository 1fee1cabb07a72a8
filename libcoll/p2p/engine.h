/*
 * engine.h: all operations in flight of a communicator, collectives (libcoll/exec) and
 * point-to-point (p2p.h). Each kind has its own function to start operations; these functions work
 * on both.
 */
#ifndef COLLI_P2P_ENGINE_H
#define COLLI_P2P_ENGINE_H

#include "libcoll/p2p/p2p.h"

/* Advances point-to-point operations, unless the executor has failed (moved < 0). */
int colli_engine_progress_p2p(colli_p2p *p2p, int moved);

/* Runs everything as far as possible: 0 if nothing moved; negative after a failure that was
 * reported to the owner, which then cancels. */
static inline int colli_engine_progress(colli_exec *exec, colli_p2p *p2p) {
  int moved = colli_exec_progress(exec);
  return __builtin_expect(p2p->busy > 0, 0) ? colli_engine_progress_p2p(p2p, moved) : moved;
}

/* Ends every operation in flight with `status`. Leaves connections in an undefined state. */
void colli_engine_cancel(colli_exec *exec, colli_p2p *p2p, coll_status status);

/* A peer that `op` waits for, or -1; *channel and *step say where. */
int colli_engine_waits_for(const coll_request *op, int *channel, int *step);

/* Lists at most `max` peers for which operations in flight wait; returns their number. A receive
 * from any source adds none. */
int colli_engine_all_waits(const colli_exec *exec, int *peers, int max);

#endif
