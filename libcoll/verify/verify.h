/*
 * verify.h: proves a set of schedules by running all ranks symbolically: each chunk holds an
 * expression over the ranks' inputs.
 *
 * Checked: every output chunk of every rank holds what the collective promises; each contribution
 * enters exactly once, combined as shape.order says (scans: in rank order always, from left to
 * right under TREE and LEFT); all ranks of an all-reduce hold the same expression (so results are
 * equal bit for bit); FINAL exactly where a reduction is complete, once on every value's way to an
 * output; nothing reads what was never written, or what is overwritten in place; the k-th send
 * meets the k-th receive, of the same length in every partition, and none is left over; no two
 * unordered accesses of one rank overlap, across passes too; no deadlock with `slots` chunks of
 * credit per connection. Only lanes and deps order the accesses of a rank, never the accidental
 * timing of other ranks' messages. A step that receives and sends keeps its message's slot until it
 * gets the next one, as the executor does when it reduces in place. With a single slot this could
 * not work, so it then takes the message out first. In a barrier, every rank must hear from every
 * rank.
 */
#ifndef COLLI_VERIFY_VERIFY_H
#define COLLI_VERIFY_VERIFY_H

#include "libcoll/sched/sched.h"

#define COLLI_SLOTS_UNLIMITED 0

typedef struct colli_verify_options {
  int slots; /* chunks of credit per connection and direction, or COLLI_SLOTS_UNLIMITED */
  /*
   * INPUT and OUTPUT are the same memory: the whole vector if both hold it, or the rank's own block
   * if one of them holds only that; in rooted collectives on the root. All-to-all: as in the
   * schedules' shape (shape.in_place).
   */
  bool in_place;
  int passes; /* 1 or more; 2 finds conflicts of lanes across passes */
} colli_verify_options;

/* COLL_OK, or COLL_ERR_INTERNAL with the objection in `why` (rank, step, chunk), or NO_MEMORY. */
coll_status colli_verify(const colli_sched *const *scheds, int nranks,
                         const colli_verify_options *options, char *why, size_t why_bytes);

#endif
