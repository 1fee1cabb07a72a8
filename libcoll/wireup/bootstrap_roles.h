/*
 * bootstrap_roles.h: the two roles in a bootstrap.
 *
 * Every rank r > 0 keeps one check-in connection to rank 0 until the outcome is known:
 *
 *   r -> 0   boot_checkin    versions are compared before anything else is read
 *   r -> 0   colli_rank_info its record
 *   r -> 0   boot_report     maybe: what time is it? (bootstrap_time.h) Several times, each with
 *   0 -> r   boot_report     an answer
 *   r -> 0   boot_report     its links are up (COLL_OK), or why they cannot be made
 *   0 -> r   boot_report     the outcome: COLL_OK, or the same failure for everybody
 *
 * so that rank 0 notices a death at once, and all ranks succeed or all fail. If rank 0 dies before
 * it has told all, the others decide by what happens to their links (bootstrap_join.c).
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_ROLES_H
#define COLLI_WIREUP_BOOTSTRAP_ROLES_H

#include "libcoll/wireup/bootstrap_links.h"

typedef struct boot_checkin {
  uint32_t version; /* COLL_VERSION */
  int32_t nranks;
  uint32_t remaining_ms; /* until the sender gives up */
  uint32_t pad;
} boot_checkin;

/* Serves the other ranks as rank 0, whose shared time is *time. */
coll_status boot_root(boot *b, boot_links *links, const colli_shared_time *time);

/* Joins as any other rank; *time becomes its shared time. */
coll_status boot_join(boot *b, boot_links *links, colli_shared_time *time);

/* Meets ranks that are already connected (colli_lifelines.collect), in either role. */
coll_status boot_meet(boot *b, boot_links *links);

#endif
