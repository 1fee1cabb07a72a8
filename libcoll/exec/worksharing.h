/*
 * worksharing.h: two ranks at one payload. A receiver whose buffers lie in registered memory
 * announces where its next messages are to go (coll_transport_ops.landing); from then on it and the
 * sender both take that work, slice by slice, whenever they have nothing else to do. Both use the
 * same kernels, which give the same bits whoever runs them.
 */
#ifndef COLLI_EXEC_WORKSHARING_H
#define COLLI_EXEC_WORKSHARING_H

#include "libcoll/exec/exec.h"

/* A lane begins a step: announces what it receives, and what the step behind it does. */
void colli_worksharing_offer(colli_exec *exec, colli_lane *lane, const colli_step *step);

/* Does the work on one payload, of this rank or of one that it waits for: 1 if there was any, 0, or
 * COLLI_STEP_FAILED. */
int colli_worksharing_claim(colli_exec *exec);

#endif
