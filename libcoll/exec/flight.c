/* flight.c: writes and reads the flight record. */
#include "libcoll/exec/flight.h"

#include <string.h>

void colli_flights_init(colli_flights *flights, colli_flight_rings *rings,
                        uint64_t (*clock)(void *), void *clock_ctx) {
  flights->rings = rings;
  flights->clock = clock;
  flights->clock_ctx = clock_ctx;
  flights->start_ns = colli_now_ns();
  flights->start_ticks = colli_flight_ticks(flights);
}

uint64_t colli_flight_age_ns(const colli_flights *flights, uint64_t ticks) {
  uint64_t now = colli_flight_ticks(flights);
  uint64_t age = now > ticks ? now - ticks : 0;
  if (flights->clock || now <= flights->start_ticks)
    return age;
  double ns_a_tick =
      (double)(colli_now_ns() - flights->start_ns) / (double)(now - flights->start_ticks);
  return (uint64_t)((double)age * ns_a_tick);
}

int colli_flight_keep_name(colli_flights *flights, const char *name) {
  const int kept = flights->replaced ^= 1;
  memset(flights->padded[kept], 0, sizeof(flights->padded[kept]));
  for (int i = 0; i < COLLI_FLIGHT_NAME - 1 && name[i]; i++)
    flights->padded[kept][i] = name[i];
  flights->names[kept] = name;
  return kept;
}

/* The one of a ring that ended last, if it did so after `best`. */
static const colli_flight *later_of(const colli_flight *ring, const colli_flight *best) {
  for (int i = 0; i < COLLI_FLIGHTS; i++)
    if (ring[i].ended > (best ? best->ended : 0) ||
        (best && ring[i].ended == best->ended && ring[i].number > best->number))
      best = &ring[i];
  return best;
}

const colli_flight *colli_flight_last_ended(const colli_flights *flights) {
  return later_of(flights->rings->messages, later_of(flights->rings->collectives, NULL));
}
