/* support_lead.h: what a leader does in the model of a shrink. */
#ifndef TESTS_MODEL_SUPPORT_LEAD_H
#define TESTS_MODEL_SUPPORT_LEAD_H

#include "support_shrink.h"

/* What rank r says when it checks in with leader c. */
void hear_checkin(world *w, const bounds *b, int c, int r);

/* The ranks that are here, as leader c sees it. */
unsigned here_set(const world *w, int c, int nranks);

/* Those of them that have adopted the latest list. */
unsigned adopted_set(const world *w, int c, unsigned here);

/* Ends the shrink for a leader, and for those who take nothing. */
void end_shrink(world *w, int c, unsigned here, uint8_t outcome);

/* A leader stops waiting for others: it makes or renews a list with those who are here. False: it
 * cannot. */
bool begin_round(world *w, const bounds *b, int c, int guests);

/* What a leader does when all have answered, or when it waits no longer. False: some have not. */
bool end_round(world *w, const bounds *b, int c, bool give_up);

#endif
