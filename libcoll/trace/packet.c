/* packet.c: protobuf, as far as traces need it. */
#include "libcoll/trace/packet.h"

#include <string.h>

#include "libcoll/base/assert.h"

#define TEXT_MAX      700
#define TRACE_PACKET  0x0a  /* field 1 of a trace: a packet */
#define UNKNOWN_FIELD 16383 /* no packet has it, so readers skip it */
#define BYTES_TYPE    2u    /* a field of bytes: its length, and they */
#define LONG_NUMBER   5     /* bytes of a number that is not shortened */

/* Writes a number, 7 bits a byte, the lowest first; the top bit says that more follow. */
static size_t put_number(uint8_t *to, uint64_t number) {
  size_t used = 0;
  for (; number >= 0x80; number >>= 7)
    to[used++] = (uint8_t)(number | 0x80);
  to[used++] = (uint8_t)number;
  return used;
}

/* The same in LONG_NUMBER bytes. */
static void put_long(uint8_t *to, uint64_t number) {
  for (int i = 0; i < LONG_NUMBER; i++, number >>= 7)
    to[i] = (uint8_t)((number & 0x7f) | (i < LONG_NUMBER - 1 ? 0x80 : 0));
}

/* Adds a field of bytes. */
static void add_bytes(colli_packet *packet, unsigned field, const void *bytes, size_t count) {
  COLLI_ASSERT(packet->used + count + 10 <= COLLI_PACKET_MAX);
  packet->used += put_number(packet->bytes + packet->used, field << 3 | BYTES_TYPE);
  packet->used += put_number(packet->bytes + packet->used, count);
  memcpy(packet->bytes + packet->used, bytes, count);
  packet->used += count;
}

void colli_packet_number(colli_packet *packet, unsigned field, uint64_t number) {
  COLLI_ASSERT(packet->used + 15 <= COLLI_PACKET_MAX);
  packet->used += put_number(packet->bytes + packet->used, field << 3);
  packet->used += put_number(packet->bytes + packet->used, number);
}

void colli_packet_text(colli_packet *packet, unsigned field, const char *text) {
  add_bytes(packet, field, text, strnlen(text, TEXT_MAX));
}

void colli_packet_message(colli_packet *packet, unsigned field, const colli_packet *inner) {
  add_bytes(packet, field, inner->bytes, inner->used);
}

void colli_packet_append(colli_packet *packet, const colli_packet *more) {
  COLLI_ASSERT(packet->used + more->used <= COLLI_PACKET_MAX);
  memcpy(packet->bytes + packet->used, more->bytes, more->used);
  packet->used += more->used;
}

size_t colli_packet_write(uint8_t *to, const colli_packet *packet) {
  to[0] = TRACE_PACKET;
  size_t used = 1 + put_number(to + 1, packet->used);
  memcpy(to + used, packet->bytes, packet->used);
  return used + packet->used;
}

void colli_packet_pad(uint8_t *to, size_t bytes) {
  uint8_t *at = to;
  COLLI_ASSERT(bytes >= COLLI_PADDING_BYTES);
  *at++ = TRACE_PACKET;
  put_long(at, bytes - 1 - LONG_NUMBER);
  at += LONG_NUMBER;
  at += put_number(at, (uint64_t)UNKNOWN_FIELD << 3 | BYTES_TYPE);
  put_long(at, bytes - (size_t)(at - to) - LONG_NUMBER);
}
