/* test_driver_graph.c: the fake driver's graphs: what they do when they are launched, how long they
 * and user objects live. */
#include <criterion/criterion.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_graph, .timeout = 60);

/* Captures until end_capture(). */
static void begin_capture(use *u, colli_cu_stream stream) {
  OK(u->stream_begin_capture(stream, COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL));
}

/* Makes what was captured executable. */
static colli_cu_graph_exec end_capture(use *u, colli_cu_stream stream) {
  colli_cu_graph graph;
  colli_cu_graph_exec exec;
  OK(u->stream_end_capture(stream, &graph));
  OK(u->graph_instantiate(&exec, graph, 0));
  OK(u->graph_destroy(graph));
  return exec;
}

/* Lets a stream go on after what another one has now, perhaps of another device. */
static void join(use *u, colli_cu_stream stream, colli_cu_stream after) {
  colli_cu_event event;
  colli_cu_context context, current;
  OK(u->cuda.ctx_get_current(&current));
  OK(u->cuda.stream_get_ctx(after, &context));
  OK(u->cuda.ctx_set_current(context));
  OK(u->cuda.event_create(&event, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(u->cuda.event_record(event, after));
  OK(u->cuda.stream_wait_event(stream, event, 0));
  OK(u->cuda.event_destroy(event));
  OK(u->cuda.ctx_set_current(current));
}

static void count_up(void *context) {
  ++*(uint32_t *)context;
}

Test(driver_graph, all_kinds) {
  use u;
  uint32_t from[2] = {5, 6}, back[2] = {0};
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 16);
  const colli_cu_deviceptr at = use_address(m);
  colli_cu_mem_op ops[2] = {
      {.wait = {COLLI_CU_STREAM_MEM_OP_WAIT_VALUE_32, at, 1, COLLI_CU_STREAM_WAIT_VALUE_EQ, 0}},
      {.write = {COLLI_CU_STREAM_MEM_OP_WRITE_VALUE_32, at, 0, 0, 0}}};
  begin_capture(&u, s);
  OK(u.cuda.stream_batch_mem_op(s, 2, ops, 0));
  OK(u.cuda.memset_d32_async(at + 4, 7, 2, s));
  OK(u.cuda.memcpy_htod_async(at + 12, from, sizeof(from), s));
  use_two(&u, "poke", s, m + 5, 9);
  OK(u.cuda.memcpy_async(at + 24, at + 12, 12, s));
  OK(u.cuda.memcpy_dtoh_async(back, at + 24, sizeof(back), s));
  OK(u.cuda.launch_host_func(s, count_up, m + 9));
  OK(u.cuda.stream_write_value_32(s, at + 40, 3, 0));
  OK(u.cuda.stream_wait_value_32(s, at + 40, 3, COLLI_CU_STREAM_WAIT_VALUE_GEQ));
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.cuda.stream_synchronize(s));
  for (int i = 0; i < 16; i++)
    cr_assert_eq(m[i], 0);
  for (uint32_t round = 1; round <= 5; round++) {
    from[0] = round; /* pageable memory is read when the graph runs */
    memset(m + 1, 0, 32);
    m[10] = back[0] = 0;
    OK(u.graph_launch(exec, round % 2 ? s : t));
    u.rounds(10);
    cr_assert_eq(u.cuda.stream_query(round % 2 ? s : t), COLLI_CUDA_ERROR_NOT_READY);
    use_set(m, 1);
    OK(u.cuda.stream_synchronize(round % 2 ? s : t));
    const uint32_t expected[] = {0, 7, 7, round, 6, 9, round, 6, 9, round, 3};
    cr_assert_arr_eq(m, expected, sizeof(expected));
    cr_assert(back[0] == round && back[1] == 6);
  }
  OK(u.graph_exec_destroy(exec));
  cr_assert_eq(u.graph_launch(exec, s), COLLI_CUDA_ERROR_INVALID_VALUE);
}

/* Two streams: the second waits for a value, and both before and after they meet. */
static void fork_and_join(const char *queues) {
  use u;
  setenv("GPU_QUEUES", queues, 1);
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 8);
  begin_capture(&u, s);
  use_two(&u, "poke", s, m + 1, 1);
  join(&u, t, s);
  OK(u.cuda.stream_wait_value_32(t, use_address(m), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.memcpy_async(use_address(m + 2), use_address(m + 1), 4, t));
  use_two(&u, "poke", s, m + 3, 2);
  join(&u, s, t);
  OK(u.cuda.memcpy_async(use_address(m + 4), use_address(m + 2), 8, s));
  OK(u.cuda.stream_write_value_32(s, use_address(m), 0, 0));
  colli_cu_graph_exec exec = end_capture(&u, s);
  for (int round = 0; round < 3; round++) {
    OK(u.graph_launch(exec, s));
    OK(u.cuda.memset_d32_async(use_address(m + 7), 5, 1, s));
    u.rounds(20);
    cr_assert(m[1] == 1 && m[2] == 0 && m[4] == 0 && m[7] == 0);
    use_set(m, 1);
    OK(u.cuda.stream_synchronize(s));
    cr_assert(m[2] == 1 && m[4] == 1 && m[5] == 2 && m[7] == 5);
    memset(m + 1, 0, 28);
  }
}

Test(driver_graph, fork_and_join) {
  fork_and_join("32");
}

Test(driver_graph, fork_and_join_in_one_queue) {
  fork_and_join("1");
}

Test(driver_graph, branches_run_at_once) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 3);
  begin_capture(&u, s);
  join(&u, t, s);
  use_two(&u, "spin", s, m, use_address(m + 1));
  OK(u.cuda.stream_write_value_32(t, use_address(m), 1, 0));
  join(&u, s, t);
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.cuda.stream_wait_value_32(s, use_address(m + 2), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.graph_launch(exec, s));
  u.rounds(10);
  cr_assert_eq(__atomic_load_n(m, __ATOMIC_SEQ_CST), 0); /* all comes after what s had before */
  use_set(m + 2, 1);
  OK(u.cuda.stream_synchronize(s));
  cr_assert_eq(m[1], 1);
}

Test(driver_graph, two_devices) {
  use u;
  colli_cu_context first;
  setenv("GPU_DEVICES", "2", 1);
  setenv("GPU_PEERS", "none", 1); /* copies go through the host then */
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 3);
  first = u.context;
  use_device(&u, 1);
  colli_cu_stream t = use_stream(&u);
  uint32_t *there = use_memory(&u, 2);
  OK(u.cuda.ctx_set_current(first));
  begin_capture(&u, s);
  use_two(&u, "poke", s, m, 4);
  join(&u, t, s);
  OK(u.cuda.memcpy_dtod_async(use_address(there), use_address(m), 4, t));
  OK(u.cuda.memset_d32_async(use_address(there + 1), 8, 1, t));
  join(&u, s, t);
  OK(u.cuda.memcpy_async(use_address(m + 1), use_address(there), 8, s));
  colli_cu_graph_exec exec = end_capture(&u, s);
  for (int round = 0; round < 2; round++) {
    memset(m, 0, 12);
    colli_cu_stream in = round ? t : s; /* the other device's is possible as well */
    OK(u.graph_launch(exec, in));
    OK(u.cuda.stream_synchronize(in));
    cr_assert(m[0] == 4 && m[1] == 4 && m[2] == 8);
  }
}

Test(driver_graph, launches_in_order) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 2);
  begin_capture(&u, s);
  OK(u.cuda.stream_wait_value_32(s, use_address(m), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.stream_write_value_32(s, use_address(m), 0, 0));
  OK(u.cuda.launch_host_func(s, count_up, m + 1));
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.graph_launch(exec, s));
  OK(u.graph_launch(exec, t));
  OK(u.graph_launch(exec, NULL));
  for (uint32_t i = 1; i <= 3; i++) {
    u.rounds(10);
    cr_assert_eq(__atomic_load_n(m + 1, __ATOMIC_SEQ_CST), i - 1);
    use_set(m, 1);
    OK(u.cuda.stream_synchronize(i == 1 ? s : i == 2 ? t : NULL));
    cr_assert_eq(m[1], i);
  }
}

Test(driver_graph, event_from_outside) {
  use u;
  colli_cu_event event;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 3);
  OK(u.cuda.event_create(&event, 0));
  begin_capture(&u, s);
  OK(u.cuda.stream_wait_event(s, event, COLLI_CU_EVENT_WAIT_EXTERNAL));
  OK(u.cuda.memcpy_async(use_address(m + 2), use_address(m + 1), 4, s));
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.graph_launch(exec, s)); /* nothing was recorded */
  OK(u.cuda.stream_synchronize(s));
  use_two(&u, "spin", t, m, use_address(m + 1));
  OK(u.cuda.event_record(event, t));
  OK(u.graph_launch(exec, s));
  OK(u.cuda.event_destroy(event));
  u.rounds(10);
  cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_NOT_READY);
  use_set(m, 1);
  OK(u.cuda.stream_synchronize(s));
  cr_assert_eq(m[2], 1);
}

Test(driver_graph, in_a_captured_stream) {
  use u;
  colli_cu_graph graph;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  begin_capture(&u, s);
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.graph_launch(exec, s)); /* an empty one */
  OK(u.cuda.stream_synchronize(s));
  begin_capture(&u, s);
  cr_assert_eq(u.graph_launch(exec, s), COLLI_CUDA_ERROR_NOT_SUPPORTED);
  cr_assert_eq(u.stream_end_capture(s, &graph), COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
}

Test(driver_graph, module_unloaded) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 1);
  begin_capture(&u, s);
  use_two(&u, "poke", s, m, 4);
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.cuda.module_unload(u.module));
  cr_assert_eq(u.graph_launch(exec, s), COLLI_CUDA_ERROR_INVALID_HANDLE);
  OK(u.graph_exec_destroy(exec));
}

Test(driver_graph, memory_freed) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 1);
  begin_capture(&u, s);
  OK(u.cuda.memset_d32_async(use_address(m), 1, 1, s));
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.cuda.mem_free(use_address(m)));
  OK(u.graph_launch(exec, s));
  cr_assert_eq(u.cuda.stream_synchronize(s), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* What destroys user objects: counts, and tries to call the driver. */
typedef struct ended {
  use *u;
  uint32_t count;
  colli_cu_result result;
} ended;

static void end_user_object(void *context) {
  ended *e = context;
  int count;
  e->result = e->u->cuda.device_get_count(&count);
  e->count++;
}

/* The graph that a stream captures. */
static colli_cu_graph captured(use *u, colli_cu_stream stream) {
  int status;
  colli_cu_graph graph = NULL;
  OK(u->cuda.stream_get_capture_info(stream, &status, NULL, &graph, NULL, NULL));
  return graph;
}

Test(driver_graph, user_objects) {
  use u;
  colli_cu_user_object object;
  use_start(&u);
  ended e = {.u = &u};
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 2);
  OK(u.cuda.user_object_create(&object, &e, end_user_object, 1, 1));
  begin_capture(&u, s);
  use_two(&u, "spin", s, m, use_address(m + 1));
  OK(u.cuda.graph_retain_user_object(captured(&u, s), object, 1, COLLI_CU_GRAPH_USER_OBJECT_MOVE));
  colli_cu_graph_exec exec = end_capture(&u, s);
  OK(u.graph_launch(exec, s));
  OK(u.graph_exec_destroy(exec)); /* while it runs */
  u.rounds(10);
  cr_assert_eq(e.count, 0);
  use_set(m, 1);
  OK(u.cuda.stream_synchronize(s));
  u.rounds(2);
  cr_assert(e.count == 1 && e.result == COLLI_CUDA_ERROR_NOT_PERMITTED);
  cr_assert_eq(u.cuda.user_object_release(object, 1), COLLI_CUDA_ERROR_INVALID_VALUE);
}

Test(driver_graph, user_objects_of_several) {
  use u;
  colli_cu_user_object object;
  colli_cu_graph graph;
  use_start(&u);
  ended e = {.u = &u};
  colli_cu_stream s = use_stream(&u);
  cr_assert_eq(u.cuda.user_object_create(&object, &e, NULL, 1, 1), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(u.cuda.user_object_create(&object, &e, end_user_object, 1, 0),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.user_object_create(&object, &e, end_user_object, 2, 1));
  begin_capture(&u, s);
  cr_assert_eq(u.cuda.graph_retain_user_object(captured(&u, s), object, 0, 0),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.graph_retain_user_object(captured(&u, s), object, 1, 0)); /* one more */
  OK(u.stream_end_capture(s, &graph));
  cr_assert_eq(u.cuda.user_object_release(object, 4), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.user_object_release(object, 1));
  OK(u.graph_destroy(graph));
  u.rounds(2);
  cr_assert_eq(e.count, 0);
  OK(u.cuda.user_object_release(object, 1));
  u.rounds(2);
  cr_assert_eq(e.count, 1);
}

Test(driver_graph, user_object_of_a_failed_capture) {
  use u;
  colli_cu_user_object object;
  colli_cu_graph graph;
  use_start(&u);
  ended e = {.u = &u};
  colli_cu_stream s = use_stream(&u);
  OK(u.cuda.user_object_create(&object, &e, end_user_object, 1, 1));
  begin_capture(&u, s);
  OK(u.cuda.graph_retain_user_object(captured(&u, s), object, 1, COLLI_CU_GRAPH_USER_OBJECT_MOVE));
  cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  cr_assert_eq(u.stream_end_capture(s, &graph), COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  u.rounds(2);
  cr_assert_eq(e.count, 1);
}
