/*
 * flight.h: the flight record: the last operations of a communicator, when they began and how they
 * ended. It is always kept. Two rings, because the number of a collective is the same on all ranks
 * and that of a point-to-point operation is not. Times are read from the processor's counter, which
 * needs no system call; only a reader converts them to seconds.
 */
#ifndef COLLI_EXEC_FLIGHT_H
#define COLLI_EXEC_FLIGHT_H

#include <string.h>

#include "libcoll/base/clock.h"
#include "libcoll/base/copy.h"
#include "libcoll/exec/op.h"

#define COLLI_FLIGHTS     64 /* collectives, and as many point-to-point operations */
#define COLLI_FLIGHT_NAME 16

/* One operation. */
typedef struct colli_flight {
  coll_tag tag;
  uint64_t number; /* of a collective: its sequence number; counts from 1 */
  uint64_t begun;  /* ticks */
  uint64_t ended;  /* ticks; 0: in flight */
  uint64_t unused; /* makes it a cache line */
  int32_t peer;    /* point-to-point: the first rank that it is about, or COLL_ANY_SOURCE */
  int32_t status;  /* coll_status */
} colli_flight;

/* The record itself. Other processes read it (libcoll/status), so there are no pointers in it. */
typedef struct colli_flight_rings {
  colli_flight collectives[COLLI_FLIGHTS];      /* number n is at n % COLLI_FLIGHTS */
  colli_flight messages[COLLI_FLIGHTS];         /* point-to-point and one-sided */
  char names[COLLI_FLIGHTS][COLLI_FLIGHT_NAME]; /* of those: "send", ... */
  uint64_t last;                                /* number of the last collective that began */
  uint64_t nmessages;
} colli_flight_rings;

typedef struct colli_flights {
  colli_flight_rings *rings;    /* the owner's */
  uint64_t (*clock)(void *ctx); /* counts the ticks instead of the processor; or NULL */
  void *clock_ctx;
  uint64_t start_ticks, start_ns;    /* one moment in ticks and on the clock */
  const char *names[2];              /* of two messages that began, constants; or NULL, */
  char padded[2][COLLI_FLIGHT_NAME]; /* and copies of them, padded with 0 */
  int replaced;                      /* the one of the two that was made last */
} colli_flights;

/* Sets where the record is kept, and the clock: NULL for the processor's counter, or one of
 * nanoseconds. */
void colli_flights_init(colli_flights *flights, colli_flight_rings *rings,
                        uint64_t (*clock)(void *), void *clock_ctx);

/* Nanoseconds since a moment given in ticks. */
uint64_t colli_flight_age_ns(const colli_flights *flights, uint64_t ticks);

/* The operation that ended last, or NULL. */
const colli_flight *colli_flight_last_ended(const colli_flights *flights);

/* The collective with that number, or NULL if it is not among the last ones. */
static inline const colli_flight *colli_flight_of(const colli_flights *flights, uint64_t number) {
  const colli_flight *flight = &flights->rings->collectives[number % COLLI_FLIGHTS];
  return number && flight->number == number ? flight : NULL;
}

static inline uint64_t colli_flight_ticks(const colli_flights *flights) {
  if (__builtin_expect(flights->clock != NULL, 0))
    return flights->clock(flights->clock_ctx) + 1; /* never 0 */
  return colli_ticks();
}

/* Makes the padded copy of a name, instead of the older of the two; returns where it is. */
__attribute__((cold)) int colli_flight_keep_name(colli_flights *flights, const char *name);

/* The next place for a point-to-point operation, with what is known of it when it begins. */
static inline colli_flight *colli_flight_next(colli_flights *flights, const coll_tag *tag, int peer,
                                              const char *name) {
  colli_flight_rings *rings = flights->rings;
  const uint64_t number = ++rings->nmessages;
  colli_flight *flight = &rings->messages[number % COLLI_FLIGHTS];
  int kept = name == flights->names[1]; /* programs often send and receive alternately */
  if (__builtin_expect(name != flights->names[kept], 0))
    kept = colli_flight_keep_name(flights, name);
  memcpy(rings->names[number % COLLI_FLIGHTS], flights->padded[kept], COLLI_FLIGHT_NAME);
  colli_copy_tag(&flight->tag, tag);
  flight->number = number;
  flight->begun = colli_flight_ticks(flights);
  flight->peer = peer;
  return flight;
}

/* A point-to-point operation begins. */
static inline void colli_flight_message_begins(colli_flights *flights, coll_request *op) {
  colli_flight *flight = colli_flight_next(flights, &op->tag, op->partner, op->name);
  flight->ended = 0;
  flight->status = COLL_OK;
  op->flight = flight->number;
  op->record = flight;
}

/* An operation begins. */
__attribute__((always_inline)) static inline void colli_flight_begins(colli_flights *flights,
                                                                      coll_request *op) {
  if (op->coll == COLLI_SENDRECV) {
    colli_flight_message_begins(flights, op);
    return;
  }
  colli_flight_rings *rings = flights->rings;
  colli_flight *flight = &rings->collectives[op->sequence % COLLI_FLIGHTS];
  colli_copy_tag(&flight->tag, &op->tag);
  flight->number = rings->last = op->sequence;
  flight->begun = colli_flight_ticks(flights);
  flight->ended = 0;
  op->record = flight;
}

/* Whether a place in the record is still that of an operation. */
static inline bool colli_flight_is_of(const colli_flight *flight, const coll_request *op) {
  return flight->number == (op->coll == COLLI_SENDRECV ? op->flight : op->sequence);
}

/* An operation ends. Others that began later may have taken its place in the record. */
__attribute__((always_inline)) static inline void
colli_flight_ends(const colli_flights *flights, const coll_request *op, coll_status status) {
  colli_flight *flight = op->record;
  if (!colli_flight_is_of(flight, op))
    return;
  flight->ended = colli_flight_ticks(flights);
  flight->status = status;
}

/* A point-to-point operation began and ended at once. name: a constant. */
static inline void colli_flight_message_ran(colli_flights *flights, const coll_tag *tag, int peer,
                                            const char *name) {
  colli_flight *flight = colli_flight_next(flights, tag, peer, name);
  flight->ended = flight->begun;
  flight->status = COLL_OK;
}

/* A collective, the last one that began, began and ended at once on the fast path. */
__attribute__((always_inline)) static inline void
colli_flight_ran(colli_flights *flights, const coll_tag *tag, uint64_t number) {
  colli_flight *flight = &flights->rings->collectives[number % COLLI_FLIGHTS];
  uint64_t now = colli_flight_ticks(flights);
  colli_copy_tag(&flight->tag, tag);
  flight->number = number;
  flight->begun = flight->ended = now;
  flight->status = COLL_OK;
}

#endif
