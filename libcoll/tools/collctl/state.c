/* state.c: what a rank does, from its flight record. */
#include <string.h>

#include "collctl.h"
#include "libcoll/base/line.h"

#define LATE_S 0.1 /* a rank that enters later than this is late */

/* ---- operations ------------------------------------------------------------------------------ */

ctl_op ctl_next_op(const colli_status_comm *comm, int *place) {
  const colli_flight_rings *rings = &comm->flights;
  while (*place < 2 * COLLI_FLIGHTS) {
    bool message = *place >= COLLI_FLIGHTS;
    uint64_t last = message ? rings->nmessages : rings->last;
    uint64_t at = (last + 1 + (uint64_t)(*place)++) % COLLI_FLIGHTS;
    const colli_flight *flight = message ? &rings->messages[at] : &rings->collectives[at];
    if (flight->number)
      return (ctl_op){flight, message ? rings->names[at] : NULL};
  }
  return (ctl_op){NULL, NULL};
}

ctl_op ctl_oldest_pending(const colli_status_comm *comm) {
  ctl_op oldest = {NULL, NULL};
  int place = 0;
  for (ctl_op op = ctl_next_op(comm, &place); op.flight; op = ctl_next_op(comm, &place))
    if (!op.flight->ended && (!oldest.flight || op.flight->begun < oldest.flight->begun))
      oldest = op;
  return oldest;
}

ctl_op ctl_last_ended(const colli_status_comm *comm) {
  ctl_op last = {NULL, NULL};
  int place = 0;
  for (ctl_op op = ctl_next_op(comm, &place); op.flight; op = ctl_next_op(comm, &place))
    if (op.flight->ended && (!last.flight || op.flight->ended >= last.flight->ended))
      last = op;
  return last;
}

int ctl_count_pending(const colli_status_comm *comm) {
  int count = 0, place = 0;
  for (ctl_op op = ctl_next_op(comm, &place); op.flight; op = ctl_next_op(comm, &place))
    count += !op.flight->ended;
  return count;
}

const char *ctl_op_text(ctl_op op, char text[CTL_OP_TEXT]) {
  char brief[COLLI_TAG_TEXT];
  colli_tag_brief(&op.flight->tag, brief);
  if (!op.name) {
    snprintf(text, CTL_OP_TEXT, "%s", brief);
    return text;
  }
  const char *size = strchr(brief, ' ');
  int used = snprintf(text, CTL_OP_TEXT, "%s%s", op.name, size ? size : "");
  if (op.flight->peer >= 0)
    snprintf(text + used, CTL_OP_TEXT - (size_t)used, ", rank %d", op.flight->peer);
  return text;
}

const char *ctl_state_name(uint8_t state) {
  switch (state) {
  case 'R':
    return "running";
  case 'S':
    return "sleeping";
  case 'D':
    return "in disk wait";
  case 'T':
    return "stopped";
  case 't':
    return "traced";
  default:
    return "ended";
  }
}

/* ---- who is late ----------------------------------------------------------------------------- */

/* A rank's collective `number`, if it has been in it for a while: pages are not read all at the
 * same moment. Else NULL. */
static const colli_flight *waits_in(const ctl_comm *comm, int rank, uint64_t number) {
  if (!comm->members[rank])
    return NULL;
  const colli_flight *flight = &comm->members[rank]->flights.collectives[number % COLLI_FLIGHTS];
  bool waits = flight->number == number && !flight->ended &&
               colli_status_age_s(comm->pages[rank], flight->begun) >= LATE_S;
  return waits ? flight : NULL;
}

/* Adds "ranks 0-2, 5 have waited for 30.0 s". */
static void add_waiting(colli_line *l, const ctl_comm *comm, uint64_t number) {
  colli_line ranks = {(char[192]){0}, 192, 0};
  double longest = 0;
  int count = 0, first = -1;
  for (int rank = 0; rank <= comm->nranks; rank++) {
    const colli_flight *flight = rank < comm->nranks ? waits_in(comm, rank, number) : NULL;
    if (flight) {
      double age = colli_status_age_s(comm->pages[rank], flight->begun);
      longest = age > longest ? age : longest;
      count++;
      first = first < 0 ? rank : first;
    } else if (first >= 0) {
      colli_line_add(&ranks, "%s%d", ranks.used ? ", " : "", first);
      if (rank - 1 > first)
        colli_line_add(&ranks, "%s%d", rank - 1 > first + 1 ? "-" : ", ", rank - 1);
      first = -1;
    }
  }
  colli_line_add(l, "rank%s %s %s waited for %.1f s", count > 1 ? "s" : "", ranks.text,
                 count > 1 ? "have" : "has", longest);
}

bool ctl_is_late(const ctl_comm *comm, int rank, char text[CTL_LATE_TEXT]) {
  const colli_status_comm *member = comm->members[rank];
  const colli_flight *next = NULL;
  for (int other = 0; member && member->failed == 0 && other < comm->nranks && !next; other++)
    next = waits_in(comm, other, member->flights.last + 1);
  if (!next)
    return false;
  char brief[CTL_OP_TEXT];
  colli_line l = {text, CTL_LATE_TEXT, 0};
  const colli_status_head *page = comm->pages[rank];
  colli_line_add(&l, "rank %d (host %s, pid %d%s%s) has not entered %s on communicator \"%s\"; ",
                 rank, page->host, page->seen_pid, page->state == 'T' ? ", " : "",
                 page->state == 'T' ? "stopped" : "", colli_tag_brief(&next->tag, brief),
                 comm->name);
  add_waiting(&l, comm, next->number);
  ctl_op last = ctl_last_ended(member);
  if (last.flight)
    colli_line_add(&l, "; its last was %s, finished %.1f s ago", ctl_op_text(last, brief),
                   colli_status_age_s(page, last.flight->ended));
  else
    colli_line_add(&l, "; it has finished none before");
  return true;
}
