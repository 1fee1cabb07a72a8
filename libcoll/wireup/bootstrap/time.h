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
 * one host agree exactly. This is the exchange of NTP (RFC 5905, section 8), except that NTP takes
 * the middle of the best exchange, and half its round trip as the error.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_TIME_H
#define COLLI_WIREUP_BOOTSTRAP_TIME_H

#include "libcoll/wireup/bootstrap/report.h"

#define BOOT_QUESTIONS 8

/* Whether a rank other than the server has to ask for the time. */
bool boot_time_asks(const colli_rank_table *table, int server, int rank);

/* Bounds of which nothing is known. */
void boot_time_begin(boot_time *time);

/* Takes an answer into account. If a clock was set meanwhile, or the server lies, nothing may be
 * left between the bounds. */
void boot_time_add(boot_time *time, uint64_t asked_ns, const boot_time *answer,
                   uint64_t answered_ns);

/* What the server tells a rank with the outcome; `reported`: by rank, what each has said. */
void boot_time_tell(const colli_rank_info *all, int server, int rank, const boot_time *reported,
                    const colli_shared_time *time, boot_time *told);

/* What a rank makes of that; zero_ns is 0 if the bounds are no use. */
colli_shared_time boot_time_share(const boot_time *told);

#endif
