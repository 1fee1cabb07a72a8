/*
 * support_oracle.h: runs schedules on real numbers in random order. It shares no code with the
 * verifier and knows only what sched.h says a step means, so that it can judge the verifier.
 */
#ifndef TESTS_SCHED_SUPPORT_ORACLE_H
#define TESTS_SCHED_SUPPORT_ORACLE_H

#include "support_group.h"

/* Whether these schedules did any harm in `runs` random runs for each number of slots, in place and
 * not: a wrong or unequal result, a message of the wrong length or left over, or a deadlock. */
bool oracle_finds_harm(const group *all, int runs, uint64_t seed);

#endif
