/* test_driver.c: the fake driver: devices, memory, streams, kernels, as libcoll loads it. */
#include <criterion/criterion.h>
#include <pthread.h>

#include "libcoll/gpu/kernels/fold_args.h"
#include "tests/gpu/driver/use.h"

TestSuite(driver, .timeout = 60);

Test(driver, devices) {
  use u;
  int value;
  char id[32];
  colli_cu_uuid uuids[2];
  colli_cu_context context, current;
  setenv("GPU_DEVICES", "2", 1);
  use_load(&u);
  cr_assert_geq(u.cuda.driver_version, 12040);
#define FOUND(field, name, suffix, version, arguments) cr_assert(u.cuda.field, #name);
  COLLI_CUDA_ENTRIES(FOUND)
  OK(u.cuda.device_get_count(&value));
  cr_assert_eq(value, 2);
  cr_assert_eq(u.cuda.device_get(&value, 2), COLLI_CUDA_ERROR_INVALID_DEVICE);
  OK(u.cuda.device_get_attribute(&value, COLLI_CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, 1));
  cr_assert_eq(value, 1);
  cr_assert_eq(u.cuda.device_get_attribute(&value, 12345, 1), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.device_get_pci_bus_id(id, sizeof(id), 1));
  cr_assert_str_eq(id, "0000:02:00.0");
  cr_assert_eq(u.cuda.device_get_pci_bus_id(id, 5, 1), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.device_get_uuid(&uuids[0], 0));
  OK(u.cuda.device_get_uuid(&uuids[1], 1));
  cr_assert(memcmp(&uuids[0], &uuids[1], sizeof(*uuids)) != 0);
  cr_assert_eq(u.cuda.ctx_get_device(&value), COLLI_CUDA_ERROR_INVALID_CONTEXT);
  OK(u.cuda.primary_ctx_retain(&context, 1));
  OK(u.cuda.ctx_set_current(context));
  OK(u.cuda.ctx_get_current(&current));
  cr_assert_eq(current, context);
  OK(u.cuda.ctx_get_device(&value));
  cr_assert_eq(value, 1);
  unsigned flags;
  OK(u.cuda.primary_ctx_get_state(1, &flags, &value));
  cr_assert_eq(value, 1);
  OK(u.cuda.primary_ctx_release(1));
  OK(u.cuda.primary_ctx_get_state(1, &flags, &value));
  cr_assert_eq(value, 0);
  cr_assert_eq(u.cuda.primary_ctx_release(1), COLLI_CUDA_ERROR_INVALID_CONTEXT);
  cr_assert_str_eq(colli_cuda_result_name(&u.cuda, 700), "CUDA_ERROR_ILLEGAL_ADDRESS");
  cr_assert_str_eq(colli_cuda_result_text(&u.cuda, 100), "no CUDA-capable device is detected");
}

Test(driver, no_device) {
  colli_cuda cuda;
  coll_error error = {.size = sizeof(error)};
  setenv("GPU_DEVICES", "0", 1);
  cr_assert_eq(colli_cuda_load(&cuda, FAKE_GPU, &error), COLL_ERR_UNSUPPORTED);
  cr_assert(strstr(error.message, "CUDA_ERROR_NO_DEVICE"), "%s", error.message);
}

/* The memory type of an address, and the range that it belongs to. */
static unsigned type_of(use *u, const void *at, uint64_t *start) {
  unsigned type = 77;
  colli_cu_pointer_attribute wanted[] = {COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         COLLI_CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
  OK(u->cuda.pointer_get_attributes(2, wanted, (void *[]){&type, start}, use_address(at)));
  return type;
}

Test(driver, memory) {
  use u;
  colli_cu_deviceptr base;
  size_t bytes;
  uint64_t start;
  static uint32_t own[64];
  void *pinned;
  use_start(&u);
  uint32_t *a = use_memory(&u, 10), *b = use_memory(&u, 10000);
  OK(u.cuda.mem_get_address_range(&base, &bytes, use_address(b + 9999)));
  cr_assert(base == use_address(b) && bytes == 40000);
  cr_assert_eq(u.cuda.mem_get_address_range(&base, &bytes, use_address(own)),
               COLLI_CUDA_ERROR_NOT_FOUND);
  cr_assert_eq(type_of(&u, a + 9, &start), COLLI_CU_MEMORYTYPE_DEVICE);
  cr_assert_eq(start, use_address(a));
  cr_assert_eq(type_of(&u, own, &start), 0);
  OK(u.cuda.mem_host_alloc(&pinned, 100, COLLI_CU_MEMHOSTALLOC_PORTABLE));
  cr_assert_eq(type_of(&u, pinned, &start), COLLI_CU_MEMORYTYPE_HOST);
  cr_assert_eq(u.cuda.mem_host_get_device_pointer(&base, own, 0), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.mem_host_register(own, sizeof(own), COLLI_CU_MEMHOSTREGISTER_PORTABLE));
  cr_assert_eq(u.cuda.mem_host_register(own + 8, 4, 0),
               COLLI_CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED);
  cr_assert_eq(type_of(&u, own + 63, &start), COLLI_CU_MEMORYTYPE_HOST);
  OK(u.cuda.mem_host_get_device_pointer(&base, own, 0));
  cr_assert_eq(base, use_address(own));
  OK(u.cuda.mem_host_unregister(own));
  cr_assert_eq(u.cuda.mem_host_unregister(own), COLLI_CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED);
  OK(u.cuda.mem_free_host(pinned));
  cr_assert_eq(u.cuda.mem_free(use_address(a + 1)), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.mem_free(use_address(a)));
  cr_assert_eq(u.cuda.mem_free(use_address(a)), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(u.cuda.mem_alloc(&base, 0), COLLI_CUDA_ERROR_INVALID_VALUE);
  colli_cu_context context = NULL;
  unsigned yes = 1, is = 0, managed = 77;
  int ordinal = 77;
  colli_cu_pointer_attribute wanted[] = {
      COLLI_CU_POINTER_ATTRIBUTE_CONTEXT, COLLI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      COLLI_CU_POINTER_ATTRIBUTE_IS_MANAGED, COLLI_CU_POINTER_ATTRIBUTE_RANGE_SIZE};
  OK(u.cuda.pointer_get_attributes(4, wanted, (void *[]){&context, &ordinal, &managed, &bytes},
                                   use_address(b + 7)));
  cr_assert(context == u.context && ordinal == 0 && managed == 0 && bytes == 40000);
  OK(u.cuda.pointer_get_attributes(2, wanted, (void *[]){&context, &ordinal}, use_address(own)));
  cr_assert(context == NULL && ordinal == -2);
  colli_cu_pointer_attribute sync = COLLI_CU_POINTER_ATTRIBUTE_SYNC_MEMOPS;
  OK(u.cuda.pointer_set_attribute(&yes, sync, use_address(b)));
  OK(u.cuda.pointer_get_attributes(1, &sync, (void *[]){&is}, use_address(b)));
  cr_assert_eq(is, 1);
}

Test(driver, attributes_without_a_context) {
  use u;
  uint64_t start = 0;
  use_start(&u);
  uint32_t *a = use_memory(&u, 10), own;
  OK(u.cuda.ctx_set_current(NULL));
  cr_assert_eq(type_of(&u, a + 9, &start), COLLI_CU_MEMORYTYPE_DEVICE);
  cr_assert_eq(start, use_address(a));
  cr_assert_eq(type_of(&u, &own, &start), 0);
}

Test(driver, freed_memory_is_used_again) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 2), *large = use_memory(&u, 1 << 20);
  OK(u.cuda.mem_free(use_address(large)));
  for (uint32_t i = 0; i < 200; i++) { /* more than are kept, of several sizes */
    uint32_t *some = use_memory(&u, 1024 * (i % 3 + 1)),
             *other = use_memory(&u, 1024 * (i % 100 + 1));
    OK(u.cuda.memset_d32_async(use_address(some), i, 1024, s));
    use_two(&u, "poke", s, some + 1023, i + 1);
    OK(u.cuda.memcpy_async(use_address(m), use_address(some + 1022), 8, s));
    OK(u.cuda.stream_synchronize(s));
    cr_assert(m[0] == i && m[1] == i + 1);
    OK(u.cuda.mem_free(use_address(some)));
    OK(u.cuda.mem_free(use_address(other)));
  }
}

Test(driver, copies_in_order) {
  use u;
  uint32_t host[8], back[8] = {0};
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *a = use_memory(&u, 8), *b = use_memory(&u, 8);
  for (uint32_t i = 0; i < 8; i++)
    host[i] = i;
  OK(u.cuda.memset_d32_async(use_address(b), 9, 8, s));
  OK(u.cuda.memcpy_htod_async(use_address(a), host, sizeof(host), s));
  memset(host, 0, sizeof(host)); /* pageable memory was read */
  OK(u.cuda.memcpy_async(use_address(b), use_address(a + 2), 16, s));
  OK(u.cuda.memcpy_dtoh_async(back, use_address(b), sizeof(back), s));
  const uint32_t expected[] = {2, 3, 4, 5, 9, 9, 9, 9}; /* and pageable memory is written */
  cr_assert_arr_eq(back, expected, sizeof(back));
  OK(u.cuda.stream_query(s));
  cr_assert_eq(u.cuda.memcpy_async(use_address(a), use_address(b), 33, s),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.stream_destroy(s));
  cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_INVALID_HANDLE);
}

/* Rows of two words, from every third word. */
Test(driver, copies_of_rows) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *from = use_memory(&u, 12), *to = use_memory(&u, 12);
  void *host;
  OK(u.cuda.mem_host_alloc(&host, 32, 0));
  for (uint32_t i = 0; i < 12; i++)
    from[i] = i;
  OK(u.cuda.memset_d32_async(use_address(to), 99, 12, s));
  colli_cu_memcpy_2d rows = {.from_type = COLLI_CU_MEMORYTYPE_DEVICE,
                             .from_device = use_address(from + 1),
                             .from_pitch = 12,
                             .to_type = COLLI_CU_MEMORYTYPE_HOST,
                             .to_host = host,
                             .to_pitch = 8,
                             .row_bytes = 8,
                             .rows = 4};
  OK(u.cuda.memcpy_2d_async(&rows, s));
  OK(u.cuda.stream_synchronize(s));
  const uint32_t packed[] = {1, 2, 4, 5, 7, 8, 10, 11};
  cr_assert_arr_eq(host, packed, sizeof(packed));
  const colli_cu_memcpy_2d back = {.from_type = COLLI_CU_MEMORYTYPE_HOST,
                                   .from_host = host,
                                   .from_pitch = 8,
                                   .to_type = COLLI_CU_MEMORYTYPE_DEVICE,
                                   .to_device = use_address(to),
                                   .to_pitch = 12,
                                   .row_bytes = 8,
                                   .rows = 4};
  OK(u.cuda.memcpy_2d_async(&back, s));
  OK(u.cuda.stream_synchronize(s));
  const uint32_t apart[] = {1, 2, 99, 4, 5, 99, 7, 8, 99, 10, 11, 99};
  cr_assert_arr_eq(to, apart, sizeof(apart));
  rows.to_pitch = 7;
  cr_assert_eq(u.cuda.memcpy_2d_async(&rows, s), COLLI_CUDA_ERROR_INVALID_VALUE);
  rows.to_pitch = (size_t)INT32_MAX + 1;
  cr_assert_eq(u.cuda.memcpy_2d_async(&rows, s), COLLI_CUDA_ERROR_INVALID_VALUE);
}

Test(driver, events) {
  use u;
  colli_cu_event before, after;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 4);
  OK(u.cuda.event_create(&before, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(u.cuda.event_create(&after, COLLI_CU_EVENT_DISABLE_TIMING));
  OK(u.cuda.event_query(before));
  OK(u.cuda.stream_wait_value_32(s, use_address(m), 5, COLLI_CU_STREAM_WAIT_VALUE_GEQ));
  use_two(&u, "poke", s, m + 1, 7);
  OK(u.cuda.event_record(before, s));
  OK(u.cuda.stream_wait_event(t, before, 0));
  OK(u.cuda.memcpy_async(use_address(m + 2), use_address(m + 1), 4, t));
  OK(u.cuda.event_record(after, t));
  OK(u.cuda.event_record(before, use_stream(&u))); /* what waits already waits for the first */
  OK(u.cuda.event_synchronize(before));
  OK(u.cuda.event_destroy(before));
  u.rounds(10);
  cr_assert_eq(u.cuda.event_query(after), COLLI_CUDA_ERROR_NOT_READY);
  cr_assert_eq(u.cuda.stream_query(t), COLLI_CUDA_ERROR_NOT_READY);
  use_set(m, 6);
  OK(u.cuda.event_synchronize(after));
  cr_assert_eq(m[2], 7);
  OK(u.cuda.event_query(after));
  cr_assert_eq(u.cuda.event_query(before), COLLI_CUDA_ERROR_INVALID_HANDLE);
}

/* A wait in one stream for what another writes: whether the writer gets its turn. */
static void wait_for_other(const char *queues, bool ends) {
  use u;
  setenv("GPU_QUEUES", queues, 1);
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 1);
  OK(u.cuda.stream_wait_value_32(s, use_address(m), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.stream_write_value_32(t, use_address(m), 1, 0));
  u.rounds(100);
  if (!ends) {
    cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_NOT_READY);
    cr_assert_eq(u.cuda.stream_query(t), COLLI_CUDA_ERROR_NOT_READY);
    use_set(m, 1);
  }
  OK(u.cuda.stream_synchronize(s));
  OK(u.cuda.stream_synchronize(t));
}

Test(driver, one_queue_blocks) {
  wait_for_other("1", false);
}

Test(driver, two_queues_do_not_block) {
  wait_for_other("2", true);
}

Test(driver, kernels_that_spin) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 2);
  use_two(&u, "spin", s, m, use_address(m + 1));
  u.rounds(5);
  cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_NOT_READY);
  uint64_t flag = use_address(m);
  const uint32_t one[2] = {1, 1};
  OK(use_launch(&u, "signal", one, t, (void *[]){&flag}));
  OK(u.cuda.stream_synchronize(s));
  cr_assert_eq(m[1], 1);
}

Test(driver, default_stream) {
  use u;
  colli_cu_stream with;
  use_start(&u);
  colli_cu_stream apart = use_stream(&u); /* shares a queue with the default stream */
  uint32_t *m = use_memory(&u, 4);
  OK(u.cuda.stream_create(&with, 0, 0));
  OK(u.cuda.stream_wait_value_32(with, use_address(m), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.memset_d32_async(use_address(m + 2), 3, 1, NULL));
  u.rounds(10);
  cr_assert_eq(u.cuda.stream_query(NULL), COLLI_CUDA_ERROR_NOT_READY);
  use_set(m, 1);
  OK(u.cuda.stream_synchronize(NULL));
  OK(u.cuda.stream_wait_value_32(NULL, use_address(m + 1), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.memcpy_async(use_address(m + 3), use_address(m + 2), 4, with));
  u.rounds(10);
  cr_assert_eq(u.cuda.stream_query(with), COLLI_CUDA_ERROR_NOT_READY);
  OK(u.cuda.stream_query(apart));
  use_set(m + 1, 1);
  OK(u.cuda.stream_synchronize(with));
  cr_assert_eq(m[3], 3);
}

/* A function of a stream: writes, and tries to call the driver. */
typedef struct host_call {
  use *u;
  uint32_t *to;
  colli_cu_result result;
} host_call;

static void host_function(void *context) {
  host_call *call = context;
  int count;
  *call->to += 1;
  call->result = call->u->cuda.device_get_count(&count);
}

Test(driver, host_functions) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 1);
  host_call call = {&u, m, 0};
  OK(u.cuda.memset_d32_async(use_address(m), 4, 1, s));
  OK(u.cuda.launch_host_func(s, host_function, &call));
  OK(u.cuda.stream_synchronize(s));
  cr_assert_eq(m[0], 5);
  cr_assert_eq(call.result, COLLI_CUDA_ERROR_NOT_PERMITTED);
}

Test(driver, batches) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 2);
  colli_cu_mem_op ops[2] = {
      {.wait = {COLLI_CU_STREAM_MEM_OP_WAIT_VALUE_32, use_address(m), 2, 0, 0}},
      {.write = {COLLI_CU_STREAM_MEM_OP_WRITE_VALUE_32, use_address(m + 1), 8, 0, 0}}};
  OK(u.cuda.stream_batch_mem_op(s, 2, ops, 0));
  u.rounds(10);
  cr_assert_eq(__atomic_load_n(m + 1, __ATOMIC_SEQ_CST), 0);
  use_set(m, 2);
  OK(u.cuda.stream_synchronize(s));
  cr_assert_eq(m[1], 8);
  ops[1].write.address = 64;
  cr_assert_eq(u.cuda.stream_batch_mem_op(s, 2, ops, 0), COLLI_CUDA_ERROR_INVALID_VALUE);
}

/* Loads a file of libcoll's kernels in place of the tests' module. */
static void load_kernels(use *u, const char *name) {
  static char text[1 << 20];
  char path[512];
  snprintf(path, sizeof(path), "%s/%s.ptx", COLL_KERNELS, name);
  FILE *file = fopen(path, "r");
  cr_assert(file, "%s", path);
  text[fread(text, 1, sizeof(text) - 1, file)] = 0;
  fclose(file);
  OK(u->cuda.module_unload(u->module));
  OK(u->cuda.module_load(&u->module, text, 0, NULL, NULL));
}

Test(driver, copy_kernel) {
  use u;
  const uint32_t size[2] = {2, 64};
  use_start(&u);
  load_kernels(&u, "copy");
  colli_cu_stream s = use_stream(&u);
  uint8_t *from = (uint8_t *)use_memory(&u, 500), *to = (uint8_t *)use_memory(&u, 500);
  for (int i = 0; i < 2000; i++)
    from[i] = (uint8_t)(i * 7);
  struct coll_gpu_copy copy = {.pieces = 2,
                               .piece = {{use_address(to + 3), use_address(from + 3), 1000},
                                         {use_address(to + 1100), use_address(from + 1101), 800}}};
  OK(use_launch(&u, "coll_copy", size, s, (void *[]){&copy}));
  OK(u.cuda.stream_synchronize(s));
  for (int i = 0; i < 2000; i++)
    cr_assert_eq(to[i], i < 3 || (i >= 1003 && i < 1100) || i >= 1900 ? 0
                        : i < 1003                                    ? from[i]
                                                                      : from[i + 1]);
}

Test(driver, fold_kernel) {
  enum { COUNT = 1003, INPUTS = 3 };
  use u;
  const uint32_t size[2] = {2, 96};
  uint32_t *places[INPUTS + 1];
  struct coll_gpu_fold fold = {.inputs = INPUTS, .outputs = 1};
  uint64_t or_of = 0, and_of = UINT64_MAX;
  use_start(&u);
  load_kernels(&u, "fold_int");
  colli_cu_stream s = use_stream(&u);
  for (int p = 0; p <= INPUTS; p++) {
    places[p] = use_memory(&u, COUNT + 1) + 1;
    or_of |= use_address(places[p]);
    and_of &= use_address(places[p]);
    for (uint32_t i = 0; p < INPUTS && i < COUNT; i++)
      places[p][i] = i * 3 + (uint32_t)p;
    if (p < INPUTS)
      fold.in[p] = use_address(places[p]);
  }
  fold.out[0] = use_address(places[INPUTS]);
  coll_gpu_fold_split(&fold, COUNT, 4, or_of, and_of);
  OK(use_launch(&u, "coll_fold_sum_u32", size, s, (void *[]){&fold}));
  OK(u.cuda.stream_synchronize(s));
  for (uint32_t i = 0; i < COUNT; i++)
    cr_assert_eq(places[INPUTS][i], i * 9 + 3);
}

Test(driver, modules) {
  use u;
  colli_cu_module module;
  colli_cu_function function;
  char log[200] = "";
  colli_cu_jit_option options[] = {COLLI_CU_JIT_ERROR_LOG_BUFFER,
                                   COLLI_CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES};
  void *values[] = {log, (void *)sizeof(log)};
  int blocks;
  use_start(&u);
  cr_assert_eq(u.cuda.module_load(&module, "no PTX", 2, options, values),
               COLLI_CUDA_ERROR_INVALID_PTX);
  cr_assert(strstr(log, "line 1"), "%s", log);
  cr_assert_eq(u.cuda.module_get_function(&function, u.module, "none"), COLLI_CUDA_ERROR_NOT_FOUND);
  OK(u.cuda.module_get_function(&function, u.module, "stop"));
  OK(u.cuda.func_load(function));
  OK(u.cuda.occupancy_max_blocks(&blocks, function, 512, 0));
  cr_assert_eq(blocks, 1);
  OK(u.cuda.func_set_attribute(function, COLLI_CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                               100000));
  const uint32_t large[2] = {1, 2000};
  cr_assert_eq(use_launch(&u, "stop", large, NULL, NULL), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.module_unload(u.module));
  cr_assert_eq(u.cuda.func_load(function), COLLI_CUDA_ERROR_INVALID_HANDLE);
}

Test(driver, destroyed_while_in_use) {
  use u;
  colli_cu_event event;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 3), *unused = use_memory(&u, 3);
  OK(u.cuda.event_create(&event, 0));
  use_two(&u, "spin", s, m, use_address(m + 1));
  use_two(&u, "poke", s, m + 2, 4);
  OK(u.cuda.event_record(event, s));
  OK(u.cuda.stream_wait_event(t, event, 0));
  OK(u.cuda.mem_free(use_address(unused)));
  OK(u.cuda.module_unload(u.module));
  OK(u.cuda.stream_destroy(s));
  OK(u.cuda.event_destroy(event));
  u.rounds(5);
  cr_assert_eq(u.cuda.stream_query(t), COLLI_CUDA_ERROR_NOT_READY);
  use_set(m, 1);
  OK(u.cuda.stream_synchronize(t));
  cr_assert(m[1] == 1 && m[2] == 4);
}

Test(driver, not_implemented) {
  use u;
  use_start(&u);
  cr_assert_eq(u.cuda.flush_rdma_writes(0, 0), COLLI_CUDA_ERROR_NOT_SUPPORTED);
  cr_assert_eq(u.cuda.mem_get_range_handle(NULL, 0, 0, 0, 0), COLLI_CUDA_ERROR_NOT_SUPPORTED);
  cr_assert_eq(u.cuda.stream_query((colli_cu_stream)2), COLLI_CUDA_ERROR_NOT_SUPPORTED);
}
