/*
 * trace_items.h: the items of one rank's trace: tracks, texts with numbers, events. Texts that
 * repeat are written once and then go by number, so that a span takes less space, and less time to
 * write.
 */
#ifndef COLLI_TRACE_TRACE_ITEMS_H
#define COLLI_TRACE_TRACE_ITEMS_H

#include "libcoll/trace/trace_file.h"

#define COLLI_TRACE_TEXTS 128 /* that have a number */
#define COLLI_TRACE_TEXT  24  /* bytes of one, with the end */

/* Room in a file that only what must follow other items may take. */
#define COLLI_TRACE_RESERVE 4096

typedef struct colli_trace_text {
  unsigned kind; /* INTERNED_NAME ... */
  char text[COLLI_TRACE_TEXT];
} colli_trace_text;

/* Where items go, and what they have in common. */
typedef struct colli_trace_items {
  colli_trace_file file;
  uint64_t track; /* of the rank; that of lane l is track + 1 + l */
  uint32_t sequence;
  bool begun; /* something was written */
  int ntexts;
  colli_trace_text texts[COLLI_TRACE_TEXTS]; /* number i + 1 */
} colli_trace_items;

/* Names a track; parent 0: it has none. False if the file is full, as for all of these. */
bool colli_trace_describe(colli_trace_items *items, uint64_t track, uint64_t parent,
                          const char *name);

/* Begins a track event: SLICE_BEGIN, SLICE_END or INSTANT. */
void colli_trace_begin_event(colli_packet *event, int type, uint64_t track);

/* Names it. */
void colli_trace_name_event(colli_trace_items *items, colli_packet *event, const char *name);

/* Adds a named number, one that may be negative, one to be set later, a named text. */
void colli_trace_add_number(colli_trace_items *items, colli_packet *event, const char *name,
                            uint64_t number);
void colli_trace_add_signed(colli_trace_items *items, colli_packet *event, const char *name,
                            int64_t number);
void colli_trace_add_long(colli_trace_items *items, colli_packet *event, const char *name);
void colli_trace_add_text(colli_trace_items *items, colli_packet *event, const char *name,
                          const char *text);

/* Makes an item of an event, with a time to be set. */
void colli_trace_wrap(const colli_trace_items *items, const colli_packet *event,
                      colli_packet *item);

/* Writes an event. */
bool colli_trace_write(colli_trace_items *items, const colli_packet *event, uint64_t time_ns,
                       size_t reserve);

#endif
