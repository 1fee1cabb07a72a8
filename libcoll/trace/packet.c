/* packet.c: protobuf, as far as traces need it. */
#include "libcoll/trace/packet.h"

#include <string.h>

#include "libcoll/base/assert.h"

#define TEXT_MAX   700
#define BYTES_TYPE 2u /* a field of bytes: its length, and they */

/* Writes a number, 7 bits a byte, the lowest first; the top bit says that more follow. */
static size_t put_number(uint8_t *to, uint64_t number) {
  size_t used = 0;
  for (; number >= 0x80; number >>= 7)
    to[used++] = (uint8_t)(number | 0x80);
  to[used++] = (uint8_t)number;
  return used;
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

void colli_packet_long(colli_packet *packet, unsigned field) {
  COLLI_ASSERT(packet->used + 5 + COLLI_LONG_BYTES <= COLLI_PACKET_MAX);
  packet->used += put_number(packet->bytes + packet->used, field << 3);
  colli_packet_set_long(packet->bytes + packet->used, 0);
  packet->used += COLLI_LONG_BYTES;
}

void colli_packet_wrap(colli_packet *item, const colli_packet *packet) {
  item->used = 0;
  add_bytes(item, COLLI_TRACE_PACKET >> 3, packet->bytes, packet->used);
}
