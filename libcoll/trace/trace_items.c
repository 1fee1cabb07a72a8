/* trace_items.c: makes items of a trace. */
#include "libcoll/trace/trace_items.h"

#include <stdio.h>

#include "libcoll/base/assert.h"

/* Begins a packet: all have a sequence, and the first says that no text has a number yet. */
static void begin_packet(const colli_trace_items *items, colli_packet *packet) {
  packet->used = 0;
  colli_packet_number(packet, PACKET_SEQUENCE_ID, items->sequence);
  colli_packet_number(packet, PACKET_SEQUENCE_FLAGS,
                      items->begun ? SEQUENCE_NEEDS : SEQUENCE_CLEARED);
}

/* Writes a packet without a time. */
static bool write_untimed(colli_trace_items *items, const colli_packet *packet) {
  colli_packet item;
  colli_packet_wrap(&item, packet);
  if (!colli_trace_file_put(&items->file, item.bytes, item.used, (colli_trace_values){0},
                            COLLI_TRACE_RESERVE))
    return false;
  items->begun = true;
  return true;
}

bool colli_trace_describe(colli_trace_items *items, uint64_t track, uint64_t parent,
                          const char *name) {
  colli_packet packet, descriptor;
  descriptor.used = 0;
  begin_packet(items, &packet);
  colli_packet_number(&descriptor, DESCRIPTOR_UUID, track);
  colli_packet_text(&descriptor, DESCRIPTOR_NAME, name);
  if (parent)
    colli_packet_number(&descriptor, DESCRIPTOR_PARENT_UUID, parent);
  colli_packet_message(&packet, PACKET_TRACK_DESCRIPTOR, &descriptor);
  return write_untimed(items, &packet);
}

/* Gives a text a number: false if the file is full. */
static bool write_text(colli_trace_items *items, unsigned kind, const char *text, unsigned number) {
  colli_packet packet, data, entry;
  entry.used = data.used = 0;
  begin_packet(items, &packet);
  colli_packet_number(&entry, INTERNED_IID, number);
  colli_packet_text(&entry, INTERNED_TEXT, text);
  colli_packet_message(&data, kind, &entry);
  colli_packet_message(&packet, PACKET_INTERNED_DATA, &data);
  return write_untimed(items, &packet);
}

/* The number of a text; 0: it has none, so the text itself has to be written. */
static unsigned number_of(colli_trace_items *items, unsigned kind, const char *text) {
  for (int i = 0; i < items->ntexts; i++)
    if (items->texts[i].kind == kind && strcmp(items->texts[i].text, text) == 0)
      return (unsigned)i + 1;
  if (items->ntexts == COLLI_TRACE_TEXTS || strlen(text) >= COLLI_TRACE_TEXT)
    return 0;
  colli_trace_text *known = &items->texts[items->ntexts];
  if (!write_text(items, kind, text, (unsigned)items->ntexts + 1))
    return 0;
  known->kind = kind;
  snprintf(known->text, sizeof(known->text), "%s", text);
  return (unsigned)++items->ntexts;
}

/* Adds a text by its number if it has one. */
static void add_text(colli_trace_items *items, colli_packet *to, unsigned kind, unsigned by_number,
                     unsigned itself, const char *text) {
  const unsigned number = number_of(items, kind, text);
  if (number)
    colli_packet_number(to, by_number, number);
  else
    colli_packet_text(to, itself, text);
}

/* Begins an annotation. */
static void begin_annotation(colli_trace_items *items, colli_packet *annotation, const char *name) {
  annotation->used = 0;
  add_text(items, annotation, INTERNED_ANNOTATION, ANNOTATION_NAME_IID, ANNOTATION_NAME, name);
}

void colli_trace_begin_event(colli_packet *event, int type, uint64_t track) {
  event->used = 0;
  colli_packet_number(event, EVENT_TYPE, (uint64_t)type);
  colli_packet_number(event, EVENT_TRACK_UUID, track);
}

void colli_trace_name_event(colli_trace_items *items, colli_packet *event, const char *name) {
  add_text(items, event, INTERNED_CATEGORY, EVENT_CATEGORY_IIDS, EVENT_CATEGORIES, "coll");
  add_text(items, event, INTERNED_NAME, EVENT_NAME_IID, EVENT_NAME, name);
}

void colli_trace_add_number(colli_trace_items *items, colli_packet *event, const char *name,
                            uint64_t number) {
  colli_packet annotation;
  begin_annotation(items, &annotation, name);
  colli_packet_number(&annotation, ANNOTATION_UINT, number);
  colli_packet_message(event, EVENT_DEBUG_ANNOTATIONS, &annotation);
}

void colli_trace_add_signed(colli_trace_items *items, colli_packet *event, const char *name,
                            int64_t number) {
  colli_packet annotation;
  begin_annotation(items, &annotation, name);
  colli_packet_number(&annotation, ANNOTATION_INT, (uint64_t)number);
  colli_packet_message(event, EVENT_DEBUG_ANNOTATIONS, &annotation);
}

void colli_trace_add_long(colli_trace_items *items, colli_packet *event, const char *name) {
  colli_packet annotation;
  begin_annotation(items, &annotation, name);
  colli_packet_long(&annotation, ANNOTATION_UINT);
  colli_packet_message(event, EVENT_DEBUG_ANNOTATIONS, &annotation);
}

void colli_trace_add_text(colli_trace_items *items, colli_packet *event, const char *name,
                          const char *text) {
  colli_packet annotation;
  begin_annotation(items, &annotation, name);
  add_text(items, &annotation, INTERNED_STRING, ANNOTATION_STRING_IID, ANNOTATION_STRING, text);
  colli_packet_message(event, EVENT_DEBUG_ANNOTATIONS, &annotation);
}

void colli_trace_wrap(const colli_trace_items *items, const colli_packet *event,
                      colli_packet *item) {
  colli_packet packet;
  COLLI_ASSERT(items->begun);
  begin_packet(items, &packet);
  colli_packet_message(&packet, PACKET_TRACK_EVENT, event);
  colli_packet_long(&packet, PACKET_TIMESTAMP);
  colli_packet_wrap(item, &packet);
}

bool colli_trace_write(colli_trace_items *items, const colli_packet *event, uint64_t time_ns,
                       size_t reserve) {
  colli_packet item;
  colli_trace_wrap(items, event, &item);
  return colli_trace_file_put(&items->file, item.bytes, item.used,
                              (colli_trace_values){.time_ns = time_ns}, reserve);
}
