/*
 * test_pool.c: coll_comm_register() of memory of pools (cuMemAllocFromPoolAsync()): ranks of other
 * processes and on other devices read it where it is; what is refused; failures of the driver,
 * after which nothing is left. How descriptors travel, and what happens if ranks end meanwhile, is
 * in test_virtual.c.
 */
#include <criterion/criterion.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "support_scene.h"
#include "support_sharing.h"
#include "tests/gpu/driver/use.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 3, BYTES = SHARING_BYTES };

TestSuite(pools, .timeout = 200);

/* A pool of the program, and two allocations of it. */
typedef struct pooled {
  use u;
  colli_cu_pool pool;
  char *at[2];
} pooled;

static pooled take(const colli_cuda *cuda, int device, bool shared) {
  pooled it;
  use *u = &it.u;
  u->cuda = *cuda;
  USE_FIND(pool_create, "cuMemPoolCreate");
  USE_FIND(pool_alloc, "cuMemAllocFromPoolAsync");
  USE_FIND(pool_free, "cuMemFreeAsync");
  const colli_cu_pool_props props = {.type = COLLI_CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .handle_types =
                                         shared ? COLLI_CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
                                                : COLLI_CU_MEM_HANDLE_TYPE_NONE,
                                     .location = {COLLI_CU_MEM_LOCATION_TYPE_DEVICE, device}};
  OK(u->pool_create(&it.pool, &props));
  for (int i = 0; i < 2; i++)
    OK(u->pool_alloc((colli_cu_deviceptr *)(void *)&it.at[i], 2 * BYTES, it.pool,
                     sharing_stream()));
  device_await(sharing_stream());
  return it;
}

static void give(const pooled *it) {
  for (int i = 0; i < 2; i++)
    OK(it->u.pool_free((colli_cu_deviceptr)it->at[i], sharing_stream()));
  device_await(sharing_stream());
  OK(it->u.cuda.pool_destroy(it->pool));
}

/* Registers part of one allocation and all of another one, of the same pool, and uses both. */
static int use_pool(coll_comm *comm, int rank, int nranks, bool shared) {
  const pooled mine = take(&comm->gpu->cuda, device_of_rank(rank), shared);
  coll_registration *part, *whole;
  RANK_OK(coll_comm_register(comm, mine.at[0] + 256, BYTES, &part));
  RANK_OK(coll_comm_register(comm, mine.at[1], 2 * BYTES, &whole));
  RANK_CHECK(sharing_add_up(comm, rank, nranks, part, mine.at[0] + 256) == 0);
  RANK_CHECK(sharing_add_up(comm, rank, nranks, whole, mine.at[1] + BYTES) == 0);
  RANK_OK(coll_comm_deregister(comm, &part));
  RANK_CHECK(sharing_add_up(comm, rank, nranks, whole, mine.at[1]) == 0);
  RANK_OK(coll_comm_deregister(comm, &whole));
  give(&mine);
  return 0;
}

static int use_shared(coll_comm *comm, int rank, int nranks) {
  return use_pool(comm, rank, nranks, true);
}

Test(pools, processes) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  EACH_MODE(mode, MODE_ORDERED, MODE_SPIN)
    for (int nranks = 2; nranks <= 4; nranks++)
      cr_expect_eq(
          run_processes(nranks, NULL, scene_play, scene_make(use_shared), SCENE_LIMIT_S, NULL), 0,
          "%d ranks, mode %d", nranks, mode);
}

/* Ranks of one process need no descriptors, whatever their devices. */
static int use_threads(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  return use_pool(comm, rank, nranks, false);
}

Test(pools, threads) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  setenv("GPU_QUEUES", "128", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    cr_expect_eq(run_threads(RANKS, NULL, use_threads, NULL), 0, "mode %d", mode);
}

/* The last rank's pool was not made for that, or its memory is too short. */
static int refuse_all(coll_comm *comm, int rank, int nranks) {
  const int device = device_of_rank(rank);
  const bool last = rank == nranks - 1;
  const pooled good = take(&comm->gpu->cuda, device, true);
  const pooled secret = take(&comm->gpu->cuda, device, false);
  coll_registration *it;
  RANK_CHECK(device_refused(
      comm, coll_comm_register(comm, last ? secret.at[0] : good.at[0], BYTES, &it),
      COLL_ERR_UNSUPPORTED,
      "says rank 0: rank 2's pool gives no descriptors: make one with the handle type "
      "POSIX_FILE_DESCRIPTOR"));
  RANK_CHECK(device_refused(
      comm, coll_comm_register(comm, good.at[0] + (last ? BYTES + 4 : 0), BYTES, &it),
      COLL_ERR_INVALID_ARGUMENT, "says rank 2: 12000 bytes are more than the allocation has"));
  RANK_CHECK(!it && !comm->direct->registered);
  give(&good);
  give(&secret);
  return 0;
}

Test(pools, refused) {
  device_load();
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(refuse_all), SCENE_LIMIT_S, NULL),
               0);
}

/* ---- failures of the driver ------------------------------------------------------------------ */

/* The second call of each fails, at the latest. */
SHARING_FAIL_AT(pool_export,
                (void *shareable, colli_cu_pool pool, colli_cu_handle_type type,
                 unsigned long long flags),
                shareable, pool, type, flags)
SHARING_FAIL_AT(pool_import,
                (colli_cu_pool * pool, void *shareable, colli_cu_handle_type type,
                 unsigned long long flags),
                pool, shareable, type, flags)
SHARING_FAIL_AT(pool_set_access, (colli_cu_pool pool, const colli_cu_access *access, size_t count),
                pool, access, count)
SHARING_FAIL_AT(pool_import_pointer,
                (colli_cu_deviceptr * at, colli_cu_pool pool, colli_cu_pool_pointer *pointer), at,
                pool, pointer)

/* Puts one of them into the table. */
static const char *break_driver(colli_cuda *cuda, int which) {
  switch (which) {
  case 0:
    cuda->pool_export = fail_pool_export;
    return "cuMemPoolExportToShareableHandle";
  case 1:
    cuda->pool_import = fail_pool_import;
    return "cuMemPoolImportFromShareableHandle";
  case 2:
    cuda->pool_set_access = fail_pool_set_access;
    return "cuMemPoolSetAccess";
  default:
    cuda->pool_import_pointer = fail_pool_import_pointer;
    return "cuMemPoolImportPointer";
  }
}
enum { BREAKABLE = 4 };

/* A function of one rank's driver fails, the first time or later: no rank has the memory. */
static int break_all(coll_comm *comm, int rank, int nranks) {
  colli_cuda *cuda = &comm->gpu->cuda;
  const pooled mine = take(cuda, device_of_rank(rank), true);
  coll_registration *it;
  for (int which = 0; which < BREAKABLE; which++)
    RANK_CHECK(sharing_refused(comm, rank, nranks, mine.at[1], BYTES, break_driver, which,
                               nranks - 1) == 0);
  RANK_OK(coll_comm_register(comm, mine.at[1], BYTES, &it));
  RANK_CHECK(sharing_add_up(comm, rank, nranks, it, mine.at[1]) == 0);
  RANK_OK(coll_comm_deregister(comm, &it));
  give(&mine);
  return 0;
}

Test(pools, broken_driver) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(break_all), SCENE_LIMIT_S, NULL),
               0);
}
