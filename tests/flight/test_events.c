/* test_events.c: observers are told of each operation's begin and end, also if more are in flight
 * than the flight record keeps. */
#include <coll/coll.h>
#include <criterion/criterion.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "libcoll/exec/event.h"

#define MESSAGES (3 * COLLI_FLIGHTS)

/* What a rank's observer has seen of its messages, by number. */
typedef struct seen {
  int begun[MESSAGES + 1], ended[MESSAGES + 1];
  coll_profiler_event first[MESSAGES + 1];
} seen;

static void note_event(void *ctx, const colli_observation *what) {
  seen *s = ctx;
  coll_profiler_event event;
  colli_event_describe(what, &event);
  if (event.collective || event.number > MESSAGES)
    return;
  if (event.kind == COLL_PROFILER_BEGIN) {
    s->begun[event.number]++;
    s->first[event.number] = event;
    return;
  }
  s->ended[event.number]++;
  const coll_profiler_event *first = &s->first[event.number];
  cr_expect_str_eq(event.operation, first->operation);
  cr_expect_eq(event.peer, first->peer);
  cr_expect_eq(event.count, first->count);
  cr_expect_eq(event.status, COLL_OK);
}

/* Completes the requests of both ranks, which one thread serves. */
static void complete(coll_request *requests[2][MESSAGES]) {
  const uint64_t deadline_ns = colli_now_ns() + 30 * COLLI_NS_PER_S;
  for (bool done = false; !done;) {
    done = true;
    for (int i = 0; i < 2 * MESSAGES; i++) {
      coll_request **request = &requests[i % 2][i / 2];
      const coll_status status = *request ? coll_test(request) : COLL_OK;
      cr_assert(status == COLL_OK || status == COLL_IN_PROGRESS, "message %d: %d", i / 2, status);
      done = done && status == COLL_OK;
    }
    cr_assert(colli_now_ns() < deadline_ns, "the messages do not arrive");
  }
}

Test(events, operations_end_that_the_flight_record_has_forgotten) {
  static seen saw[2];
  static int in[MESSAGES], out[MESSAGES];
  coll_request *requests[2][MESSAGES];
  coll_comm *comms[2];
  cr_assert_eq(coll_comm_create_local(comms, 2, NULL), COLL_OK);
  struct colli_observers observers[2];
  for (int rank = 0; rank < 2; rank++) {
    observers[rank] = (struct colli_observers){1, {{note_event, &saw[rank]}}};
    comms[rank]->exec.observers = &observers[rank];
  }
  for (int i = 0; i < MESSAGES; i++) {
    in[i] = i;
    cr_assert_eq(coll_irecv(&out[i], 1, COLL_INT32, 0, i, NULL, comms[1], &requests[1][i]),
                 COLL_OK);
  }
  for (int i = 0; i < MESSAGES; i++)
    cr_assert_eq(coll_isend(&in[i], 1, COLL_INT32, 1, i, comms[0], &requests[0][i]), COLL_OK);
  complete(requests);
  cr_expect_arr_eq(in, out, sizeof(in));
  for (int rank = 0; rank < 2; rank++)
    for (int number = 1; number <= MESSAGES; number++)
      cr_assert(saw[rank].begun[number] == 1 && saw[rank].ended[number] == 1,
                "rank %d, message %d: begun %d times, ended %d times", rank, number,
                saw[rank].begun[number], saw[rank].ended[number]);
  for (int rank = 0; rank < 2; rank++)
    coll_comm_destroy(&comms[rank]);
}
