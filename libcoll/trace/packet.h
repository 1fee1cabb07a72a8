/*
 * packet.h: encodes packets of a Perfetto trace (protobuf). Only what libcoll writes; names and
 * numbers of fields are those of Perfetto's trace_packet.proto, track_event.proto,
 * track_descriptor.proto, interned_data.proto and debug_annotation.proto. A trace is a sequence of
 * packets, so files of several ranks can be concatenated.
 */
#ifndef COLLI_TRACE_PACKET_H
#define COLLI_TRACE_PACKET_H

#include <endian.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

/* Fields, and values of TrackEvent.type. */
enum {
  PACKET_TIMESTAMP = 8,
  PACKET_SEQUENCE_ID = 10,
  PACKET_TRACK_EVENT = 11,
  PACKET_INTERNED_DATA = 12,
  PACKET_SEQUENCE_FLAGS = 13,
  PACKET_TRACK_DESCRIPTOR = 60,
  SEQUENCE_CLEARED = 1, /* no text has a number yet */
  SEQUENCE_NEEDS = 2,   /* texts of earlier packets are used */
  INTERNED_CATEGORY = 1,
  INTERNED_NAME = 2,
  INTERNED_ANNOTATION = 3,
  INTERNED_STRING = 29,
  INTERNED_IID = 1, /* of each entry of these, with its text */
  INTERNED_TEXT = 2,
  DESCRIPTOR_UUID = 1,
  DESCRIPTOR_NAME = 2,
  DESCRIPTOR_PARENT_UUID = 5,
  EVENT_CATEGORY_IIDS = 3,
  EVENT_DEBUG_ANNOTATIONS = 4,
  EVENT_TYPE = 9,
  EVENT_NAME_IID = 10,
  EVENT_TRACK_UUID = 11,
  EVENT_CATEGORIES = 22,
  EVENT_NAME = 23,
  ANNOTATION_NAME_IID = 1,
  ANNOTATION_UINT = 3,
  ANNOTATION_INT = 4,
  ANNOTATION_STRING = 6,
  ANNOTATION_NAME = 10,
  ANNOTATION_STRING_IID = 17,
  SLICE_BEGIN = 1,
  SLICE_END = 2,
  INSTANT = 3
};

#define COLLI_TRACE_PACKET 0x0a /* field 1 of a trace: a packet */

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

/* Adds a field that is a number of COLLI_LONG_BYTES bytes, 0 for now, which colli_packet_set_long()
 * sets later. */
void colli_packet_long(colli_packet *packet, unsigned field);

/* The most that the head of an item of a trace takes. */
#define COLLI_HEAD_BYTES 6

/* Puts the head of an item in front of a packet: a whole item of a trace. */
void colli_packet_wrap(colli_packet *item, const colli_packet *packet);

#define COLLI_PADDING_BYTES 14 /* the least that can be filled */
#define COLLI_LONG_BYTES    9
#define COLLI_LONG_MOST     (UINT64_MAX >> 1)

/* The lower 56 bits of a number, 7 in each byte. */
static inline uint64_t colli_packet_spread(uint64_t n) {
  n = (n & 0x000000000fffffffull) | (n & 0x00fffffff0000000ull) << 4;
  n = (n & 0x00003fff00003fffull) | (n & 0x0fffc0000fffc000ull) << 2;
  return (n & 0x007f007f007f007full) | (n & 0x3f803f803f803f80ull) << 1;
}

/* Writes a number of at most COLLI_LONG_MOST in COLLI_LONG_BYTES bytes. */
static inline void colli_packet_set_long(uint8_t *to, uint64_t number) {
  const uint64_t low = htole64(colli_packet_spread(number) | 0x8080808080808080ull);
  memcpy(to, &low, sizeof(low));
  to[8] = (uint8_t)(number >> 56);
}

/* Writes a number of at most 35 bits in 5 bytes. */
static inline void colli_packet_set_5(uint8_t *to, uint64_t number) {
  const uint64_t bytes = htole64(colli_packet_spread(number) | 0x0080808080ull);
  memcpy(to, &bytes, 5);
}

/* Fills `bytes` bytes, at least COLLI_PADDING_BYTES, with a packet that readers skip; the part
 * behind its head stays as it is. */
static inline void colli_packet_pad(uint8_t *to, size_t bytes) {
  static const uint8_t unknown[] = {0xfa, 0xff, 0x07}; /* field 16383, bytes: no packet has it */
  to[0] = COLLI_TRACE_PACKET;
  colli_packet_set_5(to + 1, bytes - 6);
  memcpy(to + 6, unknown, sizeof(unknown));
  colli_packet_set_5(to + 9, bytes - COLLI_PADDING_BYTES);
}

#endif
