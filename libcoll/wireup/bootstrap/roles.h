/*
 * roles.h: the two roles in a bootstrap.
 *
 * One rank s serves the others: the one whose id has the listener. Every other rank r keeps one
 * check-in connection to it until the outcome is known:
 *
 *   r -> s   boot_checkin    versions are compared before anything else is read
 *   r -> s   colli_rank_info its record
 *   s -> 0   boot_report     if s is not rank 0, which is the root of the tree of control links:
 *   s -> 0   bytes           the table of all records; it goes down the tree to all but s
 *   r -> s   boot_report     maybe: what time is it? (time.h) Several times, each with
 *   s -> r   boot_report     an answer
 *   r -> s   boot_report     its links are up (COLL_OK), or why they cannot be made
 *   s -> r   boot_report     the outcome: COLL_OK, or the same failure for everybody
 *
 * so that s notices a death at once, and all ranks succeed or all fail. If s dies before it has
 * told all, the others decide by what happens to their links (join.c).
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_ROLES_H
#define COLLI_WIREUP_BOOTSTRAP_ROLES_H

#include "libcoll/wireup/bootstrap/links.h"

typedef struct boot_checkin {
  uint32_t version; /* COLL_VERSION */
  int32_t nranks;
  uint32_t remaining_ms; /* until the sender gives up */
  uint32_t pad;
} boot_checkin;

#define BOOT_SERVER (-1) /* the rank to which check-ins go: whoever serves */

/* Serves the other ranks at a listener, which stays the caller's; this rank's shared time is
 * *time. */
coll_status boot_serve(boot *b, boot_links *links, int listen_fd, const colli_shared_time *time);

/* Joins as any other rank; *time becomes its shared time. */
coll_status boot_join(boot *b, boot_links *links, colli_shared_time *time);

/* Meets ranks that are already connected (colli_lifelines.collect), in either role. */
coll_status boot_meet(boot *b, boot_links *links);

#endif
