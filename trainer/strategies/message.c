/* message.c: messages between two ranks, whose bytes and time are counted, and memory for them. */
#include "trainer/strategies/message.h"

#include "trainer/clock.h"

void *message_memory(worker *w, size_t bytes, const char *doing, fail *why) {
  void *memory = NULL;
  coll_status status = coll_mem_alloc(w->comm, bytes, &memory);
  if (status == COLL_OK)
    return memory;
  fail_coll(why, w->comm, status, doing);
  return NULL;
}

bool message_finish(worker *w, coll_status status, coll_request **request, const char *doing,
                    fail *why) {
  return status == COLL_OK ? worker_wait(w, request, doing, why)
                           : fail_coll(why, w->comm, status, doing);
}

bool message_start(worker *w, const void *data, size_t bytes, int to, int tag,
                   coll_request **request, fail *why) {
  coll_status status = coll_isend(data, bytes, COLL_UINT8, to, tag, w->comm, request);
  w->sums.sent_bytes += (double)bytes;
  return status == COLL_OK || fail_coll(why, w->comm, status, "sending to another rank");
}

bool message_send(worker *w, const void *data, size_t bytes, int to, int tag, fail *why) {
  double begin = clock_s();
  coll_status status = coll_send(data, bytes, COLL_UINT8, to, tag, w->comm);
  w->sums.waited_s += clock_s() - begin;
  w->sums.sent_bytes += (double)bytes;
  return status == COLL_OK || fail_coll(why, w->comm, status, "sending to another rank");
}

bool message_receive(worker *w, void *data, size_t bytes, int from, int tag, int *source,
                     fail *why) {
  double begin = clock_s();
  coll_message got = {.source = from};
  coll_status status = coll_recv(data, bytes, COLL_UINT8, from, tag, &got, w->comm);
  w->sums.waited_s += clock_s() - begin;
  if (source)
    *source = got.source;
  return status == COLL_OK || fail_coll(why, w->comm, status, "receiving from another rank");
}
