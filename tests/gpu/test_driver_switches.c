/* test_driver_switches.c: the fake driver: errors of kernels, and each switch. */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_faults, .timeout = 60);
TestSuite(driver_switches, .timeout = 60);

static const uint32_t one[2] = {1, 1};

/* The exit status of `work` in a child, which loads its own driver. */
static int in_child(void (*work)(int argument), int argument) {
  int status;
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(60);
    work(argument);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status));
  return WEXITSTATUS(status);
}

Test(driver_faults, illegal_address) {
  use u;
  static uint32_t own[4];
  int count;
  colli_cu_deviceptr at;
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  uint32_t *m = use_memory(&u, 4);
  use_two(&u, "spin", t, m, use_address(m + 1));
  /* Not before all is in the stream: after the fault, no call succeeds. */
  OK(u.cuda.stream_wait_value_32(s, use_address(m + 3), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  use_two(&u, "poke", s, own, 1); /* memory of the program, not registered */
  use_two(&u, "poke", s, m + 2, 1);
  use_set(m + 3, 1);
  cr_assert_eq(u.cuda.stream_synchronize(s), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  cr_assert_eq(own[0], 0);
  cr_assert_eq(u.cuda.stream_query(t), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  cr_assert_eq(u.cuda.mem_alloc(&at, 16), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  cr_assert_eq(u.cuda.memset_d32_async(use_address(m), 0, 1, s), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  OK(u.cuda.device_get_count(&count)); /* needs no context */
}

Test(driver_faults, beyond_the_end) {
  use u;
  use_start(&u);
  uint32_t *m = use_memory(&u, 3);
  use_two(&u, "poke", NULL, m + 2, 1);
  OK(u.cuda.stream_synchronize(NULL));
  use_two(&u, "poke", NULL, m + 3, 1);
  cr_assert_eq(u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(driver_faults, registered_memory) {
  use u;
  static uint32_t own[4];
  use_start(&u);
  OK(u.cuda.mem_host_register(own, sizeof(own), COLLI_CU_MEMHOSTREGISTER_DEVICEMAP));
  use_two(&u, "poke", NULL, own + 3, 5);
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(own[3], 5);
}

Test(driver_faults, freed_memory) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 1), *gone = use_memory(&u, 1);
  OK(u.cuda.stream_wait_value_32(s, use_address(m), 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.memset_d32_async(use_address(gone), 1, 1, s));
  OK(u.cuda.mem_free(use_address(gone)));
  use_set(m, 1);
  cr_assert_eq(u.cuda.stream_synchronize(s), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(driver_faults, trap) {
  use u;
  use_start(&u);
  OK(use_launch(&u, "stop", one, NULL, NULL));
  cr_assert_eq(u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_LAUNCH_FAILED);
}

Test(driver_faults, other_process) {
  use u;
  int count;
  use_start(&u);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(u.cuda.device_get_count(&count));
  }
  int status;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(WEXITSTATUS(status), COLLI_CUDA_ERROR_NOT_INITIALIZED);
}

/* 16 bytes at an address that is a multiple of 8. */
static colli_cu_result shift_by_8(const char *split) {
  use u;
  setenv("GPU_SPLIT", split, 1);
  use_start(&u);
  uint32_t *m = use_memory(&u, 16);
  m[2] = 5;
  use_two(&u, "shift", NULL, m + 8, use_address(m));
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(m[10], 5);
  use_two(&u, "shift", NULL, m + 10, use_address(m));
  return u.cuda.stream_synchronize(NULL);
}

Test(driver_switches, whole_accesses) {
  cr_assert_eq(shift_by_8("0"), COLLI_CUDA_ERROR_MISALIGNED_ADDRESS);
}

Test(driver_switches, split_accesses) {
  cr_assert_eq(shift_by_8("1"), COLLI_CUDA_SUCCESS);
}

Test(driver_switches, peers) {
  use u;
  int can;
  colli_cu_context first, second;
  setenv("GPU_DEVICES", "2", 1);
  setenv("GPU_PEERS", "0100", 1);
  use_load(&u);
  OK(u.cuda.device_can_access_peer(&can, 0, 1));
  cr_assert_eq(can, 1);
  OK(u.cuda.device_can_access_peer(&can, 1, 0));
  cr_assert_eq(can, 0);
  OK(u.cuda.device_get_p2p_attribute(&can, COLLI_CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED, 0,
                                     1));
  cr_assert_eq(can, 1);
  OK(u.cuda.primary_ctx_retain(&first, 0));
  use_device(&u, 1);
  second = u.context;
  uint32_t *m = use_memory(&u, 2), *back;
  cr_assert_eq(u.cuda.ctx_enable_peer_access(first, 0), COLLI_CUDA_ERROR_PEER_ACCESS_UNSUPPORTED);
  use_device(&u, 0);
  OK(u.cuda.module_load(&u.module, use_text, 0, NULL, NULL));
  OK(u.cuda.ctx_enable_peer_access(second, 0));
  cr_assert_eq(u.cuda.ctx_enable_peer_access(second, 0),
               COLLI_CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED);
  use_two(&u, "poke", NULL, m, 6);
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(m[0], 6);
  back = use_memory(&u, 1);
  OK(u.cuda.memcpy_async(use_address(m + 1), use_address(m), 4, NULL));
  OK(u.cuda.stream_synchronize(NULL));
  use_device(&u, 1);
  OK(u.cuda.module_load(&u.module, use_text, 0, NULL, NULL));
  use_two(&u, "poke", NULL, back, 6);
  cr_assert_eq(u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  use_device(&u, 0); /* the other context is sound */
  OK(u.cuda.stream_synchronize(NULL));
}

Test(driver_switches, no_peers) {
  use u;
  int can;
  setenv("GPU_DEVICES", "2", 1);
  setenv("GPU_PEERS", "none", 1);
  use_load(&u);
  OK(u.cuda.device_can_access_peer(&can, 0, 1));
  cr_assert_eq(can, 0);
}

Test(driver_switches, resident_blocks) {
  use u;
  int count;
  colli_cu_function function;
  setenv("GPU_RESIDENT", "3", 1);
  use_start(&u);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u), v = use_stream(&u);
  uint32_t *m = use_memory(&u, 4);
  OK(u.cuda.device_get_attribute(&count, COLLI_CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 0));
  cr_assert_eq(count, 3);
  uint64_t flag = use_address(m), out = use_address(m + 1);
  const uint32_t two[2] = {2, 1};
  OK(use_launch(&u, "spin", two, s, (void *[]){&flag, &out}));
  OK(u.cuda.module_get_function(&function, u.module, "signal"));
  cr_assert_eq(u.cuda.launch_cooperative(function, 4, 1, 1, 1, 1, 1, 0, t, (void *[]){&out}),
               COLLI_CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE);
  u.rounds(5);
  OK(u.cuda.launch_cooperative(function, 2, 1, 1, 1, 1, 1, 0, t, (void *[]){&out}));
  OK(use_launch(&u, "signal", one, v, (void *[]){&(uint64_t){use_address(m + 2)}}));
  OK(u.cuda.stream_synchronize(v)); /* has room beside the first kernel */
  u.rounds(50);
  cr_assert_eq(u.cuda.stream_query(t), COLLI_CUDA_ERROR_NOT_READY);
  use_set(m, 1);
  OK(u.cuda.stream_synchronize(t));
}

/* What the calls that a strict driver holds back work with. */
typedef struct held_call {
  use *u;
  colli_cu_result (*call)(struct held_call *held);
  uint32_t *flag, *memory, own[4];
  void *pinned;
  colli_cu_stream stream;
  colli_cu_module module;
  colli_cu_result result;
  uint32_t flag_then;
} held_call;

static colli_cu_result allocates(held_call *h) {
  colli_cu_deviceptr at;
  colli_cu_result result = h->u->cuda.mem_alloc(&at, 16);
  h->memory = (uint32_t *)(uintptr_t)at;
  return result;
}
static colli_cu_result frees(held_call *h) {
  return h->u->cuda.mem_free(use_address(h->memory));
}
static colli_cu_result pins(held_call *h) {
  return h->u->cuda.mem_host_alloc(&h->pinned, 16, 0);
}
static colli_cu_result unpins(held_call *h) {
  return h->u->cuda.mem_free_host(h->pinned);
}
static colli_cu_result registers(held_call *h) {
  return h->u->cuda.mem_host_register(h->own, sizeof(h->own), 0);
}
static colli_cu_result unregisters(held_call *h) {
  return h->u->cuda.mem_host_unregister(h->own);
}
static colli_cu_result creates_stream(held_call *h) {
  return h->u->cuda.stream_create(&h->stream, 0, 0);
}
static colli_cu_result loads_module(held_call *h) {
  return h->u->cuda.module_load(&h->module, use_text, 0, NULL, NULL);
}
static colli_cu_result unloads_module(held_call *h) {
  return h->u->cuda.module_unload(h->module);
}
/* These two have no handle of another process, so they fail, but late. */
static colli_cu_result opens_handle(held_call *h) {
  colli_cu_deviceptr at;
  return h->u->cuda.ipc_open_mem_handle(&at, (colli_cu_ipc_handle){{0}}, 1) ==
                 COLLI_CUDA_ERROR_INVALID_VALUE
             ? COLLI_CUDA_SUCCESS
             : COLLI_CUDA_ERROR_UNKNOWN;
}
static colli_cu_result closes_handle(held_call *h) {
  return h->u->cuda.ipc_close_mem_handle(use_address(h->flag)) == COLLI_CUDA_ERROR_INVALID_VALUE
             ? COLLI_CUDA_SUCCESS
             : COLLI_CUDA_ERROR_UNKNOWN;
}

static void *call_held(void *argument) {
  held_call *h = argument;
  h->u->cuda.ctx_set_current(h->u->context);
  h->result = h->call(h);
  h->flag_then = __atomic_load_n(h->flag, __ATOMIC_SEQ_CST);
  return NULL;
}

Test(driver_switches, strict) {
  use u;
  colli_cu_result (*const calls[])(held_call *) = {
      allocates,      frees,        pins,           unpins,       registers,    unregisters,
      creates_stream, loads_module, unloads_module, opens_handle, closes_handle};
  setenv("GPU_STRICT", "1", 1);
  use_start(&u);
  uint32_t *m = use_memory(&u, 2);
  colli_cu_stream s = use_stream(&u);
  held_call held = {.u = &u, .flag = m};
  for (size_t i = 0; i < sizeof(calls) / sizeof(*calls); i++) {
    pthread_t thread;
    held.call = calls[i];
    held.result = COLLI_CUDA_ERROR_UNKNOWN;
    use_set(m, 0);
    use_two(&u, "spin", s, m, use_address(m + 1));
    cr_assert_eq(pthread_create(&thread, NULL, call_held, &held), 0);
    u.await_held_back();
    u.rounds(20);
    cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_NOT_READY);
    use_set(m, 1);
    pthread_join(thread, NULL);
    cr_assert_eq(held.result, COLLI_CUDA_SUCCESS, "call %zu", i);
    cr_assert_eq(held.flag_then, 1, "call %zu", i);
  }
}

Test(driver_switches, not_strict) {
  use u;
  use_start(&u);
  colli_cu_stream s = use_stream(&u);
  uint32_t *m = use_memory(&u, 2);
  use_two(&u, "spin", s, m, use_address(m + 1));
  use_memory(&u, 1);
  use_stream(&u);
  OK(u.cuda.module_load(&u.module, use_text, 0, NULL, NULL));
  cr_assert_eq(u.cuda.stream_query(s), COLLI_CUDA_ERROR_NOT_READY);
  use_set(m, 1);
  OK(u.cuda.stream_synchronize(s));
}

/* Lets one block tell another something without any order, under the weak model. */
static void pass_weakly(int seed) {
  use u;
  char text[20];
  const uint32_t size[2] = {2, 1};
  snprintf(text, sizeof(text), "%d", seed);
  setenv("GPU_SEED", text, 1);
  setenv("GPU_MODEL", "weak", 1);
  use_start(&u);
  uint32_t *m = use_memory(&u, 100);
  uint64_t data = use_address(m), flag = use_address(m + 80), out = use_address(m + 96);
  OK(use_launch(&u, "pass", size, NULL, (void *[]){&data, &flag, &out}));
  OK(u.cuda.stream_synchronize(NULL));
  _exit(m[96] == 41 ? 1 : m[96] == 0 ? 2 : 3);
}

Test(driver_switches, weak_and_seeds) {
  int seen[4] = {0}, first[16];
  for (int seed = 0; seed < 16; seed++) {
    first[seed] = in_child(pass_weakly, seed);
    seen[first[seed] & 3]++;
  }
  cr_assert(seen[1] && seen[2] && !seen[3] && !seen[0], "%d %d", seen[1], seen[2]);
  for (int seed = 0; seed < 4; seed++)
    cr_assert_eq(in_child(pass_weakly, seed), first[seed]);
}

/* Launches a kernel with a race in it, or without. */
static void race(use *u, uint32_t threads) {
  const uint32_t size[2] = {1, threads};
  setenv("GPU_MODEL", "races", 1);
  use_start(u);
  uint32_t *m = use_memory(u, 1), value = 1;
  uint64_t at = use_address(m);
  OK(use_launch(u, "poke", size, NULL, (void *[]){&at, &value}));
  OK(u->cuda.stream_synchronize(NULL));
}

Test(driver_switches, races) {
  use u;
  race(&u, 2);
  cr_assert_gt(u.take_races(), 0);
  cr_assert_eq(u.take_races(), 0);
}

/* Makes the same race often, then another one, and writes what is told to `path`. */
static void make_races(const char *path) {
  use u;
  const uint32_t size[2] = {1, 2}, two[2] = {2, 1};
  CHECK(freopen(path, "w", stderr));
  setenv("GPU_MODEL", "races", 1);
  use_start(&u);
  uint32_t *m = use_memory(&u, 100), value = 1;
  uint64_t at = use_address(m), flag = use_address(m + 64), out = use_address(m + 96);
  for (int i = 0; i < 40; i++)
    OK(use_launch(&u, "poke", size, NULL, (void *[]){&at, &value}));
  OK(use_launch(&u, "pass", two, NULL, (void *[]){&at, &flag, &out}));
  OK(u.cuda.stream_synchronize(NULL));
  CHECK(u.take_races() > 40);
  fclose(stderr);
}

Test(driver_switches, each_race_is_told_once) {
  char path[] = "/tmp/fake_gpu_races.XXXXXX", line[512];
  int status, told[2] = {0};
  const int fd = mkstemp(path);
  cr_assert_geq(fd, 0);
  close(fd);
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    make_races(path);
    _exit(0);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  FILE *file = fopen(path, "r");
  cr_assert(file);
  while (fgets(line, sizeof(line), file)) {
    told[0] += strstr(line, "race: kernel poke") != NULL;
    told[1] += strstr(line, "race: kernel pass") != NULL;
  }
  fclose(file);
  unlink(path);
  cr_assert_eq(status, 0);
  cr_assert(told[0] == 1 && told[1] == 1, "%d %d", told[0], told[1]);
}

Test(driver_switches, no_races) {
  use u;
  race(&u, 1);
  cr_assert_eq(u.take_races(), 0);
}

/* Calls some functions until one fails; exits with the number of the call. */
static void calls_until_failure(int fail) {
  colli_cuda cuda;
  char text[20];
  int count, call = 0;
  coll_error error = {.size = sizeof(error)};
  snprintf(text, sizeof(text), "%d", fail);
  setenv("GPU_FAIL", text, 1);
  if (colli_cuda_load(&cuda, FAKE_GPU, &error) != COLL_OK)
    _exit(strstr(error.message, "cuInit failed with error 999")               ? 1
          : strstr(error.message, "cuDriverGetVersion failed with error 999") ? 2
                                                                              : 100);
  for (call = 3; call < 20; call++)
    if (cuda.device_get_count(&count) == COLLI_CUDA_ERROR_UNKNOWN)
      break;
  _exit(call);
}

Test(driver_switches, calls_fail) {
  for (int fail = 1; fail < 6; fail++)
    cr_assert_eq(in_child(calls_until_failure, fail), fail);
  cr_assert_eq(in_child(calls_until_failure, 0), 20);
}

Test(driver_switches, no_ipc) {
  use u;
  colli_cu_ipc_handle handle;
  unsigned can = 77;
  colli_cu_pointer_attribute capable = COLLI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE;
  setenv("GPU_NO_IPC", "1", 1);
  use_start(&u);
  uint32_t *m = use_memory(&u, 1);
  cr_assert_eq(u.cuda.ipc_get_mem_handle(&handle, use_address(m)), COLLI_CUDA_ERROR_NOT_SUPPORTED);
  OK(u.cuda.pointer_get_attributes(1, &capable, (void *[]){&can}, use_address(m)));
  cr_assert_eq(can, 0);
}

Test(driver_switches, bad_ones) {
  colli_cuda cuda;
  setenv("GPU_MODEL", "strong", 1);
  cr_assert_eq(colli_cuda_load(&cuda, FAKE_GPU, NULL), COLL_ERR_UNSUPPORTED);
  setenv("GPU_MODEL", "plain", 1);
  setenv("GPU_PEERS", "0110", 1); /* for one device */
  cr_assert_eq(colli_cuda_load(&cuda, FAKE_GPU, NULL), COLL_ERR_UNSUPPORTED);
}

static int flushes;

static void count_flush(void) {
  flushes++;
}

/* A dma-buf is the memory from its range on; what is no range of pages has none. */
Test(driver_switches, dma_buf) {
  use u;
  colli_cu_deviceptr at;
  int fd = -1;
  char byte;
  setenv("GPU_RDMA", "2", 1);
  use_start(&u);
  void (*on_flush)(void (*function)(void));
  void *symbol = dlsym(u.cuda.handle, "fake_gpu_on_flush");
  CHECK(symbol);
  memcpy(&on_flush, &symbol, sizeof(symbol));
  on_flush(count_flush);
  OK(u.cuda.mem_alloc(&at, 12289));
  ((char *)u.place(at))[8192] = 77;
  const int type = COLLI_CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD;
  OK(u.cuda.mem_get_range_handle(&fd, at + 8192, 8192, type, 0));
  cr_assert(read(fd, &byte, 1) == 1 && byte == 77);
  close(fd);
  const colli_cu_result invalid = COLLI_CUDA_ERROR_INVALID_VALUE;
  cr_assert_eq(u.cuda.mem_get_range_handle(&fd, at + 1, 4096, type, 0), invalid);
  cr_assert_eq(u.cuda.mem_get_range_handle(&fd, at, 4095, type, 0), invalid);
  cr_assert_eq(u.cuda.mem_get_range_handle(&fd, at + 8192, 12288, type, 0), invalid);
  OK(u.cuda.flush_rdma_writes(0, COLLI_CU_FLUSH_GPU_DIRECT_RDMA_WRITES_TO_OWNER));
  cr_assert_eq(u.cuda.flush_rdma_writes(0, 1), invalid);
  cr_assert_eq(flushes, 1);
}
