/*
 * meet.h: rank 0 hands the id to the others at a port that all can work out, for launchers that
 * carry nothing themselves.
 *
 *   others: connect, greeting -->
 *                      <-- rank 0: length, sealed (job, key, id)
 *   rank, HMAC(key, rank) -->
 *                      <-- a byte: rank 0 has counted this rank, which comes again otherwise
 *
 * Rank 0 hands it to anybody, since only ranks can open it, and is done when each rank has proved
 * that it did. Its kernel keeps connections without the greeting, which is the same in all jobs.
 * Those that it does hand over make room for others: first who has not greeted, then the oldest of
 * a source that has many, then the oldest. Others try all ports and go on if something else answers
 * there: a rank 0 of another job, or of an earlier call.
 */
#ifndef COLLI_CREATE_MEET_H
#define COLLI_CREATE_MEET_H

#include "libcoll/create/seal.h"
#include "libcoll/wireup/id.h"

#define COLLI_MEET_JOB   128 /* bytes of a job's name, with its end */
#define COLLI_MEET_PORTS 4

typedef struct colli_meeting {
  char host[256];           /* rank 0's: a name or a number */
  char job[COLLI_MEET_JOB]; /* differs from that of every other call at the same ports */
  uint16_t port;            /* the first of COLLI_MEET_PORTS */
  colli_seal seal;
} colli_meeting;

/* Chooses the ports by the job's name: of the upper half of COLL_PORT_RANGE, else below the
 * ephemeral ones. Errors: INVALID_USAGE for a range that is too small. */
coll_status colli_meet_ports(colli_meeting *meeting, const colli_params *params, const char *name,
                             coll_error *error);

/*
 * Rank 0 passes on *id (NULL: it has failed), all others get it. Errors: TIMEOUT (by deadline_ns
 * rank 0 or another rank did not come; names them), SYSTEM (rank 0 failed; no port is free), and
 * those of the seal except AUTH.
 */
coll_status colli_meet(const colli_meeting *meeting, uint64_t deadline_ns, int rank, int nranks,
                       colli_id *id, coll_error *error);

#endif
