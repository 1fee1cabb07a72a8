/* test_driver_virtual.c: the fake driver's memory in three parts: allocations, addresses, mappings.
 */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver/use.h"

TestSuite(driver_virtual, .timeout = 60);

static size_t granule;

/* What an allocation on a device is like. */
static colli_cu_allocation_prop prop_of(int device) {
  return (colli_cu_allocation_prop){.type = COLLI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                    .requested_handle_types =
                                        COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                    .location = {COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device}};
}

/* Loads the driver and makes an allocation of a granule. */
static colli_cu_allocation start(use *u) {
  colli_cu_allocation a;
  const colli_cu_allocation_prop prop = prop_of(0);
  use_start(u);
  OK(u->cuda.mem_get_granularity(&granule, &prop, COLLI_CU_MEM_ALLOC_GRANULARITY_MINIMUM));
  OK(u->cuda.mem_create(&a, granule, &prop, 0));
  return a;
}

/* Addresses for some granules. */
static uint32_t *reserve(use *u, size_t count) {
  colli_cu_deviceptr at;
  OK(u->cuda.mem_address_reserve(&at, count * granule, 0, 0, 0));
  return (uint32_t *)(uintptr_t)at;
}

/* Where the test sees a word that is mapped. */
static uint32_t *look(use *u, const uint32_t *at) {
  return use_place(u, use_address(at));
}

/* Sets what a device may do with some granules. */
static colli_cu_result allow(use *u, const uint32_t *at, size_t count, int device, int flags) {
  const colli_cu_access access = {{COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device}, flags};
  return u->cuda.mem_set_access(use_address(at), count * granule, &access, 1);
}

/* Maps an allocation, and lets a device read and write it. */
static void map(use *u, const uint32_t *at, colli_cu_allocation a, int device) {
  OK(u->cuda.mem_map(use_address(at), granule, 0, a, 0));
  OK(allow(u, at, 1, device, COLLI_CU_MEM_ACCESS_FLAGS_PROT_READWRITE));
}

Test(driver_virtual, neighbours_are_one) {
  use u;
  colli_cu_allocation a = start(&u), b;
  const colli_cu_allocation_prop prop = prop_of(0);
  const size_t words = granule / 4;
  OK(u.cuda.mem_create(&b, granule, &prop, 0));
  uint32_t *m = reserve(&u, 3);
  map(&u, m, a, 0);
  map(&u, m + words, b, 0);
  OK(u.cuda.mem_release(a)); /* the mapping remains */
  use_two(&u, "poke", NULL, m + words - 1, 5);
  OK(u.cuda.memset_d32_async(use_address(m + words), 6, 1, NULL));
  OK(u.cuda.memcpy_async(use_address(m + words - 4), use_address(m + words - 1), 8, NULL));
  OK(u.cuda.memset_d32_async(use_address(m + words - 2), 7, 4, NULL)); /* of both */
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert(*look(&u, m + words - 4) == 5 && *look(&u, m + words - 3) == 6 &&
            *look(&u, m + words - 2) == 7 && *look(&u, m + words + 1) == 7);
  cr_assert_eq(u.cuda.memset_d32_async(use_address(m + 2 * words - 1), 1, 2, NULL),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.mem_unmap(use_address(m), 2 * granule));
  map(&u, m, b, 0);
  cr_assert(*look(&u, m) == 7 && *look(&u, m + 1) == 7);
}

Test(driver_virtual, attributes) {
  use u;
  unsigned type = 0, ordinal = 77, legacy = 77;
  uint64_t types = 0, begin = 0;
  size_t bytes = 0;
  void *context = &u;
  setenv("GPU_DEVICES", "2", 1);
  start(&u);
  colli_cu_allocation a;
  const colli_cu_allocation_prop prop = prop_of(1);
  OK(u.cuda.mem_create(&a, granule, &prop, 0));
  uint32_t *m = reserve(&u, 1);
  map(&u, m, a, 0);
  colli_cu_pointer_attribute wanted[] = {COLLI_CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                         COLLI_CU_POINTER_ATTRIBUTE_CONTEXT,
                                         COLLI_CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                         COLLI_CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                         COLLI_CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES};
  OK(u.cuda.pointer_get_attributes(
      5, wanted, (void *[]){&type, &context, &ordinal, &legacy, &types}, use_address(m + 9)));
  cr_assert_eq(type, COLLI_CU_MEMORYTYPE_DEVICE);
  cr_assert(!context && ordinal == 1 && !legacy);
  cr_assert_eq(types, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
  OK(u.cuda.mem_get_address_range(&begin, &bytes, use_address(m + 9)));
  cr_assert(begin == use_address(m) && bytes == granule);
  OK(u.cuda.mem_unmap(use_address(m), granule));
  OK(u.cuda.pointer_get_attributes(1, wanted, (void *[]){&type}, use_address(m)));
  cr_assert_eq(type, 0);
}

Test(driver_virtual, access) {
  use u;
  setenv("GPU_DEVICES", "2", 1);
  setenv("GPU_PEERS", "0100", 1);
  colli_cu_allocation a = start(&u);
  uint32_t *m = reserve(&u, 1), *own = use_memory(&u, 2);
  OK(u.cuda.mem_map(use_address(m), granule, 0, a, 0));
  cr_assert_eq(u.cuda.memcpy_async(use_address(own), use_address(m), 4, NULL),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  cr_assert_eq(allow(&u, m, 1, 1, 3), COLLI_CUDA_ERROR_INVALID_DEVICE);
  cr_assert_eq(allow(&u, m, 1, 2, 3), COLLI_CUDA_ERROR_INVALID_DEVICE);
  cr_assert_eq(allow(&u, m, 2, 0, 3), COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(allow(&u, m, 1, 0, 1));
  *look(&u, m) = 1;
  use_two(&u, "spin", NULL, m, use_address(own)); /* reads */
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(own[0], 1);
  use_two(&u, "poke", NULL, m, 2);
  cr_assert_eq(u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
}

Test(driver_virtual, access_taken_away) {
  use u;
  colli_cu_allocation a = start(&u);
  uint32_t *m = reserve(&u, 1);
  map(&u, m, a, 0);
  use_two(&u, "poke", NULL, m, 2);
  OK(u.cuda.stream_synchronize(NULL));
  OK(allow(&u, m, 1, 0, 0));
  use_two(&u, "poke", NULL, m, 3);
  cr_assert_eq(u.cuda.stream_synchronize(NULL), COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
  cr_assert_eq(*look(&u, m), 2);
}

Test(driver_virtual, what_is_refused) {
  use u;
  colli_cu_allocation a = start(&u), b;
  colli_cu_allocation_prop prop = prop_of(0);
  colli_cu_deviceptr at;
  const colli_cuda *cuda = &u.cuda;
  const colli_cu_result invalid = COLLI_CUDA_ERROR_INVALID_VALUE;
  cr_assert_eq(cuda->mem_create(&b, granule + 1, &prop, 0), invalid);
  prop.requested_handle_types = COLLI_CU_MEM_HANDLE_TYPE_FABRIC;
  cr_assert_eq(cuda->mem_create(&b, granule, &prop, 0), COLLI_CUDA_ERROR_NOT_SUPPORTED);
  prop = prop_of(1);
  cr_assert_eq(cuda->mem_create(&b, granule, &prop, 0), COLLI_CUDA_ERROR_INVALID_DEVICE);
  cr_assert_eq(cuda->mem_address_reserve(&at, granule, 3, 0, 0), invalid);
  OK(cuda->mem_address_reserve(&at, granule, 8 * granule, 0, 0));
  cr_assert_eq(at % (8 * granule), 0);
  cr_assert_eq(cuda->mem_address_free(at, 2 * granule), invalid);
  cr_assert_eq(cuda->mem_map(at, 2 * granule, 0, a, 0), invalid);
  cr_assert_eq(cuda->mem_map(at + granule, granule, 0, a, 0), invalid);
  OK(cuda->mem_map(at, granule, 0, a, 0));
  cr_assert_eq(cuda->mem_map(at, granule, 0, a, 0), invalid);
  cr_assert_eq(cuda->mem_address_free(at, granule), invalid);
  cr_assert_eq(cuda->mem_unmap(at, granule / 2), invalid);
  cr_assert_eq(cuda->mem_unmap(at + granule / 2, granule / 2), invalid);
  cr_assert_eq(cuda->mem_free(at), invalid);
  OK(cuda->mem_release(a));
  cr_assert_eq(cuda->mem_release(a), invalid);
  OK(cuda->mem_retain_allocation_handle(&b, (void *)(uintptr_t)at));
  cr_assert_eq(b, a);
  OK(cuda->mem_unmap(at, granule));
  cr_assert_eq(cuda->mem_unmap(at, granule), invalid);
  OK(cuda->mem_map(at, granule, 0, b, 0));
  OK(cuda->mem_unmap(at, granule));
  OK(cuda->mem_release(b));
  OK(cuda->mem_address_free(at, granule));
  cr_assert_eq(cuda->mem_address_free(at, granule), invalid);
}

Test(driver_virtual, unmapped_while_a_kernel_runs) {
  use u;
  colli_cu_allocation a = start(&u), b;
  const colli_cu_allocation_prop prop = prop_of(0);
  OK(u.cuda.mem_create(&b, granule, &prop, 0));
  uint32_t *m = reserve(&u, 2), *other = reserve(&u, 1), *flag = use_memory(&u, 2);
  const size_t words = granule / 4;
  map(&u, m, a, 0);
  use_two(&u, "spin", NULL, flag, use_address(flag + 1));
  OK(u.cuda.mem_unmap(use_address(m), granule));
  map(&u, m, b, 0);
  OK(u.cuda.mem_map(use_address(m + words), granule, 0, a, 0));
  *look(&u, m) = 8;
  OK(u.cuda.mem_address_free(use_address(other), granule));
  use_set(flag, 1);
  OK(u.cuda.stream_synchronize(NULL));
  u.rounds(2); /* what was unmapped is gone, and took nothing newer with it */
  cr_assert(*look(&u, m) == 8 && *look(&u, m + words) == 0);
}

/* Imports an allocation of the parent, and tells it by a kernel. */
static void import(const int pipes[2], pid_t parent) {
  use u;
  int fd;
  char path[64];
  colli_cu_allocation a;
  start(&u);
  CHECK(read(pipes[0], &fd, sizeof(fd)) == (ssize_t)sizeof(fd));
  snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)parent, fd);
  fd = open(path, O_RDWR);
  CHECK(fd >= 0);
  CHECK(u.cuda.mem_import(&a, (void *)(intptr_t)pipes[0],
                          COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) ==
        COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.mem_import(&a, (void *)(intptr_t)fd, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  close(fd);
  uint32_t *m = reserve(&u, 1);
  map(&u, m, a, 0);
  OK(u.cuda.mem_release(a));
  CHECK(*look(&u, m + 2) == 3);
  const uint32_t one[2] = {1, 1};
  OK(use_launch(&u, "signal", one, NULL, (void *[]){&m}));
  OK(u.cuda.stream_synchronize(NULL));
  _exit(0);
}

Test(driver_virtual, two_processes) {
  use u;
  int pipes[2], status, fd;
  const pid_t parent = getpid();
  cr_assert_eq(pipe(pipes), 0);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    alarm(60);
    close(pipes[1]);
    import(pipes, parent);
  }
  colli_cu_allocation a = start(&u);
  uint32_t *m = reserve(&u, 1);
  map(&u, m, a, 0);
  *look(&u, m + 2) = 3;
  use_two(&u, "spin", NULL, m, use_address(m + 1));
  cr_assert_eq(u.cuda.mem_export(&fd, a, COLLI_CU_MEM_HANDLE_TYPE_FABRIC, 0),
               COLLI_CUDA_ERROR_INVALID_VALUE);
  OK(u.cuda.mem_export(&fd, a, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  cr_assert_eq(write(pipes[1], &fd, sizeof(fd)), (ssize_t)sizeof(fd));
  OK(u.cuda.stream_synchronize(NULL));
  cr_assert_eq(*look(&u, m + 1), 1);
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert_eq(status, 0);
}

Test(driver_virtual, no_ipc) {
  use u;
  int fd;
  setenv("GPU_NO_IPC", "1", 1);
  colli_cu_allocation a = start(&u);
  cr_assert_eq(u.cuda.mem_export(&fd, a, COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
               COLLI_CUDA_ERROR_NOT_SUPPORTED);
}
