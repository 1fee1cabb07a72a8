/* event.c: describes events to observers. */
#include "libcoll/exec/event.h"

#include "libcoll/base/clock.h"
#include "libcoll/base/names.h"
#include "libcoll/sched/tag.h"

/* Gives an event to all observers. */
static void tell(const colli_exec *exec, coll_profiler_event *event) {
  event->size = sizeof(*event);
  event->rank = exec->rank;
  event->nranks = exec->nranks;
  event->communicator = exec->id;
  event->time_ns = colli_now_ns();
  for (int i = 0; i < exec->observers->count; i++)
    exec->observers->at[i].event(exec->observers->at[i].ctx, event);
}

/* The name of the operation by which a tag's elements are combined. */
static const char *combination(const coll_tag *tag, colli_coll coll) {
  unsigned op = (unsigned)colli_tag_get(tag, COLLI_TAG_OP);
  if (coll == COLLI_SENDRECV || !colli_reduces(coll))
    return "";
  return colli_op_name(op >= COLLI_TAG_USER_OP_CODE ? COLL_OP_USER_BASE : (int)op);
}

void colli_observe(const colli_exec *exec, coll_profiler_kind kind, const colli_flight *flight) {
  const coll_tag *tag = &flight->tag;
  colli_coll coll = (colli_coll)colli_tag_get(tag, COLLI_TAG_COLL);
  bool message = coll == COLLI_SENDRECV;
  int type = colli_tag_type(tag);
  bool varying = !message && colli_tag_get(tag, COLLI_TAG_VARYING);
  size_t count = varying ? 0 : (size_t)colli_tag_get(tag, COLLI_TAG_COUNT);
  coll_profiler_event event = {
      .kind = kind,
      .operation = message ? exec->flights.rings->names[flight->number % COLLI_FLIGHTS]
                           : colli_coll_name(coll),
      .number = flight->number,
      .collective = !message,
      .peer = message              ? flight->peer
              : colli_rooted(coll) ? (int)colli_tag_get(tag, COLLI_TAG_ROOT)
                                   : -1,
      .count = count,
      .bytes = count * coll_type_bytes((coll_type)type),
      .type = colli_type_name(type),
      .op = combination(tag, coll),
      .status = kind == COLL_PROFILER_END ? (coll_status)flight->status : COLL_OK,
      .message = "",
  };
  tell(exec, &event);
}

void colli_observe_fast(const colli_exec *exec, coll_profiler_kind kind, const coll_tag *tag,
                        uint64_t number) {
  colli_flight flight = {.tag = *tag, .number = number};
  colli_observe(exec, kind, &flight);
}

void colli_observe_failure(const colli_exec *exec, const coll_error *error) {
  coll_profiler_event event = {.kind = COLL_PROFILER_FAILED,
                               .operation = "",
                               .peer = -1,
                               .type = "",
                               .op = "",
                               .status = error->status,
                               .message = error->message};
  tell(exec, &event);
}
