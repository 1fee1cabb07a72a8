/*
 * witness.h: says something for a rank that does not answer, because it is in the program's own
 * code or stopped. Shortly before a deadline, ranks of its host that are in a libcoll call read its
 * status page and tell all others what it did last and what its process does now. If there are
 * none, ranks of other hosts have it read by the service of its host (libcoll/status/service.h).
 */
#ifndef COLLI_FAILURE_WITNESS_H
#define COLLI_FAILURE_WITNESS_H

#include "libcoll/comm/comm.h"

/* This rank or another one asks who waits where: looks at the silent ranks for which others are
 * known to wait. */
void colli_witness_asked(colli_family *family);

/* A rank tells where it waits. If that is an answer, somebody it waits for may be silent. */
void colli_witness_told(colli_family *family, const colli_ctrl_msg *waiting);

/* Tells all others what the services of other hosts have shown. Does not wait for it. */
void colli_witness_take(colli_family *family);

/* Keeps what another rank has seen. */
void colli_witness_heard(colli_family *family, const colli_ctrl_msg *msg);

/* What was seen of a rank of the base in communicator `uid` since about the time when `comm` asked,
 * or NULL. */
const colli_seen *colli_witness_of(const coll_comm *comm, int base_rank, uint64_t uid);

/* What its process did then: "it is stopped by a signal ..."; NULL if nothing can be said. */
const char *colli_witness_state_text(const colli_seen *seen);

#endif
