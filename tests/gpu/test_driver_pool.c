/* test_driver_pool.c: the fake driver's pools of memory, in one process and between two. */
#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_pool, .timeout = 60);

enum { BYTES = 8192 };

/* A pool on a device. */
static colli_cu_pool make(use *u, int device, bool shared) {
  colli_cu_pool pool;
  const colli_cu_pool_props props = {.type = COLLI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .handle_types =
                                         shared ? COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                : COLLI_CU_MEM_HANDLE_TYPE_NONE,
                                     .location = {COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device}};
  OK(u->pool_create(&pool, &props));
  return pool;
}

/* Memory of a pool. */
static colli_cu_deviceptr take(use *u, colli_cu_pool pool) {
  colli_cu_deviceptr at;
  OK(u->pool_alloc(&at, BYTES, pool, NULL));
  memset(use_place(u, at), 0, BYTES);
  return at;
}

static colli_cu_result allow(use *u, colli_cu_pool pool, int device, int flags) {
  const colli_cu_access access = {{COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return u->cuda.pool_set_access(pool, &access, 1);
}

/* What the driver says of an address. */
static void look(use *u, colli_cu_deviceptr at, unsigned *type, unsigned *plain,
                 colli_cu_pool *pool) {
  colli_cu_pointer_attribute attributes[] = {COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                             COLLI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                             COLLI_CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  OK(u->cuda.pointer_get_attributes(3, attributes, (void *[]){type, plain, pool}, at));
}

Test(driver_pool, attributes) {
  use u;
  unsigned type, plain;
  colli_cu_pool found;
  colli_cu_deviceptr base, other;
  size_t bytes;
  use_start(&u);
  colli_cu_pool pool = make(&u, 0, true);
  const colli_cu_deviceptr at = take(&u, pool);
  look(&u, at + 100, &type, &plain, &found);
  cr_assert(type == COLLI_CU_MEMORYTYPE_DEVICE && !plain && found == pool);
  OK(u.cuda.mem_get_address_range(&base, &bytes, at + 100));
  cr_assert(base == at && bytes == BYTES);
  OK(u.cuda.mem_alloc(&other, BYTES));
  look(&u, other, &type, &plain, &found);
  cr_assert(plain && !found);
  OK(u.pool_free(at, NULL));
  look(&u, at, &type, &plain, &found);
  cr_assert(type == 0 && !found);
  OK(u.cuda.pool_destroy(pool));
  cr_assert_eq(u.cuda.pool_destroy(pool), COLLI_CUDA_ERROR_INVALID_VALUE);
}

/* A pool that is destroyed remains until its memory is freed, which cuMemFree() can do, too. */
Test(driver_pool, destroyed_first) {
  use u;
  use_start(&u);
  colli_cu_pool pool = make(&u, 0, false);
  const colli_cu_deviceptr at = take(&u, pool);
  OK(u.cuda.pool_destroy(pool));
  use_two(&u, "poke", NULL, use_place(&u, at), 5);
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(*use_place(&u, at), 5);
  OK(u.cuda.mem_free(at));
  cr_assert_eq(u.cuda.mem_free(at), COLLI_CUDA_ERROR_INVALID_VALUE);
}

/* Another device has no access until it is allowed. */
Test(driver_pool, access) {
  use u;
  setenv("GPU_DEVICES", "2", 1);
  use_start(&u);
  colli_cu_pool pool = make(&u, 1, false);
  const colli_cu_deviceptr at = take(&u, pool);
  OK(allow(&u, pool, 0, COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
  use_two(&u, "poke", NULL, use_place(&u, at), 5);
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(*use_place(&u, at), 5);
  cr_assert_eq(allow(&u, pool, 1, 0), COLLI_CUDA_ERROR_INVALID_DEVICE);
  cr_assert_eq(allow(&u, pool, 2, 3), COLLI_CUDA_ERROR_INVALID_DEVICE);
  OK(allow(&u, pool, 0, 0));
  use_two(&u, "poke", NULL, use_place(&u, at), 6);
  cr_assert_eq(u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  cr_assert_eq(*use_place(&u, at), 5);
}

Test(driver_pool, what_is_refused) {
  use u;
  int fd = -1;
  colli_cu_deviceptr at;
  colli_cu_pool_pointer pointer;
  use_start(&u);
  colli_cu_pool pool = make(&u, 0, false), imported;
  const int type = COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  cr_assert_eq(u.cuda.pool_export(&fd, pool, type, 0), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(u.cuda.pool_export_pointer(&pointer, take(&u, pool)),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.mem_alloc(&at, BYTES));
  cr_assert_eq(u.cuda.pool_export_pointer(&pointer, at), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(u.pool_free(at, NULL), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(u.pool_alloc(&at, 0, pool, NULL), COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(u.cuda.pool_import(&imported, (void *)(intptr_t)STDIN_FILENO, type, 0),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  colli_cu_pool shared = make(&u, 0, true), other = make(&u, 0, true);
  cr_assert_eq(u.cuda.pool_export(&fd, shared, COLLI_CU_MEM_HANDLE_TYPE_FABRIC, 0),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.pool_export_pointer(&pointer, take(&u, shared)));
  cr_assert_eq(u.cuda.pool_import_pointer(&at, shared, &pointer), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.pool_export(&fd, other, type, 0));
  OK(u.cuda.pool_import(&imported, (void *)(intptr_t)fd, type, 0));
  cr_assert_eq(u.cuda.pool_import_pointer(&at, imported, &pointer), COLLI_CUDA_ERROR_INVALID_VALUE,
               "an allocation of another pool");
  cr_assert_eq(u.pool_alloc(&at, BYTES, imported, NULL), COLLI_CUDA_ERROR_INVALID_VALUE);
}

/* What the parent sends. The descriptor is taken from there as the kernel lets a debugger do. */
typedef struct sent {
  int fd;
  colli_cu_pool_pointer pointer;
} sent;

/* The child: writes where the parent has memory of a pool. */
static void import(int from, pid_t parent) {
  use u;
  sent it;
  char path[64];
  colli_cu_pool pool;
  colli_cu_deviceptr at;
  use_start(&u);
  CHECK(read(from, &it, sizeof(it)) == (ssize_t)sizeof(it));
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)parent, it.fd);
  FILE *file = fopen(path, "r");
  CHECK(file);
  OK(u.cuda.pool_import(&pool, (void *)(intptr_t)fileno(file),
                        COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  OK(u.cuda.pool_import_pointer(&at, pool, &it.pointer));
  CHECK(*use_place(&u, at) == 3);
  use_two(&u, "poke", NULL, use_place(&u, at), 4);
  OK(u.cuda.stream_synchronize(NULL));
  OK(u.cuda.mem_free(at));
  OK(u.cuda.pool_destroy(pool));
  _exit(0);
}

Test(driver_pool, two_processes) {
  use u;
  int pipes[2], status;
  const pid_t parent = getpid();
  cr_assert_eq(pipe(pipes), 0);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(60);
    close(pipes[1]);
    import(pipes[0], parent);
  }
  sent it;
  use_start(&u);
  colli_cu_pool pool = make(&u, 0, true);
  const colli_cu_deviceptr at = take(&u, pool);
  *use_place(&u, at) = 3;
  OK(u.cuda.pool_export_pointer(&it.pointer, at));
  OK(u.cuda.pool_export(&it.fd, pool, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  cr_assert_eq(write(pipes[1], &it, sizeof(it)), (ssize_t)sizeof(it));
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(status, 0);
  cr_assert_eq(*use_place(&u, at), 4);
}

Test(driver_pool, no_ipc) {
  use u;
  int fd;
  colli_cu_pool_pointer pointer;
  setenv("GPU_NO_IPC", "1", 1);
  use_start(&u);
  colli_cu_pool pool = make(&u, 0, true);
  cr_assert_eq(u.cuda.pool_export(&fd, pool, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               COLLI_CUDA_ERROR_NOT_SUPPORTED);
  cr_assert_eq(u.cuda.pool_export_pointer(&pointer, take(&u, pool)),
               COLLI_CUDA_ERROR_NOT_SUPPORTED);
}
