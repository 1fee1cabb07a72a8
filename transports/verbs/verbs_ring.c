/* verbs_ring.c: sizes and initial states of rings, and checks of what arrives. */
#include "transports/verbs/verbs_ring.h"

#include <string.h>

#include "libcoll/base/assert.h"

/* How many units a message of a whole slot takes at most, short or long. */
static uint64_t slot_units(size_t slot_bytes) {
  return slot_bytes / VERBS_UNIT + 1 + VERBS_PAGE_UNITS;
}

uint32_t verbs_ring_units(size_t slot_bytes, unsigned slot_count) {
  /* One slot more is what may be skipped at the end. */
  uint64_t slots = (uint64_t)slot_count + VERBS_OWE_SLOTS + 1;
  uint64_t units = slots * slot_units(slot_bytes);
  units = (units + VERBS_PAGE_UNITS - 1) / VERBS_PAGE_UNITS * VERBS_PAGE_UNITS;
  bool counts = slot_count > 0 && slot_count + VERBS_OWE_COUNT <= VERBS_MESSAGES;
  uint64_t oldest =
      units + VERBS_SENDS * slot_units(slot_bytes); /* credit, see verbs_tx_credit() */
  return counts && oldest <= VERBS_IMM_UNITS / 2 ? (uint32_t)units : 0;
}

void verbs_tx_init(verbs_tx *tx, uint32_t units) {
  memset(tx, 0, sizeof(*tx));
  tx->units = units;
}

void verbs_rx_init(verbs_rx *rx, uint32_t units, size_t slot_bytes, verbs_mark mark) {
  memset(rx, 0, sizeof(*rx));
  rx->mark = mark;
  rx->units = units;
  rx->owe_units = (uint32_t)(VERBS_OWE_SLOTS * slot_units(slot_bytes));
}

bool verbs_rx_arrived(verbs_rx *rx, size_t bytes, bool tagged, size_t slot_bytes) {
  size_t tag_bytes = tagged ? sizeof(coll_tag) : 0;
  if (bytes < tag_bytes || bytes - tag_bytes > slot_bytes ||
      rx->arrived - rx->taken - rx->placed >= VERBS_MESSAGES || (rx->arrived == 0 && !tagged))
    return false;
  uint32_t payload = (uint32_t)(bytes - tag_bytes);
  verbs_place place = verbs_ring_place(rx->at, rx->units, payload);
  COLLI_ASSERT(place.end <= rx->units && rx->taken + rx->placed <= rx->arrived);
  rx->arrival[rx->arrived++ % VERBS_ARRIVALS] =
      (verbs_arrival){.bytes = payload,
                      .moved = place.moved,
                      .payload = (size_t)place.first * VERBS_UNIT,
                      .tag_words = tagged ? 3 : 0};
  rx->at = place.end;
  return true;
}

bool verbs_rx_placed(verbs_rx *rx, size_t bytes, void *target, const coll_tag *tag, bool in_ring) {
  verbs_place place = {.end = rx->at};
  if (in_ring)
    place = verbs_ring_place(rx->at, rx->units, bytes);
  if (in_ring ? rx->arrived - rx->taken - rx->placed >= VERBS_MESSAGES : rx->placed >= VERBS_PLACED)
    return false;
  rx->placed += !in_ring;
  rx->targets++;
  rx->at = place.end;
  rx->arrival[rx->arrived++ % VERBS_ARRIVALS] =
      (verbs_arrival){.bytes = (uint32_t)bytes, .moved = place.moved, .target = target, .tag = tag};
  return true;
}
