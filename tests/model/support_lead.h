/* support_lead.h: what a leader does in the model of a shrink. */
#ifndef TESTS_MODEL_SUPPORT_LEAD_H
#define TESTS_MODEL_SUPPORT_LEAD_H

#include "support_shrink.h"

/* ---- support_lead.c -------------------------------------------------------------------------- */

/* What rank r says when it checks in with leader c. */
void hear_checkin(world *w, const bounds *b, int c, int r);

/* The ranks that are here, as leader c sees it. */
unsigned here_set(const world *w, int c, int nranks);

/* Sets the flags of the ranks in a set. */
void spread_set(bool *flags, unsigned set);

/* A leader begins to wait for those who come. */
void begin_to_gather(rank *me);

/* Ends the shrink for a leader, and for those who take nothing. */
void end_shrink(world *w, int c, unsigned here, uint8_t outcome);

/* A leader asks those who must check in again before it makes a list. False: nobody must, or some
 * have not answered. */
bool ask_again(world *w, const bounds *b, int c);

/* A leader stops waiting for others: it makes or renews a list with those who are here. False: it
 * cannot. */
bool begin_round(world *w, const bounds *b, int c, int guests);

/* What a leader does when all have answered, or when it waits no longer. False: some have not. */
bool end_round(world *w, const bounds *b, int c, bool give_up);

/* ---- support_look.c -------------------------------------------------------------------------- */

/* A ballot above another one that only rank r chooses. */
uint8_t ballot_after(uint8_t ballot, int r);

/* Those of the ranks here that have adopted a list. */
unsigned adopted_set(const world *w, int c, unsigned here, uint8_t list);

/* Whether a rank may have returned with the latest list that leader c knows, or with an earlier
 * one, which is then the latest; with those who are here, as libcoll/recovery/shrink_gather.c does.
 * *asks: not as far as is known, but some have been asked who may tell. */
bool look_for_committed(world *w, const bounds *b, int c, unsigned here, bool *asks);

#endif
