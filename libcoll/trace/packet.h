/*
 * packet.h: encodes packets of a Perfetto trace (protobuf). Only what libcoll writes; names and
 * numbers of fields are those of Perfetto's trace_packet.proto, track_event.proto,
 * track_descriptor.proto and debug_annotation.proto. A trace is a sequence of packets, so files of
 * several ranks can be concatenated.
 */
#ifndef COLLI_TRACE_PACKET_H
#define COLLI_TRACE_PACKET_H

#include <stddef.h>
#include <stdint.h>

/* Fields, and values of TrackEvent.type. */
enum {
  PACKET_TIMESTAMP = 8,
  PACKET_SEQUENCE_ID = 10,
  PACKET_TRACK_EVENT = 11,
  PACKET_TRACK_DESCRIPTOR = 60,
  DESCRIPTOR_UUID = 1,
  DESCRIPTOR_NAME = 2,
  DESCRIPTOR_PARENT_UUID = 5,
  EVENT_DEBUG_ANNOTATIONS = 4,
  EVENT_TYPE = 9,
  EVENT_TRACK_UUID = 11,
  EVENT_CATEGORIES = 22,
  EVENT_NAME = 23,
  ANNOTATION_UINT = 3,
  ANNOTATION_STRING = 6,
  ANNOTATION_NAME = 10,
  SLICE_BEGIN = 1,
  SLICE_END = 2,
  INSTANT = 3
};

#define COLLI_PACKET_MAX 1536 /* bytes of a packet; strings are cut so that they fit */

/* A message under construction; its maker sets `used` to 0. Not with an initialiser, which would
 * clear all bytes. */
typedef struct colli_packet {
  size_t used;
  uint8_t bytes[COLLI_PACKET_MAX];
} colli_packet;

/* Adds a field that is a number. */
void colli_packet_number(colli_packet *packet, unsigned field, uint64_t number);

/* Adds a field that is a text; at most 700 bytes of it. */
void colli_packet_text(colli_packet *packet, unsigned field, const char *text);

/* Adds a field that is another message, and ends that message. */
void colli_packet_message(colli_packet *packet, unsigned field, const colli_packet *inner);

/* Adds all fields of another packet. */
void colli_packet_append(colli_packet *packet, const colli_packet *more);

/* Writes a packet as an item of a trace to `to`, which has room for 6 bytes more than the packet;
 * returns how many bytes that took. */
size_t colli_packet_write(uint8_t *to, const colli_packet *packet);

#define COLLI_PADDING_BYTES 13 /* the least that can be filled */

/* Fills `bytes` bytes with a packet that readers skip; the part behind its head stays as it is. */
void colli_packet_pad(uint8_t *to, size_t bytes);

#endif
