/*
 * time.h: how far a rank's CLOCK_MONOTONIC is from the server's, for traces.
 *
 * Ranks with the same clock_id read the same clock. The first of them, if it is not the server's,
 * asks the server for the time, over its check-in connection when its links are up:
 *
 *     server      heard   told              offset <= heard - asked: the question took some time
 *   ------------------*---*---------->      offset >= told - answered: and so did the answer
 *                    /     \
 *   ----------------*-------*-------->      All questions count: the smallest of the first and the
 *     rank r     asked      answered        largest of the second are the bounds.
 *
 * The server passes the bounds on to the other ranks with that clock, with the outcome. So ranks of
 * one host agree exactly. In a tree, each rank asks the one at which it checks in, and the bounds
 * add up on the way to the root, which chooses those of the first rank of a clock for all. This is
 * the exchange of NTP (RFC 5905, section 8), except that NTP takes the middle of the best exchange,
 * and half its round trip as the error.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_TIME_H
#define COLLI_WIREUP_BOOTSTRAP_TIME_H

#include "libcoll/wireup/bootstrap/report.h"

#define BOOT_QUESTIONS 8

/* Whether a rank other than the server has to ask for the time. */
bool boot_time_asks(const colli_rank_table *table, int server, int rank);

/* The same in a tree, of its parent. */
bool boot_time_asks_parent(const colli_rank_table *table, int parent, int rank);

/* Bounds between which everything is, before the first question. */
#define BOOT_BOUNDS_ALL ((boot_bounds){.least_ns = INT64_MIN, .most_ns = INT64_MAX})

/* Bounds between which nothing is: nothing is known. */
#define BOOT_BOUNDS_NONE ((boot_bounds){.least_ns = INT64_MAX, .most_ns = INT64_MIN})

/* Takes an answer into account. If a clock was set meanwhile, or the server lies, nothing may be
 * left between the bounds. */
void boot_time_add(boot_bounds *ahead, uint64_t asked_ns, const boot_time *answer,
                   uint64_t answered_ns);

/* What is known of a clock a - c if a - b and b - c are. */
boot_bounds boot_time_chain(boot_bounds first, boot_bounds second);

/* What is known of the clocks of a rank and of one that checks in at it and has `reported` that. */
boot_bounds boot_time_of_child(const colli_rank_info *parent, const colli_rank_info *child,
                               boot_bounds reported);

/* What the root tells each rank with the outcome, in told[0 .. nranks - 1]; `ahead`: by rank, how
 * far its own clock is ahead. */
void boot_time_tell(const colli_rank_info *all, int nranks, int root, const boot_bounds *ahead,
                    boot_bounds *told);

/* What a rank makes of that; zero_ns is 0 if the bounds are no use. */
colli_shared_time boot_time_share(const boot_time *told);

#endif
