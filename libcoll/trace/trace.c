/*
 * trace.c: turns events into packets. A rank has a track, and below it lanes: an operation takes
 * the lowest lane that is free, because the spans of one track must not overlap other than nested,
 * and nonblocking operations do.
 */
#include "libcoll/trace/trace.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/trace/packet.h"
#include "libcoll/trace/trace_file.h"

#define LANES    64
#define READINGS 5 /* of two clocks, to compare them */

/* An operation in flight. */
typedef struct open_span {
  uint64_t communicator, number;
  bool used, collective;
} open_span;

struct colli_trace {
  colli_trace_file file;
  uint64_t track; /* of the rank; that of lane l is track + 1 + l */
  uint32_t sequence;
  uint64_t wall_ns;   /* what is added to times of CLOCK_MONOTONIC */
  uint64_t missing;   /* operations that did not fit */
  uint64_t described; /* bit l: lane l has been named */
  open_span open[LANES];
  coll_profiler_event last; /* the operation that began last */
  colli_packet last_body;   /* what its span has in common with those of equal operations */
};

/* ---- packets --------------------------------------------------------------------------------- */

/* Room that is kept for the last packet, and for what must follow any packet. */
#define RESERVE (256 + COLLI_PADDING_BYTES)

/* Appends a packet; false if the file is full. */
static bool append(colli_trace *trace, const colli_packet *packet, size_t reserve) {
  colli_trace_file *file = &trace->file;
  if (file->used + packet->used + 6 + reserve > file->bytes)
    return false;
  file->used += colli_packet_write(file->at + file->used, packet);
  colli_packet_pad(file->at + file->used, file->bytes - file->used);
  return true;
}

/* Begins a packet. */
static void begin_packet(const colli_trace *trace, uint64_t time_ns, colli_packet *packet) {
  packet->used = 0;
  if (time_ns)
    colli_packet_number(packet, PACKET_TIMESTAMP, trace->wall_ns + time_ns);
  colli_packet_number(packet, PACKET_SEQUENCE_ID, trace->sequence);
}

/* Names a track. */
static bool describe(colli_trace *trace, uint64_t track, uint64_t parent, const char *name) {
  colli_packet packet, descriptor;
  descriptor.used = 0;
  begin_packet(trace, 0, &packet);
  colli_packet_number(&descriptor, DESCRIPTOR_UUID, track);
  colli_packet_text(&descriptor, DESCRIPTOR_NAME, name);
  if (parent)
    colli_packet_number(&descriptor, DESCRIPTOR_PARENT_UUID, parent);
  colli_packet_message(&packet, PACKET_TRACK_DESCRIPTOR, &descriptor);
  return append(trace, &packet, RESERVE);
}

/* Adds a named number to an event. */
static void annotate_number(colli_packet *event, const char *name, uint64_t number) {
  colli_packet annotation;
  annotation.used = 0;
  colli_packet_text(&annotation, ANNOTATION_NAME, name);
  colli_packet_number(&annotation, ANNOTATION_UINT, number);
  colli_packet_message(event, EVENT_DEBUG_ANNOTATIONS, &annotation);
}

/* Adds a named text. */
static void annotate_text(colli_packet *event, const char *name, const char *text) {
  colli_packet annotation;
  annotation.used = 0;
  colli_packet_text(&annotation, ANNOTATION_NAME, name);
  colli_packet_text(&annotation, ANNOTATION_STRING, text);
  colli_packet_message(event, EVENT_DEBUG_ANNOTATIONS, &annotation);
}

/* Begins a track event. */
static void begin_event(colli_packet *event, int type, uint64_t track) {
  event->used = 0;
  colli_packet_number(event, EVENT_TYPE, (uint64_t)type);
  colli_packet_number(event, EVENT_TRACK_UUID, track);
}

/* Names it. */
static void name_event(colli_packet *event, const char *name) {
  colli_packet_text(event, EVENT_CATEGORIES, "coll");
  colli_packet_text(event, EVENT_NAME, name);
}

/* Appends a track event. */
static bool append_event(colli_trace *trace, uint64_t time_ns, const colli_packet *event,
                         size_t reserve) {
  colli_packet packet;
  begin_packet(trace, time_ns, &packet);
  colli_packet_message(&packet, PACKET_TRACK_EVENT, event);
  return append(trace, &packet, reserve);
}

/* ---- events ---------------------------------------------------------------------------------- */

/* The lane of an operation in flight, or a free one for `event` NULL; -1: none. */
static int find_lane(const colli_trace *trace, const coll_profiler_event *event) {
  for (int lane = 0; lane < LANES; lane++) {
    const open_span *span = &trace->open[lane];
    if (!event ? !span->used
               : span->used && span->number == event->number &&
                     span->communicator == event->communicator &&
                     span->collective == (event->collective != 0))
      return lane;
  }
  return -1;
}

/* Names a lane when it is first used. */
static bool describe_lane(colli_trace *trace, int lane) {
  if (trace->described >> lane & 1u)
    return true;
  if (!describe(trace, trace->track + 1 + (uint64_t)lane, trace->track, "operations"))
    return false;
  trace->described |= 1ull << lane;
  return true;
}

/* Whether two operations differ in nothing but their numbers and times. Names are constants. */
static bool are_equal(const coll_profiler_event *a, const coll_profiler_event *b) {
  return a->operation == b->operation && a->type == b->type && a->op == b->op &&
         a->count == b->count && a->bytes == b->bytes && a->peer == b->peer &&
         a->communicator == b->communicator && a->collective == b->collective;
}

/* What the spans of equal operations have in common. Programs repeat operations, so it is encoded
 * once for all of a series. */
static const colli_packet *span_body(colli_trace *trace, const coll_profiler_event *event) {
  colli_packet *body = &trace->last_body;
  char communicator[24];
  if (are_equal(event, &trace->last))
    return body;
  trace->last = *event;
  body->used = 0;
  name_event(body, event->operation);
  snprintf(communicator, sizeof(communicator), "%016llx", (unsigned long long)event->communicator);
  annotate_text(body, "communicator", communicator);
  annotate_number(body, "count", event->count);
  annotate_number(body, "bytes", event->bytes);
  annotate_text(body, "type", event->type);
  if (*event->op)
    annotate_text(body, "op", event->op);
  if (event->peer >= 0)
    annotate_number(body, event->collective ? "root" : "peer", (uint64_t)event->peer);
  return body;
}

/* An operation begins. */
static void begin_span(colli_trace *trace, const coll_profiler_event *event) {
  int lane = find_lane(trace, NULL);
  colli_packet span;
  begin_event(&span, SLICE_BEGIN, trace->track + 1 + (uint64_t)lane);
  colli_packet_append(&span, span_body(trace, event));
  annotate_number(&span, "number", event->number);
  if (lane < 0 || !describe_lane(trace, lane) ||
      !append_event(trace, event->time_ns, &span, RESERVE)) {
    trace->missing++;
    return;
  }
  trace->open[lane] = (open_span){event->communicator, event->number, true, event->collective != 0};
}

/* It ends. */
static void end_span(colli_trace *trace, const coll_profiler_event *event) {
  int lane = find_lane(trace, event);
  if (lane < 0)
    return;
  colli_packet end;
  begin_event(&end, SLICE_END, trace->track + 1 + (uint64_t)lane);
  if (event->status != COLL_OK)
    annotate_text(&end, "status", coll_status_name(event->status));
  append_event(trace, event->time_ns, &end, RESERVE);
  trace->open[lane].used = false;
}

/* An event of any kind. */
static void take_event(void *ctx, const coll_profiler_event *event) {
  colli_trace *trace = ctx;
  if (event->kind == COLL_PROFILER_BEGIN) {
    begin_span(trace, event);
  } else if (event->kind == COLL_PROFILER_END) {
    end_span(trace, event);
  } else {
    colli_packet instant;
    begin_event(&instant, INSTANT, trace->track);
    name_event(&instant, coll_status_name(event->status));
    annotate_text(&instant, "message", event->message);
    append_event(trace, event->time_ns, &instant, RESERVE);
  }
}

/* The time of day, less CLOCK_MONOTONIC. Each host's CLOCK_MONOTONIC begins at another time, but
 * hosts agree on the time of day as well as they keep time (NTP, PTP). Takes the least disturbed of
 * several readings. */
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
  coll_status status = colli_trace_file_open(&trace->file, path, source->rank, bytes, error);
  if (status != COLL_OK) {
    free(trace);
    return status;
  }
  /* Files of all ranks, and of several communicators, may be put together. */
  uint64_t mixed = (source->comm_id ^ (uint64_t)source->rank << 32) * 0x9e3779b97f4a7c15ull;
  trace->track = mixed & ~(uint64_t)0xff;
  trace->sequence = (uint32_t)(mixed >> 32) | 1u;
  trace->wall_ns = time_of_day_offset();
  char name[160];
  snprintf(name, sizeof(name), "rank %d of %d (host %s, pid %d)", source->rank, source->nranks,
           source->host, (int)getpid());
  describe(trace, trace->track, 0, name);
  COLLI_ASSERT_RANK(observers->count < COLLI_OBSERVERS, source->rank);
  observers->at[observers->count++] = (colli_observer){take_event, trace};
  *out = trace;
  return COLL_OK;
}

void colli_trace_close(colli_trace *trace) {
  if (!trace)
    return;
  if (trace->missing) {
    colli_packet instant;
    begin_event(&instant, INSTANT, trace->track);
    name_event(&instant, "the trace is full: operations are missing");
    annotate_number(&instant, "missing", trace->missing);
    append_event(trace, colli_now_ns(), &instant, COLLI_PADDING_BYTES);
  }
  colli_trace_file_close(&trace->file);
  free(trace);
}
