/* windows.c: messages between two ranks: one at a time, or many in flight, as OSU's programs send
 * them. All messages of a window have the same buffers. */
#include <string.h>

#include "calls.h"

#define DATA_TAG  0
#define REPLY_TAG 1

/* The rank to which this one sends; -1: none. */
static int target(const perf_bench *b) {
  int other = b->rank ^ 1;
  if (b->options->pattern == PERF_RING)
    return (b->rank + 1) % b->nranks;
  return other < b->nranks && (b->options->pattern == PERF_BOTH || b->rank % 2 == 0) ? other : -1;
}

int perf_source(const perf_bench *b) {
  int other = b->rank ^ 1;
  if (b->options->pattern == PERF_RING)
    return (b->rank + b->nranks - 1) % b->nranks;
  return other < b->nranks && (b->options->pattern == PERF_BOTH || b->rank % 2 == 1) ? other : -1;
}

double perf_window_share(const perf_bench *b) {
  return b->options->window ? b->options->window : 1;
}

double perf_window_messages(const perf_bench *b) {
  int pairs = b->nranks / 2;
  double senders = b->options->pattern == PERF_RING    ? b->nranks
                   : b->options->pattern == PERF_PAIRS ? pairs
                                                       : 2 * pairs;
  return senders * perf_window_share(b);
}

/* Ends a window of one direction: its receiver answers with a word of a buffer that it does not use
 * otherwise, to one that the sender does not. */
static coll_status reply(const perf_bench *b, const char *send, char *recv) {
  if (target(b) >= 0)
    return coll_recv(recv, 1, COLL_INT32, target(b), REPLY_TAG, NULL, b->comm);
  return coll_send(send, 1, COLL_INT32, perf_source(b), REPLY_TAG, b->comm);
}

/* The same in a stream. */
static coll_status reply_on_stream(const perf_bench *b, const char *send, char *recv) {
  if (target(b) >= 0)
    return coll_recv_on_stream(recv, 1, COLL_INT32, target(b), REPLY_TAG, NULL, b->comm, b->stream);
  return coll_send_on_stream(send, 1, COLL_INT32, perf_source(b), REPLY_TAG, b->comm, b->stream);
}

/* Waits for all requests; the first error. */
static coll_status wait_all(coll_request **requests, int count, coll_status status) {
  for (int i = 0; i < count; i++) {
    coll_status ended = requests[i] ? coll_wait(&requests[i], -1) : COLL_OK;
    status = status == COLL_OK ? ended : status;
  }
  return status;
}

coll_status perf_run_window(const perf_bench *b, const char *send, char *recv) {
  int to = target(b), from = perf_source(b), count = 0;
  coll_type type = (coll_type)b->line->type;
  if (b->nranks == 1 && !b->options->device) {
    memcpy(recv, send, b->nsend * b->bytes);
    return COLL_OK;
  }
  if (b->options->window == 0 && to >= 0 && from >= 0)
    return coll_sendrecv(send, b->nsend, to, DATA_TAG, recv, b->nrecv, from, DATA_TAG, type, NULL,
                         b->comm);
  coll_request *requests[2 * PERF_WINDOW_MAX] = {NULL};
  coll_status status = COLL_OK;
  int window = b->options->window ? b->options->window : 1;
  for (int i = 0; i < window && from >= 0 && status == COLL_OK; i++)
    status = coll_irecv(recv, b->nrecv, type, from, DATA_TAG, NULL, b->comm, &requests[count++]);
  for (int i = 0; i < window && to >= 0 && status == COLL_OK; i++)
    status = coll_isend(send, b->nsend, type, to, DATA_TAG, b->comm, &requests[count++]);
  status = wait_all(requests, count, status);
  if (status == COLL_OK && b->options->pattern == PERF_PAIRS && count > 0)
    status = reply(b, send, recv);
  return status;
}

coll_status perf_run_window_on_stream(const perf_bench *b, const char *send, char *recv) {
  int to = target(b), from = perf_source(b);
  coll_type type = (coll_type)b->line->type;
  if (b->options->window == 0 && to >= 0 && from >= 0)
    return coll_sendrecv_on_stream(send, b->nsend, to, DATA_TAG, recv, b->nrecv, from, DATA_TAG,
                                   type, NULL, b->comm, b->stream);
  if (to < 0 && from < 0)
    return COLL_OK;
  int window = b->options->window ? b->options->window : 1;
  coll_status status = coll_group_start(b->comm);
  for (int i = 0; i < window && from >= 0 && status == COLL_OK; i++)
    status = coll_recv_on_stream(recv, b->nrecv, type, from, DATA_TAG, NULL, b->comm, b->stream);
  for (int i = 0; i < window && to >= 0 && status == COLL_OK; i++)
    status = coll_send_on_stream(send, b->nsend, type, to, DATA_TAG, b->comm, b->stream);
  coll_status ended = coll_group_end(b->comm);
  status = status == COLL_OK ? ended : status;
  if (status == COLL_OK && b->options->pattern == PERF_PAIRS)
    status = reply_on_stream(b, send, recv);
  return status;
}
