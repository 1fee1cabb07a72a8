/*
 * answer.h: what a rank for which others wait says of itself, from its flight record, and how that
 * becomes the message about a deadline. A rank that is outside libcoll cannot answer; then the
 * message has what ranks of its host see of it (witness.h), or else what the waiting ranks know.
 */
#ifndef COLLI_FAILURE_ANSWER_H
#define COLLI_FAILURE_ANSWER_H

#include "libcoll/comm/comm.h"

/* Whether a rank has reported that it waits, and is not late in repeating it. */
bool colli_reports_waiting(const coll_comm *comm, int rank);

/* Another rank waits for this one: tells all ranks what this one did last in that communicator, but
 * not again within interval_ns. */
void colli_answer_send(coll_comm *comm, const colli_ctrl_msg *waiting, uint64_t interval_ns);

/* Keeps another rank's answer. */
void colli_answer_heard(coll_comm *comm, const colli_ctrl_msg *msg);

/* Writes what is known at the deadline: that `peer` has not entered `op`, a collective, which ranks
 * wait for it and since when, and the peer's last operation. */
void colli_answer_text(const coll_comm *comm, const coll_request *op, int peer, char *text,
                       size_t bytes);

/* Writes what was seen of a rank of the base in communicator `uid`: "; its last was ...,
 * finished 2.0 s ago; it is stopped by a signal"; or nothing. */
#define COLLI_SEEN_TEXT 240
void colli_answer_seen_text(const coll_comm *comm, int base_rank, uint64_t uid, char *text,
                            size_t bytes);

#endif
