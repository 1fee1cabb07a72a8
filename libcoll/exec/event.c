/* event.c: describes events to observers. */
#include "libcoll/exec/event.h"

#include "libcoll/base/names.h"
#include "libcoll/sched/tag.h"

/* Tells all observers. */
static void tell(const colli_observation *seen) {
  const struct colli_observers *observers = seen->exec->observers;
  for (int i = 0; i < observers->count; i++)
    observers->at[i].event(observers->at[i].ctx, seen);
}

/* The name of the operation by which a tag's elements are combined. */
static const char *combination(const coll_tag *tag, colli_coll coll) {
  if (coll == COLLI_SENDRECV || !colli_reduces(coll))
    return "";
  return colli_tag_has_user_op(tag) ? "an operation of the caller's own"
                                    : colli_op_name(colli_tag_op(tag));
}

/* Describes an operation. */
static void describe_operation(const colli_observation *seen, coll_profiler_event *event) {
  const coll_tag *tag = seen->tag;
  const colli_coll coll = (colli_coll)colli_tag_get(tag, COLLI_TAG_COLL);
  const bool message = coll == COLLI_SENDRECV;
  const int type = colli_tag_type(tag);
  const bool varying = !message && colli_tag_get(tag, COLLI_TAG_VARYING);
  event->operation = message ? seen->name : colli_coll_name(coll);
  event->number = seen->number;
  event->collective = !message;
  event->peer = message              ? seen->peer
                : colli_rooted(coll) ? (int)colli_tag_get(tag, COLLI_TAG_ROOT)
                                     : -1;
  event->count = varying ? 0 : (size_t)colli_tag_count(tag);
  event->bytes = event->count * coll_type_bytes((coll_type)type);
  event->type = colli_type_name(type);
  event->op = combination(tag, coll);
}

void colli_event_describe(const colli_observation *seen, coll_profiler_event *event) {
  *event = (coll_profiler_event){.size = sizeof(*event),
                                 .kind = seen->kind,
                                 .rank = seen->exec->rank,
                                 .nranks = seen->exec->nranks,
                                 .communicator = seen->exec->id,
                                 .operation = "",
                                 .peer = -1,
                                 .type = "",
                                 .op = "",
                                 .status = seen->status,
                                 .message = seen->message};
  if (seen->tag)
    describe_operation(seen, event);
}

void colli_observe(const colli_exec *exec, coll_profiler_kind kind, const coll_request *op,
                   coll_status status) {
  const bool recorded = colli_flight_is_of(op->record, op); /* else many others began since */
  const uint64_t ticks = kind == COLL_PROFILER_END ? op->record->ended : op->record->begun;
  tell(&(colli_observation){.exec = exec,
                            .kind = kind,
                            .tag = &op->tag,
                            .number = op->coll == COLLI_SENDRECV ? op->flight : op->sequence,
                            .peer = op->partner,
                            .name = op->name,
                            .status = status,
                            .message = "",
                            .ticks = recorded ? ticks : 0});
}

void colli_observe_fast(const colli_exec *exec, coll_profiler_kind kind, const coll_tag *tag,
                        uint64_t number) {
  const colli_flight *flight = &exec->flights.rings->collectives[number % COLLI_FLIGHTS];
  tell(&(colli_observation){.exec = exec,
                            .kind = kind,
                            .tag = tag,
                            .number = number,
                            .peer = -1,
                            .message = "",
                            .ticks = kind == COLL_PROFILER_END ? flight->ended : 0});
}

void colli_observe_failure(const colli_exec *exec, const coll_error *error) {
  tell(&(colli_observation){.exec = exec,
                            .kind = COLL_PROFILER_FAILED,
                            .peer = -1,
                            .status = error->status,
                            .message = error->message});
}
