/*
 * trace.c: turns events into items of a trace. A rank has a track, and below it lanes: an operation
 * takes the lowest lane that is free, because the spans of one track must not overlap other than
 * nested, and nonblocking operations do.
 */
#include "libcoll/trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/trace/trace_clock.h"
#include "libcoll/trace/trace_spans.h"

#define READINGS 5 /* of two clocks, to compare them */

/* An operation in flight. */
typedef struct open_span {
  uint64_t communicator, number;
  bool collective;
} open_span;

struct colli_trace {
  colli_trace_clock clock;
  colli_shared_time time;
  uint64_t free; /* bit l: lane l is free */
  open_span open[COLLI_TRACE_LANES];
  colli_trace_items items;
  colli_trace_spans spans;
  uint64_t missing;   /* operations that did not fit */
  uint8_t *missed_at; /* where the file says so; NULL: nowhere yet */
};

/* The time of an event on the clock of the trace. */
static uint64_t time_of(colli_trace *trace, const colli_observation *seen) {
  const uint64_t ticks = seen->exec->flights.clock ? 0 : seen->ticks;
  return trace->time.zero_ns + colli_trace_clock_read(&trace->clock, ticks);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* An operation is not in the trace. The number of those is set in the file each time, so that it is
 * there even if this process is killed. */
__attribute__((cold)) static void miss_operation(colli_trace *trace,
                                                 const colli_observation *seen) {
  colli_trace_items *items = &trace->items;
  trace->missing++;
  if (!trace->missed_at) {
    colli_packet instant;
    colli_trace_begin_event(&instant, INSTANT, items->track);
    colli_packet_text(&instant, EVENT_CATEGORIES, "coll");
    colli_packet_text(&instant, EVENT_NAME, "the trace is full: operations are missing");
    colli_trace_add_long(items, &instant, "missing");
    if (!colli_trace_write(items, &instant, time_of(trace, seen), COLLI_ITEM_ROOM))
      return;
    trace->missed_at = items->file.at + items->file.used - 2 * COLLI_LONG_BYTES - 1;
  }
  colli_packet_set_long(trace->missed_at, trace->missing);
}

/* An operation begins. */
static void begin_span(colli_trace *trace, const colli_observation *seen) {
  if (__builtin_expect(trace->free == 0, 0)) {
    miss_operation(trace, seen);
    return;
  }
  const int lane = __builtin_ctzll(trace->free);
  if (!colli_trace_begin(&trace->spans, &trace->items, lane, seen, time_of(trace, seen))) {
    miss_operation(trace, seen);
    return;
  }
  trace->open[lane] = (open_span){seen->exec->id, seen->number, colli_event_is_collective(seen)};
  trace->free &= ~(1ull << lane);
}

/* The lane of an operation in flight; -1: it is in none. */
static int find_lane(const colli_trace *trace, const colli_observation *seen) {
  for (uint64_t used = ~trace->free; used; used &= used - 1) {
    const int lane = __builtin_ctzll(used);
    const open_span *span = &trace->open[lane];
    if (span->number == seen->number && span->communicator == seen->exec->id &&
        span->collective == colli_event_is_collective(seen))
      return lane;
  }
  return -1;
}

/* It ends. */
static void end_span(colli_trace *trace, const colli_observation *seen) {
  const int lane = find_lane(trace, seen);
  if (lane < 0)
    return;
  colli_trace_finish(&trace->spans, &trace->items, lane, seen->status, time_of(trace, seen));
  trace->free |= 1ull << lane;
}

/* An event of any kind. */
static void take_event(void *ctx, const colli_observation *seen) {
  colli_trace *trace = ctx;
  if (seen->kind == COLL_PROFILER_BEGIN) {
    begin_span(trace, seen);
  } else if (seen->kind == COLL_PROFILER_END) {
    end_span(trace, seen);
  } else {
    colli_packet instant;
    colli_trace_begin_event(&instant, INSTANT, trace->items.track);
    colli_trace_name_event(&trace->items, &instant, coll_status_name(seen->status));
    colli_trace_add_text(&trace->items, &instant, "message", seen->message);
    colli_trace_write(&trace->items, &instant, time_of(trace, seen), COLLI_TRACE_RESERVE);
  }
}

/* ---- clocks ---------------------------------------------------------------------------------- */

/* The time of day, less CLOCK_MONOTONIC. Takes the least disturbed of several readings. */
static uint64_t time_of_day_offset(void) {
  uint64_t offset_ns = 0, least_ns = UINT64_MAX;
  for (int i = 0; i < READINGS; i++) {
    struct timespec wall;
    const uint64_t before_ns = colli_now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    const uint64_t took_ns = colli_now_ns() - before_ns;
    if (took_ns >= least_ns)
      continue;
    least_ns = took_ns;
    offset_ns =
        (uint64_t)wall.tv_sec * COLLI_NS_PER_S + (uint64_t)wall.tv_nsec - before_ns - took_ns / 2;
  }
  return offset_ns;
}

/* ---- the whole ------------------------------------------------------------------------------- */

coll_status colli_trace_open(const char *path, size_t bytes, const colli_trace_source *source,
                             struct colli_observers *observers, colli_trace **out,
                             coll_error *error) {
  *out = NULL;
  if (!*path)
    return COLL_OK;
  colli_trace *trace = calloc(1, sizeof(*trace));
  if (!trace)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "create", "out of memory for a trace");
  colli_trace_items *items = &trace->items;
  coll_status status = colli_trace_file_open(&items->file, path, source->rank, bytes, error);
  if (status != COLL_OK) {
    free(trace);
    return status;
  }
  /* Files of all ranks, and of several communicators, may be put together. */
  uint64_t mixed = (source->comm_id ^ (uint64_t)source->rank << 32) * 0x9e3779b97f4a7c15ull;
  items->track = mixed & ~(uint64_t)0xff;
  items->sequence = (uint32_t)(mixed >> 32) | 1u;
  trace->free = ~0ull;
  trace->time = source->time->zero_ns ? *source->time : colli_trace_time(NULL);
  colli_trace_clock_start(&trace->clock, colli_trace_clock_counts());
  char name[160];
  snprintf(name, sizeof(name), "rank %d of %d (host %s, pid %d)", source->rank, source->nranks,
           source->host, (int)getpid());
  colli_trace_describe(items, items->track, 0, name);
  COLLI_ASSERT_RANK(observers->count < COLLI_OBSERVERS, source->rank);
  observers->at[observers->count++] = (colli_observer){take_event, trace};
  *out = trace;
  return COLL_OK;
}

colli_shared_time colli_trace_time(const colli_trace *trace) {
  return trace ? trace->time : (colli_shared_time){.zero_ns = time_of_day_offset()};
}

void colli_trace_set_time(colli_trace *trace, const colli_shared_time *time) {
  if (!trace)
    return;
  colli_trace_items *items = &trace->items;
  colli_packet instant;
  colli_trace_begin_event(&instant, INSTANT, items->track);
  if (time->zero_ns) {
    trace->time = *time;
    colli_trace_name_event(items, &instant, "shared clock");
    colli_trace_add_signed(items, &instant, "offset_ns", time->offset_ns);
    colli_trace_add_number(items, &instant, "error_ns", time->error_ns);
  } else {
    colli_trace_name_event(items, &instant, "clock of this host");
  }
  colli_trace_write(items, &instant, trace->time.zero_ns + colli_now_ns(), COLLI_TRACE_RESERVE);
}

void colli_trace_close(colli_trace *trace) {
  if (!trace)
    return;
  colli_trace_file_close(&trace->items.file);
  free(trace);
}
