/*
 * engine.h: all operations in flight of a communicator, collectives (libcoll/exec) and
 * point-to-point (p2p.h). An operation is started by the one that runs it; here is what is done
 * with both.
 */
#ifndef COLLI_P2P_ENGINE_H
#define COLLI_P2P_ENGINE_H

#include "libcoll/p2p/p2p.h"

/* Moves point-to-point operations, unless the executor has failed (moved < 0). */
int colli_engine_progress_p2p(colli_p2p *p2p, int moved);

/* Runs everything as far as it goes: 0 if nothing moved; negative after a failure, of which the
 * owner has been told: it cancels. */
static inline int colli_engine_progress(colli_exec *exec, colli_p2p *p2p) {
  int moved = colli_exec_progress(exec);
  return __builtin_expect(p2p->busy > 0, 0) ? colli_engine_progress_p2p(p2p, moved) : moved;
}

/* Ends every operation in flight with `status`; connections are in an undefined state after that.
 */
void colli_engine_cancel(colli_exec *exec, colli_p2p *p2p, coll_status status);

/* A peer that `op` waits for, or -1; *channel and *step say where. */
int colli_engine_waits_for(const coll_request *op, int *channel, int *step);

/* All peers that operations in flight wait for, at most `max`; returns how many. A receive from
 * any source adds none. */
int colli_engine_all_waits(const colli_exec *exec, int *peers, int max);

#endif
