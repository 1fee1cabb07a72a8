/* trace_spans.c: begins and ends operations in a trace. */
#include "libcoll/trace/trace_spans.h"

#include <stdio.h>

#include "libcoll/base/assert.h"

/* Room that the ends of all lanes leave, for the last mark of a full file. */
#define END_RESERVE 512

#define MIX 0x9e3779b97f4a7c15ull

_Static_assert(COLLI_TRACE_LANES *COLLI_TRACE_END / 2 + END_RESERVE < COLLI_TRACE_RESERVE,
               "what has begun can end");

/* What the items of an operation depend on. */
static inline colli_trace_key make_key(const colli_observation *seen, int lane) {
  const coll_tag *tag = seen->tag;
  colli_trace_key key = {.word = {tag->word[0], tag->word[1], tag->word[2]},
                         .communicator = seen->exec->id,
                         .place = (uint64_t)lane};
  if (colli_event_is_collective(seen)) {
    key.word[1] &= ~colli_tag_mask(COLLI_TAG_SEQUENCE);
    return key;
  }
  key.word[1] = (uint64_t)(uintptr_t)seen->name;
  key.word[2] &= ~colli_tag_mask(COLLI_TAG_P2P_NUMBER);
  key.place |= (uint64_t)(uint32_t)seen->peer << 32;
  return key;
}

/* Where the item of equal operations is kept. */
static inline unsigned place_of(const colli_trace_key *key) {
  const uint64_t all = key->word[0] + key->word[1] + key->word[2] + key->communicator + key->place;
  return (unsigned)(all * MIX >> 60) % COLLI_TRACE_SPANS;
}

/* Names a lane's track and makes the item that ends its operations. */
static bool make_end(colli_trace_items *items, int lane, colli_trace_end *end) {
  const uint64_t track = items->track + 1 + (uint64_t)lane;
  colli_packet event, item;
  if (!colli_trace_describe(items, track, items->track, "operations"))
    return false;
  colli_trace_begin_event(&event, SLICE_END, track);
  colli_trace_wrap(items, &event, &item);
  COLLI_ASSERT(item.used <= COLLI_TRACE_END);
  memcpy(end->item, item.bytes, item.used);
  end->bytes = item.used;
  return true;
}

/* Makes the item that begins equal operations. */
static void make_span(colli_trace_items *items, int lane, const colli_observation *seen,
                      colli_trace_span *span) {
  coll_profiler_event what;
  colli_packet event, item;
  char communicator[24];
  colli_event_describe(seen, &what);
  snprintf(communicator, sizeof(communicator), "%016llx", (unsigned long long)what.communicator);
  colli_trace_begin_event(&event, SLICE_BEGIN, items->track + 1 + (uint64_t)lane);
  colli_trace_name_event(items, &event, what.operation);
  colli_trace_add_text(items, &event, "communicator", communicator);
  colli_trace_add_number(items, &event, "count", what.count);
  colli_trace_add_number(items, &event, "bytes", what.bytes);
  colli_trace_add_text(items, &event, "type", what.type);
  if (*what.op)
    colli_trace_add_text(items, &event, "op", what.op);
  if (what.peer >= 0)
    colli_trace_add_number(items, &event, what.collective ? "root" : "peer", (uint64_t)what.peer);
  colli_trace_add_long(items, &event, "number"); /* last: values.number */
  colli_trace_wrap(items, &event, &item);
  COLLI_ASSERT(item.used <= COLLI_TRACE_SPAN);
  memset(span->item, 0, sizeof(span->item));
  memcpy(span->item, item.bytes, item.used);
  span->bytes = item.used;
}

/* Whether two keys are equal. */
static inline bool are_equal(const colli_trace_key *a, const colli_trace_key *b) {
  return a->word[0] == b->word[0] && a->word[1] == b->word[1] && a->word[2] == b->word[2] &&
         a->communicator == b->communicator && a->place == b->place;
}

/* Makes the item of operations that are none of those that are kept. */
__attribute__((noinline, cold)) static bool renew(colli_trace_spans *spans,
                                                  colli_trace_items *items, int lane,
                                                  const colli_observation *seen,
                                                  colli_trace_span *span) {
  if (!spans->ends[lane].bytes && !make_end(items, lane, &spans->ends[lane]))
    return false;
  make_span(items, lane, seen, span);
  span->key = make_key(seen, lane);
  return true;
}

bool colli_trace_begin(colli_trace_spans *spans, colli_trace_items *items, int lane,
                       const colli_observation *seen, uint64_t time_ns) {
  const colli_trace_key key = make_key(seen, lane);
  colli_trace_span *span = &spans->kept[place_of(&key)];
  if (__builtin_expect(!are_equal(&span->key, &key) || !span->bytes, 0) &&
      !renew(spans, items, lane, seen, span))
    return false;
  const colli_trace_values values = {time_ns, seen->number, true};
  return colli_trace_file_put(&items->file, span->item, span->bytes, values, COLLI_TRACE_RESERVE);
}

void colli_trace_finish(colli_trace_spans *spans, colli_trace_items *items, int lane,
                        coll_status status, uint64_t time_ns) {
  const colli_trace_end *end = &spans->ends[lane];
  COLLI_ASSERT(end->bytes > 0);
  if (__builtin_expect(status != COLL_OK, 0)) {
    colli_packet event;
    colli_trace_begin_event(&event, SLICE_END, items->track + 1 + (uint64_t)lane);
    colli_trace_add_text(items, &event, "status", coll_status_name(status));
    if (colli_trace_write(items, &event, time_ns, COLLI_TRACE_RESERVE))
      return;
  }
  colli_trace_file_put(&items->file, end->item, end->bytes,
                       (colli_trace_values){.time_ns = time_ns}, END_RESERVE);
}
