/*
 * worksharing.h: two ranks at one message. A receiver whose buffers are in memory that the sender
 * can reach *offers* the work on its next messages: where they go, and what they are reduced with
 * (offer_work() of the transport's table). From then on either end *claims* that work slice by
 * slice when it has nothing else to do, and *finishes* it. Both use the same kernels, which give
 * the same bits whoever runs them.
 */
#ifndef COLLI_EXEC_WORKSHARING_H
#define COLLI_EXEC_WORKSHARING_H

#include "libcoll/exec/exec.h"

/* A lane begins a step: offers the work on what it receives, and on what the next step does. */
void colli_worksharing_offer(colli_exec *exec, colli_lane *lane, const colli_step *step);

/* Claims and does one piece of work, of this rank or of one that it waits for: 1 if there was any,
 * 0, or COLLI_STEP_FAILED. */
int colli_worksharing_claim(colli_exec *exec);

#endif
