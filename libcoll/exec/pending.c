/* pending.c: sends that a connection has accepted, while it still reads their memory. */
#include "libcoll/base/assert.h"
#include "libcoll/exec/step.h"

/* Whether a message continues a run of pending ones. */
static bool continues_run(const colli_pending *last, const coll_conn *conn, uint64_t ticket,
                          const char *buf) {
  if (!last || last->conn != conn)
    return false;
  if (!buf)
    return !last->begin; /* slots complete in order, so the last one stands for all */
  return last->ticket + 1 == ticket && last->end == buf &&
         (size_t)(last->end - last->begin) == (ticket - last->first) * last->slice;
}

/* Records a message that a connection has accepted but not completed. */
void colli_exec_note_pending(colli_lane *lane, coll_conn *conn, uint64_t ticket, const char *buf,
                             size_t bytes) {
  colli_pending *last = lane->npending ? &lane->pending[lane->npending - 1] : NULL;
  COLLI_ASSERT(!last || last->conn != conn || ticket > last->ticket);
  if (!continues_run(last, conn, ticket, buf)) {
    COLLI_ASSERT(lane->npending < COLLI_MAX_PENDING);
    last = &lane->pending[lane->npending++];
    *last = (colli_pending){.conn = conn, .first = ticket, .begin = buf, .slice = bytes};
  }
  last->ticket = ticket;
  last->end = buf ? buf + bytes : NULL;
}

colli_lane *colli_exec_find_pending(coll_request *op, const char *begin, size_t bytes) {
  for (int l = 0; l < op->sched->nlanes; l++) {
    colli_lane *lane = &op->lane[l];
    for (int i = 0; i < lane->npending; i++)
      if (lane->pending[i].begin && begin < lane->pending[i].end &&
          lane->pending[i].begin < begin + bytes)
        return lane;
  }
  return NULL;
}
