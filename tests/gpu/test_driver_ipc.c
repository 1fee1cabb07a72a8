/* test_driver_ipc.c: the fake driver in two processes that share memory by handles. */
#include <criterion/criterion.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_ipc, .timeout = 60);

/* A pipe in each direction. */
typedef struct pipes {
  int to_child[2], to_parent[2];
} pipes;

/* Sends, or receives, a message; the other process may be gone. */
static void tell(int fd, const void *message, size_t bytes) {
  CHECK(write(fd, message, bytes) == (ssize_t)bytes);
}
static void hear(int fd, void *message, size_t bytes) {
  CHECK(read(fd, message, bytes) == (ssize_t)bytes);
}

/* Opens the parent's memory, changes it by a fill, and at last by a kernel. */
static void child_main(const pipes *p) {
  use u;
  colli_cu_ipc_handle handle, odd;
  colli_cu_deviceptr at, again;
  use_start(&u);
  hear(p->to_child[0], &handle, sizeof(handle));
  OK(u.cuda.ipc_open_mem_handle(&at, handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  OK(u.cuda.ipc_open_mem_handle(&again, handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
  CHECK(at == again);
  OK(u.cuda.ipc_close_mem_handle(again));
  memset(&odd, 1, sizeof(odd));
  CHECK(u.cuda.ipc_open_mem_handle(&again, odd, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
        COLLI_CUDA_ERROR_INVALID_VALUE);
  CHECK(u.cuda.mem_free(at) == COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.memset_d32_async(at + 8, 17, 2, NULL));
  OK(u.cuda.stream_synchronize(NULL));
  tell(p->to_parent[1], &at, sizeof(at));
  hear(p->to_child[0], &again, sizeof(again)); /* the parent's kernel spins */
  const uint32_t one[2] = {1, 1};
  OK(use_launch(&u, "signal", one, NULL, (void *[]){&at}));
  OK(u.cuda.stream_synchronize(NULL));
  hear(p->to_child[0], &odd, sizeof(odd)); /* of memory that was freed */
  CHECK(u.cuda.ipc_open_mem_handle(&again, odd, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS) ==
        COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.ipc_close_mem_handle(at));
  CHECK(u.cuda.ipc_close_mem_handle(at) == COLLI_CUDA_ERROR_INVALID_VALUE);
  _exit(0);
}

Test(driver_ipc, two_processes) {
  use u;
  pipes p;
  colli_cu_ipc_handle handle;
  colli_cu_deviceptr at;
  int status;
  cr_assert(pipe(p.to_child) == 0 && pipe(p.to_parent) == 0);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(60);
    close(p.to_child[1]);
    close(p.to_parent[0]);
    child_main(&p);
  }
  close(p.to_child[0]);
  close(p.to_parent[1]);
  use_start(&u);
  uint32_t *m = use_memory(&u, 5000);
  cr_assert_eq(u.cuda.ipc_get_mem_handle(&handle, use_address(m + 1)),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.ipc_get_mem_handle(&handle, use_address(m)));
  cr_assert_eq(u.cuda.ipc_open_mem_handle(&at, handle, COLLI_CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS),
               COLLI_CUDA_ERROR_INVALID_CONTEXT);
  tell(p.to_child[1], &handle, sizeof(handle));
  hear(p.to_parent[0], &at, sizeof(at));
  cr_assert(m[2] == 17 && m[3] == 17 && m[4] == 0);
  use_two(&u, "spin", NULL, m, use_address(m + 1));
  u.rounds(5);
  tell(p.to_child[1], &at, sizeof(at));
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(m[1], 1);
  uint32_t *gone = use_memory(&u, 1);
  OK(u.cuda.ipc_get_mem_handle(&handle, use_address(gone)));
  OK(u.cuda.mem_free(use_address(gone)));
  u.rounds(2);       /* the worker unmaps it */
  use_memory(&u, 1); /* takes the number of its file */
  tell(p.to_child[1], &handle, sizeof(handle));
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(status, 0);
}

/* Memory of the host that both processes see, registered. */
static uint32_t *shared_memory(void) {
  void *at = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  return at;
}

static void register_it(use *u, uint32_t *m) {
  use_start(u);
  OK(u->cuda.mem_host_register(
      m, 4096, COLLI_CU_MEMHOSTREGISTER_PORTABLE | COLLI_CU_MEMHOSTREGISTER_DEVICEMAP));
}

/* Waits for the parent's values in a stream and in a kernel, and answers each time. */
static void answer(uint32_t *m) {
  use u;
  register_it(&u, m);
  colli_cu_stream s = use_stream(&u), t = use_stream(&u);
  for (uint32_t round = 1; round <= 5; round++) {
    OK(u.cuda.stream_wait_value_32(s, use_address(m), round, COLLI_CU_STREAM_WAIT_VALUE_GEQ));
    OK(u.cuda.stream_write_value_32(s, use_address(m + 1), round, 0));
  }
  use_two(&u, "spin", t, m + 2, use_address(m + 3));
  OK(u.cuda.stream_synchronize(s));
  OK(u.cuda.stream_synchronize(t));
  _exit(0);
}

Test(driver_ipc, registered_memory) {
  use u;
  int status;
  uint32_t *m = shared_memory();
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(60);
    answer(m);
  }
  register_it(&u, m);
  colli_cu_stream s = use_stream(&u);
  for (uint32_t round = 1; round <= 5; round++) {
    colli_cu_mem_op ops[2] = {
        {.write = {COLLI_CU_STREAM_MEM_OP_WRITE_VALUE_32, use_address(m), round, 0, 0}},
        {.wait = {COLLI_CU_STREAM_MEM_OP_WAIT_VALUE_32, use_address(m + 1), round,
                  COLLI_CU_STREAM_WAIT_VALUE_EQ, 0}}};
    const unsigned host = round % 2; /* then this thread writes the value, and tells nobody */
    OK(u.cuda.stream_batch_mem_op(s, 2 - host, ops + host, 0));
    if (host)
      use_set(m, round);
    OK(u.cuda.stream_synchronize(s));
  }
  use_set(m + 2, 1);
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(status, 0);
  cr_assert(m[1] == 5 && m[3] == 1);
}
