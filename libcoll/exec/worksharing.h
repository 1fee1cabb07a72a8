/*
 * worksharing.h: two ranks work on one message. A receiver whose buffers the sender can reach
 * *offers* the work on its next messages: where they go and with what they are reduced
 * (offer_work() of the transport's table). From then on, either end *claims* slices of that work
 * when it has nothing else to do, and *finishes* them. Both use the same kernels, so the bits do
 * not depend on who does the work.
 */
#ifndef COLLI_EXEC_WORKSHARING_H
#define COLLI_EXEC_WORKSHARING_H

#include "libcoll/exec/exec.h"

/* A lane begins a step: offers the work on its messages and on those of the next step. */
void colli_worksharing_offer(colli_exec *exec, colli_lane *lane, const colli_step *step);

/* Claims and does one piece of work of this rank, or of a rank for which it waits: 1 if there was
 * any, 0, or COLLI_STEP_FAILED. */
int colli_worksharing_claim(colli_exec *exec);

#endif
