/* test_driver_hidden.c: GPU_HIDDEN: the processor cannot access memory of devices, and all else
 * can.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_hidden, .timeout = 60);

enum { CAUGHT = 42 };

static void hide(use *u) {
  setenv("GPU_HIDDEN", "1", 1);
  use_start(u);
}

/* Memory of the device, as programs know it, set to 0. */
static colli_cu_deviceptr take(use *u, size_t count) {
  return use_address(use_memory(u, count));
}

/* Words of the device by a copy. */
static void read_words(use *u, uint32_t *to, colli_cu_deviceptr from, size_t count) {
  OK(u->cuda.memcpy_dtoh_async(to, from, count * sizeof(*to), NULL));
  OK(u->cuda.stream_synchronize(NULL));
}

static uint32_t word(use *u, colli_cu_deviceptr at) {
  uint32_t value = 0;
  read_words(u, &value, at, 1);
  return value;
}

/* What the child accesses. */
static volatile uint32_t *touched;

/* Says whether it was the access that was meant. */
static void caught(int signal, siginfo_t *info, void *context) {
  (void)signal;
  (void)context;
  _exit(info->si_addr == (void *)(uintptr_t)touched ? CAUGHT : 1);
}

/* How a child ends that reads, or writes, a word. */
static int end_of_access(colli_cu_deviceptr at, bool write) {
  int status;
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    struct sigaction action = {.sa_sigaction = caught, .sa_flags = SA_SIGINFO};
    touched = (uint32_t *)(uintptr_t)at;
    sigaction(SIGSEGV, &action, NULL);
    if (write)
      *touched = 1;
    else
      (void)*touched;
    _exit(0);
  }
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status));
  return WEXITSTATUS(status);
}

/* Maps an allocation at addresses of its own. */
static colli_cu_deviceptr take_virtual(use *u) {
  size_t granule;
  colli_cu_deviceptr at;
  colli_cu_allocation a;
  const colli_cu_allocation_prop prop = {.type = COLLI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                         .location = {COLLI_CU_MEM_LOCATION_TYPE_DEVICE, 0}};
  const colli_cu_access access = {prop.location, COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
  OK(u->cuda.mem_get_granularity(&granule, &prop, COLLI_CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  OK(u->cuda.mem_create(&a, granule, &prop, 0));
  OK(u->cuda.mem_address_reserve(&at, granule, 0, 0, 0));
  OK(u->cuda.mem_map(at, granule, 0, a, 0));
  OK(u->cuda.mem_set_access(at, granule, &access, 1));
  return at;
}

Test(driver_hidden, the_processor_cannot) {
  use u;
  static uint32_t own[4];
  void *pinned;
  hide(&u);
  const colli_cu_deviceptr plain = take(&u, 3000), mapped = take_virtual(&u);
  OK(u.cuda.mem_host_alloc(&pinned, 16, 0));
  OK(u.cuda.mem_host_register(own, sizeof(own), 0));
  for (int write = 0; write < 2; write++) {
    cr_assert_eq(end_of_access(plain, write), CAUGHT);
    cr_assert_eq(end_of_access(plain + 2999 * 4, write), CAUGHT);
    cr_assert_eq(end_of_access(mapped + 8, write), CAUGHT);
    cr_assert_eq(end_of_access(use_address(pinned), write), 0);
    cr_assert_eq(end_of_access(use_address(own), write), 0);
  }
}

Test(driver_hidden, another_process_cannot) {
  use u;
  int pipes[2], status;
  colli_cu_ipc_handle handle;
  colli_cu_deviceptr at;
  cr_assert_eq(pipe(pipes), 0);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  hide(&u);
  if (child == 0) {
    alarm(60);
    CHECK(read(pipes[0], &handle, sizeof(handle)) == (ssize_t)sizeof(handle));
    OK(u.cuda.ipc_open_mem_handle(&at, handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
    OK(u.cuda.stream_write_value_32(NULL, at + 4, 5, 0));
    OK(u.cuda.stream_synchronize(NULL));
    _exit(end_of_access(at, false));
  }
  at = take(&u, 2);
  OK(u.cuda.ipc_get_mem_handle(&handle, at));
  cr_assert_eq(write(pipes[1], &handle, sizeof(handle)), (ssize_t)sizeof(handle));
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == CAUGHT);
  cr_assert_eq(word(&u, at + 4), 5);
}

Test(driver_hidden, all_else_can) {
  use u;
  uint32_t own[4] = {1, 2, 3, 4}, back[8];
  hide(&u);
  use_stream(&u); /* has the default stream's queue */
  colli_cu_stream s = use_stream(&u);
  const colli_cu_deviceptr plain = take(&u, 8), mapped = take_virtual(&u);
  use_two(&u, "spin", s, (void *)plain, mapped);
  OK(u.cuda.stream_write_value_32(NULL, plain, 1, 0));
  OK(u.cuda.stream_wait_value_32(NULL, mapped, 1, COLLI_CU_STREAM_WAIT_VALUE_EQ));
  OK(u.cuda.memcpy_htod_async(plain, own, sizeof(own), NULL));
  use_two(&u, "shift", NULL, (void *)(plain + 16), plain);
  OK(u.cuda.memset_d32_async(plain + 4, 9, 1, NULL));
  OK(u.cuda.memcpy_dtod_async(mapped + 4, plain + 16, 8, NULL));
  OK(u.cuda.memcpy_async(plain, mapped, 4, NULL));
  use_two(&u, "add", NULL, (void *)(plain + 28), 6);
  use_two(&u, "add", NULL, (void *)(plain + 28), 7);
  read_words(&u, back, plain, 8);
  const uint32_t expected[] = {1, 9, 3, 4, 1, 2, 3, 17};
  cr_assert_arr_eq(back, expected, sizeof(expected));
  cr_assert(word(&u, mapped + 4) == 1 && word(&u, mapped + 8) == 2);
  OK(u.cuda.stream_synchronize(s));
}
