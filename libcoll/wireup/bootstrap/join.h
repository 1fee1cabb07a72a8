/*
 * join.h: a rank that checks in at another one: it dials that one, sends its record and those of
 * the ranks below it, says when all of these are ready, and hears the outcome.
 */
#ifndef COLLI_WIREUP_BOOTSTRAP_JOIN_H
#define COLLI_WIREUP_BOOTSTRAP_JOIN_H

#include "libcoll/wireup/bootstrap/roles.h"
#include "libcoll/wireup/bootstrap/time.h"

typedef struct boot_joiner {
  boot *b;
  boot_links *links;
  boot_dial dial;
  colli_sealed conn;              /* to the rank at which it checks in */
  int ranks;                      /* this one and those below it */
  const colli_rank_info *records; /* theirs; NULL: not all are here yet */
  uint64_t deadline_ns;           /* of the one that gives up first */
  boot_checkin comes;             /* for one with others below it: that their records come later */
  boot_checkin checkin;           /* the records come now */
  bool checks_in;                 /* that has begun to be sent */
  size_t comes_done, checkin_done, records_done; /* bytes that were sent */
  bool linked;                                   /* the links are up */
  bool timed;                                    /* and the time is known, or of no interest */
  int asked;                                     /* questions for the time that were answered */
  uint64_t asked_ns;                             /* when this one was sent; 0: it was not yet */
  boot_report question;
  size_t question_done;
  boot_report wait; /* says for whom this rank waits; status 0: it has no need to */
  size_t wait_done;
  bool says_wait;       /* it is to be sent */
  boot_report *sending; /* this or a question, which has begun to be sent; or NULL */
  bool ready;           /* this rank and all below it are */
  boot_report ready_report;
  const boot_bounds *ahead; /* of all of them: it follows that report but for the first */
  size_t ready_done, rest_done;
  bool fails;          /* a rank below this one has failed since; this follows: */
  boot_report failure; /* whether that is too late is for the root to say */
  size_t failure_done;
  boot_report outcome;
  size_t outcome_done, table_done, told_done;
  boot_bounds *told; /* of all of them: it follows a success but for the first */
  bool heard;        /* the outcome, or that there will be none: nothing is to be reported */
  int lost;          /* the rank that is lost, and has told no outcome; or -1 */
  bool late;         /* it may only be stopped */
} boot_joiner;

/* Begins to check in. NULL: boot->error says why. */
boot_joiner *boot_joiner_open(boot *b, boot_links *links);

/* All records are here, of which the first is this rank's: they can be sent. The rank that gives up
 * first does so then. */
void boot_joiner_set_records(boot_joiner *j, const colli_rank_info *records, uint64_t deadline_ns);

/* The links are up. */
void boot_joiner_set_linked(boot_joiner *j);

/* This rank and all below it are ready. Arrays (NULL if there are none below) stay the caller's:
 * what they say of their clocks, and room for what the outcome will. */
void boot_joiner_set_ready(boot_joiner *j, const boot_bounds *ahead, boot_bounds *told);

/* This rank, or one below it, waits for another one: says so, unless it has. */
void boot_joiner_set_wait(boot_joiner *j, int rank);

/* A rank below this one has failed after set_ready(): reports boot->error, once. */
void boot_joiner_set_failure(boot_joiner *j, coll_status status);

/* Exchanges messages. Sets *over when there is an outcome, which is COLL_OK; or the rank that it
 * would come from is lost (j->lost), upon which the caller must decide. */
coll_status boot_joiner_step(boot_joiner *j, bool *over);

/* Decides what the outcome was after j->lost is, and has not told it. */
coll_status boot_joiner_decide(const boot_joiner *j);

/* Fails because j->lost is lost, or the rank at which this one checks in. */
coll_status boot_joiner_fail_lost(const boot_joiner *j);

/* Whether this rank's deadline has passed: *over as above, where that may be due to a rank between
 * the root and this one; or fails. */
coll_status boot_joiner_check_late(boot_joiner *j, bool *over);

/* Reports a failure, so that the others learn the reason; nothing if it came from there. */
void boot_joiner_report(boot_joiner *j, coll_status status);

/* Adds what it waits for. */
void boot_joiner_watch(boot_joiner *j);

void boot_joiner_close(boot_joiner *j);

#endif
