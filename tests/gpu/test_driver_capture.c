/* test_driver_capture.c: the fake driver's capture of streams: what belongs to it, what it forbids.
 */
#include <criterion/criterion.h>
#include <pthread.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_capture, .timeout = 60);

/* What most of these tests work with: two streams, a captured one of them, and memory. */
typedef struct stage {
  use u;
  colli_cu_stream s, t;
  colli_cu_event event, other;
  uint32_t *m;
} stage;

static void begin_mode(stage *st, colli_cu_capture_mode mode) {
  use_start(&st->u);
  st->s = use_stream(&st->u);
  st->t = use_stream(&st->u);
  st->m = use_memory(&st->u, 8);
  OK(st->u.cuda.event_create(&st->event, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(st->u.cuda.event_create(&st->other, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(st->u.stream_begin_capture(st->s, mode));
}

static void begin(stage *st) {
  begin_mode(st, COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL);
}

static int status_of(stage *st, colli_cu_stream stream) {
  int status = 77;
  OK(st->u.cuda.stream_is_capturing(stream, &status));
  return status;
}

/* Ends the capture, which must give this error; then the stream is as before. */
static void ends(stage *st, colli_cu_result expected) {
  colli_cu_graph graph = (colli_cu_graph)1;
  cr_assert_eq(st->u.stream_end_capture(st->s, &graph), expected);
  cr_assert_eq(graph == NULL, expected != COLLI_CUDA_SUCCESS);
  cr_assert_eq(status_of(st, st->s), COLLI_CU_STREAM_CAPTURE_STATUS_NONE);
  OK(st->u.cuda.stream_query(st->s));
  if (graph)
    OK(st->u.graph_destroy(graph));
}

/* The same after a call that invalidated the capture. */
static void is_invalid(stage *st) {
  cr_assert_eq(status_of(st, st->s), COLLI_CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  cr_assert_eq(st->u.cuda.memset_d32_async(use_address(st->m), 1, 1, st->s),
               COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  ends(st, COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

Test(driver_capture, info) {
  stage st;
  int status;
  uint64_t id = 0, again = 0;
  colli_cu_graph graph = NULL, same = NULL;
  const colli_cu_graph_node *nodes;
  size_t count = 77;
  begin(&st);
  const colli_cuda *cuda = &st.u.cuda;
  OK(cuda->stream_get_capture_info(st.s, &status, &id, &graph, &nodes, &count));
  cr_assert(status == COLLI_CU_STREAM_CAPTURE_STATUS_ACTIVE && id && graph && !count);
  OK(cuda->memset_d32_async(use_address(st.m), 1, 1, st.s));
  OK(cuda->event_record(st.event, st.s));
  OK(cuda->memset_d32_async(use_address(st.m), 2, 1, st.s));
  OK(cuda->stream_get_capture_info(st.s, &status, NULL, NULL, &nodes, &count));
  cr_assert(count == 1 && nodes[0]);
  OK(cuda->stream_is_capturing(st.t, &status));
  cr_assert_eq(status, COLLI_CU_STREAM_CAPTURE_STATUS_NONE);
  OK(cuda->stream_wait_event(st.t, st.event, 0));
  OK(cuda->stream_get_capture_info(st.t, &status, &again, &same, NULL, &count));
  cr_assert(status == COLLI_CU_STREAM_CAPTURE_STATUS_ACTIVE && again == id && same == graph);
  OK(cuda->memset_d32_async(use_address(st.m + 1), 2, 1, st.t));
  OK(cuda->event_record(st.other, st.t));
  OK(cuda->stream_wait_event(st.s, st.other, 0));
  OK(cuda->stream_wait_event(st.s, st.other, 0));
  OK(cuda->stream_get_capture_info(st.s, &status, NULL, NULL, NULL, &count));
  cr_assert_eq(count, 2);
  cr_assert_eq(st.u.graph_destroy(graph), COLLI_CUDA_ERROR_INVALID_VALUE);
  ends(&st, COLLI_CUDA_SUCCESS);
  cr_assert_eq(status_of(&st, st.t), COLLI_CU_STREAM_CAPTURE_STATUS_NONE);
  OK(st.u.stream_begin_capture(st.s, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(cuda->stream_get_capture_info(st.s, &status, &again, NULL, NULL, &count));
  cr_assert(again != id && !count);
  OK(cuda->memset_d32_async(use_address(st.m), 1, 1, st.s));
  OK(cuda->event_record(st.event, st.s));
  OK(cuda->stream_wait_event(st.t, st.event, 0)); /* of this capture, not of the former one too */
  OK(cuda->stream_get_capture_info(st.t, &status, NULL, NULL, NULL, &count));
  cr_assert_eq(count, 1);
  cr_assert(st.m[0] == 0 && st.m[1] == 0);
}

Test(driver_capture, begin_and_end) {
  stage st;
  colli_cu_graph graph;
  begin(&st);
  cr_assert_eq(st.u.stream_begin_capture(st.s, 0), COLLI_CUDA_ERROR_ILLEGAL_STATE);
  cr_assert_eq(st.u.stream_begin_capture(st.t, 3), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(st.u.stream_begin_capture(NULL, 0), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cr_assert_eq(st.u.stream_end_capture(st.t, &graph), COLLI_CUDA_ERROR_ILLEGAL_STATE);
  ends(&st, COLLI_CUDA_SUCCESS);
}

Test(driver_capture, queries_and_waits) {
  stage st;
  begin(&st);
  cr_assert_eq(st.u.cuda.stream_query(st.s), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  is_invalid(&st);
  OK(st.u.stream_begin_capture(st.s, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED));
  cr_assert_eq(st.u.cuda.stream_synchronize(st.s), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  is_invalid(&st);
  OK(st.u.stream_begin_capture(st.s, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED));
  OK(st.u.cuda.stream_query(st.t)); /* not captured, and the mode allows it */
  OK(st.u.cuda.event_query(st.event));
  OK(st.u.cuda.event_record(st.event, st.s));
  cr_assert_eq(st.u.cuda.event_query(st.event), COLLI_CUDA_ERROR_CAPTURED_EVENT);
  is_invalid(&st);
  cr_assert_eq(st.u.cuda.event_synchronize(st.event), COLLI_CUDA_ERROR_CAPTURED_EVENT);
  cr_assert_eq(st.u.cuda.stream_wait_event(st.t, st.event, 0), COLLI_CUDA_ERROR_CAPTURED_EVENT);
  OK(st.u.cuda.event_record(st.event, st.t)); /* now it is an event as others */
  OK(st.u.cuda.event_synchronize(st.event));
  OK(st.u.cuda.stream_wait_event(st.s, st.event, 0));
  OK(st.u.stream_begin_capture(st.s, COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL));
  cr_assert_eq(st.u.cuda.stream_destroy(st.s), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  is_invalid(&st);
}

/* Calls that are potentially unsafe. */
static colli_cu_result allocates(stage *st) {
  colli_cu_deviceptr at;
  return st->u.cuda.mem_alloc(&at, 16);
}
static colli_cu_result pins(stage *st) {
  void *at;
  return st->u.cuda.mem_host_alloc(&at, 16, 0);
}
static colli_cu_result registers(stage *st) {
  static uint32_t own[4];
  return st->u.cuda.mem_host_register(own, sizeof(own), 0);
}
static colli_cu_result loads(stage *st) {
  return st->u.cuda.module_load(&st->u.module, use_text, 0, NULL, NULL);
}
static colli_cu_result queries(stage *st) {
  return st->u.cuda.event_query(st->event);
}
static colli_cu_result waits(stage *st) {
  return st->u.cuda.stream_synchronize(st->t);
}
static colli_cu_result (*const unsafe[])(stage *) = {allocates, pins,    registers,
                                                     loads,     queries, waits};
enum { UNSAFE = sizeof(unsafe) / sizeof(*unsafe) };

/* One of them in a thread of its own mode. */
typedef struct unsafe_call {
  stage *st;
  int index;
  colli_cu_capture_mode mode;
  colli_cu_result result;
} unsafe_call;

static void *call_unsafe(void *argument) {
  unsafe_call *call = argument;
  const colli_cuda *cuda = &call->st->u.cuda;
  OK(cuda->ctx_set_current(call->st->u.context));
  OK(cuda->exchange_capture_mode(&call->mode));
  call->result = unsafe[call->index](call->st);
  return NULL;
}

/* The result of a call, in this thread or another one, whose mode is `mine`, during a capture. */
static colli_cu_result during(stage *st, int index, bool other, colli_cu_capture_mode capture,
                              colli_cu_capture_mode mine) {
  unsafe_call call = {.st = st, .index = index, .mode = mine};
  pthread_t thread;
  OK(st->u.stream_begin_capture(st->s, capture));
  if (other) {
    cr_assert_eq(pthread_create(&thread, NULL, call_unsafe, &call), 0);
    cr_assert_eq(pthread_join(thread, NULL), 0);
  } else {
    call_unsafe(&call);
    OK(st->u.cuda.exchange_capture_mode(&call.mode));
    cr_assert_eq(call.mode, mine);
  }
  if (call.result == COLLI_CUDA_SUCCESS)
    ends(st, COLLI_CUDA_SUCCESS);
  else
    is_invalid(st);
  return call.result;
}

Test(driver_capture, unsafe_calls) {
  enum { GLOBAL, THREAD_LOCAL, RELAXED };
  /* [other thread][mode of the capture][mode of the thread]: as cuda.h says. */
  const bool forbidden[2][3][3] = {{{1, 1, 0}, {1, 1, 0}, {0, 0, 0}},
                                   {{1, 0, 0}, {0, 0, 0}, {0, 0, 0}}};
  stage st;
  begin(&st);
  ends(&st, COLLI_CUDA_SUCCESS);
  for (int other = 0; other < 2; other++)
    for (int capture = GLOBAL; capture <= RELAXED; capture++)
      for (int mine = GLOBAL; mine <= RELAXED; mine++)
        cr_assert_eq(during(&st, 0, other, capture, mine),
                     forbidden[other][capture][mine] ? COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
                                                     : COLLI_CUDA_SUCCESS,
                     "%d %d %d", other, capture, mine);
  for (int i = 1; i < UNSAFE; i++) {
    cr_assert_eq(during(&st, i, false, GLOBAL, GLOBAL), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED,
                 "%d", i);
    OK(during(&st, i, false, GLOBAL, RELAXED));
  }
  int mode = 3;
  cr_assert_eq(st.u.cuda.exchange_capture_mode(&mode), COLLI_CUDA_ERROR_INVALID_VALUE);
}

Test(driver_capture, default_stream) {
  stage st;
  int status;
  colli_cu_stream with;
  colli_cu_graph graph;
  begin(&st);
  OK(st.u.cuda.memset_d32_async(use_address(st.m), 1, 1, NULL)); /* s is apart */
  cr_assert_eq(status_of(&st, NULL), COLLI_CU_STREAM_CAPTURE_STATUS_NONE);
  ends(&st, COLLI_CUDA_SUCCESS);
  OK(st.u.cuda.stream_create(&with, 0, 0));
  OK(st.u.stream_begin_capture(with, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED));
  cr_assert_eq(st.u.cuda.stream_is_capturing(NULL, &status),
               COLLI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  cr_assert_eq(status_of(&st, with), COLLI_CU_STREAM_CAPTURE_STATUS_ACTIVE);
  cr_assert_eq(st.u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  cr_assert_eq(status_of(&st, with), COLLI_CU_STREAM_CAPTURE_STATUS_INVALIDATED);
  cr_assert_eq(st.u.stream_end_capture(with, &graph), COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  OK(st.u.cuda.stream_synchronize(NULL));
  begin_mode(&st, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED);
  OK(st.u.cuda.event_record(st.event, st.s));
  cr_assert_eq(st.u.cuda.stream_wait_event(NULL, st.event, 0),
               COLLI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  is_invalid(&st);
}

Test(driver_capture, outside) {
  stage st;
  begin(&st);
  OK(st.u.cuda.event_record(st.event, st.t));
  cr_assert_eq(st.u.cuda.stream_wait_event(st.t, st.event, COLLI_CU_EVENT_WAIT_EXTERNAL),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(st.u.cuda.stream_wait_event(st.s, st.event, COLLI_CU_EVENT_WAIT_EXTERNAL));
  cr_assert_eq(st.u.cuda.stream_wait_event(st.s, st.event, 0),
               COLLI_CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  is_invalid(&st);
}

Test(driver_capture, merge) {
  stage st;
  colli_cu_graph graph;
  begin(&st);
  OK(st.u.stream_begin_capture(st.t, COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(st.u.cuda.event_record(st.event, st.t));
  cr_assert_eq(st.u.cuda.stream_wait_event(st.s, st.event, 0),
               COLLI_CUDA_ERROR_STREAM_CAPTURE_MERGE);
  cr_assert_eq(st.u.stream_end_capture(st.t, &graph), COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  is_invalid(&st);
}

/* Lets the second stream join the capture. */
static void fork_stream(stage *st) {
  OK(st->u.cuda.event_record(st->event, st->s));
  OK(st->u.cuda.stream_wait_event(st->t, st->event, 0));
}

Test(driver_capture, unjoined) {
  stage st;
  begin(&st);
  OK(st.u.cuda.memset_d32_async(use_address(st.m), 1, 1, st.s));
  fork_stream(&st);
  ends(&st, COLLI_CUDA_SUCCESS); /* the fork has nothing to join */
  OK(st.u.stream_begin_capture(st.s, COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL));
  fork_stream(&st);
  OK(st.u.cuda.memset_d32_async(use_address(st.m), 1, 1, st.t));
  OK(st.u.cuda.event_record(st.other, st.t));
  OK(st.u.cuda.memset_d32_async(use_address(st.m), 1, 1, st.t));
  OK(st.u.cuda.stream_wait_event(st.s, st.other, 0)); /* too early */
  ends(&st, COLLI_CUDA_ERROR_STREAM_CAPTURE_UNJOINED);
  OK(st.u.cuda.stream_query(st.t));
}

Test(driver_capture, other_stream_ends) {
  stage st;
  colli_cu_graph graph;
  begin(&st);
  fork_stream(&st);
  cr_assert_eq(st.u.stream_end_capture(st.t, &graph), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED);
  is_invalid(&st);
}

/* Ends a capture in a thread that did not begin it. */
static void *end_here(void *argument) {
  stage *st = argument;
  colli_cu_graph graph;
  OK(st->u.cuda.ctx_set_current(st->u.context));
  return (void *)(intptr_t)st->u.stream_end_capture(st->s, &graph);
}

/* The same, and its result. */
static intptr_t end_elsewhere(stage *st) {
  pthread_t thread;
  void *result;
  cr_assert_eq(pthread_create(&thread, NULL, end_here, st), 0);
  cr_assert_eq(pthread_join(thread, &result), 0);
  return (intptr_t)result;
}

Test(driver_capture, other_thread_ends) {
  stage st;
  begin(&st);
  cr_assert_eq(end_elsewhere(&st), COLLI_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  ends(&st, COLLI_CUDA_SUCCESS);
  OK(st.u.stream_begin_capture(st.s, COLLI_CU_STREAM_CAPTURE_MODE_RELAXED));
  cr_assert_eq(end_elsewhere(&st), COLLI_CUDA_SUCCESS);
}
