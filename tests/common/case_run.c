/* case_run.c: runs several cases together, as their form says. */
#include <stdio.h>

#include "case.h"

/* Starts all persistent requests and waits for them; again where that changes nothing. */
static coll_status run_persistent(const test_case *c, coll_request **open, int count) {
  coll_status status = COLL_OK;
  for (int turn = 0; turn < (c->in_place ? 1 : 2); turn++) {
    for (int i = 0; i < count && status == COLL_OK; i++)
      status = coll_start(open[i]);
    for (int i = 0; i < count && status == COLL_OK; i++)
      status = coll_wait(&open[i], -1);
  }
  for (int i = 0; i < count; i++)
    if (open[i])
      coll_request_free(&open[i]);
  return status;
}

static bool is_grouped(const test_case *c) {
  return c->form == CASE_GROUPED || c->form == CASE_STREAMED_GROUP;
}

/* Completes calls of one form that have been made. */
static coll_status complete(coll_comm *comm, const test_case *c, coll_request **open, int count) {
  coll_status status = COLL_OK;
  if (is_grouped(c))
    status = coll_group_end(comm);
  if (c->form >= CASE_STREAMED && status == COLL_OK) {
    c->device->await(c->stream);
    status = coll_comm_async_error(comm);
  }
  if (c->form == CASE_PERSISTENT)
    return run_persistent(c, open, count);
  for (int i = 0; c->form == CASE_NONBLOCKING && i < count && status == COLL_OK; i++)
    status = coll_wait(&open[i], -1);
  return status;
}

int case_try(coll_comm *comm, int rank, int nranks, const test_case *cases, int count,
             coll_status *result) {
  case_state *states[CASE_MAX_AT_ONCE] = {NULL};
  coll_request *open[CASE_MAX_AT_ONCE] = {NULL};
  int made = 0, wrong = 0;
  coll_status status = is_grouped(cases) ? coll_group_start(comm) : COLL_OK;
  for (; made < count && status == COLL_OK; made++)
    status = case_begin(comm, rank, nranks, &cases[made], &states[made], &open[made]);
  if (status == COLL_OK)
    status = complete(comm, cases, open, count);
  for (int i = 0; i < made; i++)
    wrong |= case_end(states[i], status == COLL_OK);
  *result = status;
  return wrong;
}

int case_run(coll_comm *comm, int rank, int nranks, const test_case *cases, int count) {
  coll_status status;
  int wrong = case_try(comm, rank, nranks, cases, count, &status);
  if (status != COLL_OK) {
    coll_error error = COLL_ERROR_INIT;
    char text[160];
    coll_last_error(comm, &error);
    fprintf(stderr, "rank %d: %d from %s: %s: %s\n", rank, count, case_text(cases, nranks, text),
            coll_status_name(status), error.message);
  }
  return wrong || status != COLL_OK;
}
