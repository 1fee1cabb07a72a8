/*
 * meet.c: a bootstrap of ranks that are already connected, such as the survivors of a
 * failure. Their records reach rank 0 over connections of the caller. Only the control links are
 * new, and the table comes down their tree as in any other bootstrap. The caller tells all ranks
 * whether they succeeded.
 */
#include <stdlib.h>

#include "libcoll/base/clock.h"
#include "libcoll/wireup/bootstrap/roles.h"

/* The deadline has passed, and no link says why. */
static coll_status fail_late(const boot *b) {
  return boot_fail(b, COLL_ERR_TIMEOUT, -1, NULL,
                   "rank %d (host %s) of the new communicator was not joined to the others within "
                   "%.3g s",
                   b->rank, b->mine->host,
                   (double)(colli_now_ns() - b->start_ns) / (double)COLLI_NS_PER_S);
}

/* Hands this rank's record to the caller; at rank 0, makes the table of those that the caller has
 * put into `all`. COLL_T_DONE: that is done; COLL_T_AGAIN; or a coll_status. */
static int collect(const boot *b, boot_links *links, colli_rank_info *all, bool late) {
  const colli_lifelines *with = b->lifelines;
  const int result = with->collect(with->ctx, b->mine, all, late);
  if (result != COLL_T_DONE || b->rank != 0)
    return result;
  links->table = colli_rank_table_create(all, b->nranks);
  return links->table ? result : (int)boot_fail_table(b);
}

/* Meets the others; `all`: room for their records at rank 0. */
static coll_status meet_others(boot *b, boot_links *links, colli_rank_info *all) {
  /* Rank 0 must be the first to find out who is late. */
  const uint64_t fifth_ns = boot_all_ns(b) / 5;
  const uint64_t until_ns = b->deadline_ns - (b->rank == 0 ? fifth_ns : 0);
  int collected = COLL_T_AGAIN;
  bool begun = false;
  for (;;) {
    const bool late = colli_now_ns() >= until_ns;
    coll_status status = boot_lifelines_check(b);
    if (status != COLL_OK)
      return status;
    if (collected == COLL_T_AGAIN)
      collected = collect(b, links, all, late);
    if (collected > 0)
      return (coll_status)collected;
    if (collected == COLL_T_DONE && !begun) {
      begun = true;
      links->have_table = b->rank == 0;
      if (b->rank == 0)
        links->deadline_ns = until_ns;
      continue; /* so that interrupt() sends the record */
    }
    const int result = boot_links_step(b, links);
    if (result > 0)
      return (coll_status)result;
    if (result == COLL_T_DONE && collected == COLL_T_DONE)
      return COLL_OK;
    if (late)
      return fail_late(b);
    boot_polls_clear(&b->polls, until_ns);
    boot_links_watch(b, links);
    boot_lifelines_watch(b);
    boot_note_errno(b, boot_polls_wait(&b->polls), true);
  }
}

coll_status boot_meet(boot *b, boot_links *links) {
  colli_rank_info *all = b->rank == 0 ? calloc((size_t)b->nranks, sizeof(*all)) : NULL;
  const coll_status status = b->rank == 0 && !all ? boot_fail_table(b) : meet_others(b, links, all);
  free(all);
  return status;
}
