/*
 * roles.h: what ranks say to each other in a bootstrap.
 *
 * One rank s serves the others: the one whose id has the listener. Every other rank r keeps one
 * check-in connection until the outcome is known: to s, or in a tree (tree.h) below s = 0 to its
 * parent, which passes on what it hears.
 *
 *   r -> s   boot_checkin    versions are compared before anything else is read. In a tree, a rank
 *                            with others below it says twice that it is there: at once, and when
 *                            it has their records
 *   r -> s   colli_rank_info its record, and those of the ranks below it; or a boot_report of why
 *                            there are none
 *   s -> 0   boot_report     if s is not rank 0, which is the root of the tree of control links:
 *   s -> 0   bytes           the table of all records; it goes down the tree to all but s
 *   r -> s   boot_report     maybe: what time is it? (time.h) Several times, each with
 *   s -> r   boot_report     an answer
 *   r -> s   boot_report     in a tree, if its links are late: for whom it waits (late.h)
 *   r -> s   boot_report     ready: its links are up, and those of all below it; or why they cannot
 *                            be made
 *   r -> s   boot_bounds     in a tree: what is known of the clocks of those below it
 *   r -> s   boot_report     in a tree: one below it has failed since; that may be too late
 *   s -> r   boot_report     the outcome: COLL_OK, or the same failure for everybody
 *   s -> r   boot_bounds     as above
 *
 * so that a death is noticed at once, and all ranks succeed or all fail. If s dies before it has
 * told all, or in a tree a rank between it and others, those decide by what happens to their links
 * (doubt.c); who notices that says so to those below it, instead of an outcome.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_ROLES_H
#define COLLI_WIREUP_BOOTSTRAP_ROLES_H

#include "libcoll/wireup/bootstrap/links.h"

enum { BOOT_RECORDS = 0, BOOT_CHECKIN = 1, BOOT_FAILURE = 2 }; /* boot_checkin.follows */

typedef struct boot_checkin {
  uint32_t version; /* COLL_VERSION */
  int32_t nranks;
  uint32_t remaining_ms; /* until the sender gives up */
  uint32_t follows;      /* BOOT_RECORDS .. */
} boot_checkin;

/* Meets all ranks in this rank's place: takes in those that check in at listen_fd (-1: none), which
 * stays the caller's, and checks in itself unless it serves all. *time is the shared time: in, of
 * the one that serves all; out, of the others. */
coll_status boot_check_in(boot *b, boot_links *links, int listen_fd, colli_shared_time *time);

/* Meets ranks that are already connected (colli_lifelines.collect). */
coll_status boot_meet(boot *b, boot_links *links);

#endif
