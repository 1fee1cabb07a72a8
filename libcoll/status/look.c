/* look.c: reads the status page of one process, for a rank that waits for it. */
#include "libcoll/status/look.h"

#include <stdlib.h>

#include "libcoll/status/copy.h"

/* The operations in flight that a ring has. */
static uint32_t count_pending(const colli_flight *ring) {
  uint32_t count = 0;
  for (int i = 0; i < COLLI_FLIGHTS; i++)
    count += ring[i].number && !ring[i].ended;
  return count;
}

bool colli_status_sight_in(colli_status_head *page, uint64_t comm_id, int rank, uint64_t uid,
                           colli_status_sight *result) {
  colli_status_sight sight = {.state = page->state};
  bool found = false;
  if (page->comm_id != comm_id || page->rank != rank)
    return false;
  for (unsigned i = 0; i < page->ncomms; i++) {
    colli_status_comm *comm = colli_status_comm_at(page, i);
    sight.pending += count_pending(comm->flights.collectives);
    sight.pending += count_pending(comm->flights.messages);
    if (comm->uid != uid)
      continue;
    const colli_flights flights = {.rings = &comm->flights};
    const colli_flight *last = colli_flight_last_ended(&flights);
    found = true;
    sight.entered = comm->flights.last;
    sight.ended = last != NULL;
    if (last) {
      sight.tag = last->tag;
      sight.since_ns = (uint64_t)(colli_status_age_s(page, last->ended) * 1e9);
    }
  }
  if (found)
    *result = sight;
  return found;
}

/* What is looked for, and what was found. */
typedef struct search {
  uint64_t comm_id, uid;
  int rank;
  bool over; /* that rank's page was seen; there is one for each rank of a job */
  bool found;
  colli_status_sight *sight;
} search;

static void look_at(void *ctx, colli_status_head *copy) {
  search *s = ctx;
  s->over |= copy->comm_id == s->comm_id && copy->rank == s->rank;
  s->found |= colli_status_sight_in(copy, s->comm_id, s->rank, s->uid, s->sight);
  free(copy);
}

/* Whether the scan may end. */
static bool is_over(const void *ctx) {
  return ((const search *)ctx)->over;
}

bool colli_status_look(int pid, uint64_t comm_id, int rank, uint64_t uid,
                       colli_status_sight *sight) {
  search s = {.comm_id = comm_id, .uid = uid, .rank = rank, .sight = sight};
  (void)colli_status_scan_until(pid, look_at, is_over, &s);
  return s.found;
}
