/*
 * test_virtual.c: coll_comm_register() of memory that the program has mapped (cuMemMap()), which
 * may consist of several allocations: ranks of other processes and on other devices read it where
 * it is; what is refused; failures of the driver and of ranks while they share it, after which
 * nothing is left.
 */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "extent.h"
#include "libcoll/comm/comm.h"
#include "support_device.h"
#include "support_scene.h"
#include "support_sharing.h"
#include "support_virtual.h"
#include "tests/gpu/driver/use.h"
#include "tests/proc/support_ranks.h"

enum { RANKS = 3, BYTES = SHARING_BYTES };

TestSuite(virtual_memory, .timeout = 200);

/* The letters of virtual_take(): the middle of the first allocation is where the range begins, and
 * calls cross the border to each of the next two. */
static const char *const pieces = "2131";

/* Registers from the middle of an allocation to the middle of another one, and uses it. */
static int use_range(coll_comm *comm, int rank, int nranks, const colli_cuda *cuda, bool shared) {
  const virtual_memory mapped = virtual_take(cuda, device_of_rank(rank), pieces, shared);
  char *at = mapped.at + VIRTUAL_GRANULE + 4096;
  const size_t bytes = mapped.bytes - 2 * VIRTUAL_GRANULE;
  coll_registration *it;
  RANK_OK(coll_comm_register(comm, at, bytes, &it));
  RANK_CHECK(sharing_add_up(comm, rank, nranks, it, at) == 0);
  for (int border = 2; border <= 3; border++)
    RANK_CHECK(sharing_add_up(comm, rank, nranks, it,
                              mapped.at + (size_t)border * VIRTUAL_GRANULE - BYTES / 3) == 0);
  RANK_CHECK(sharing_add_up(comm, rank, nranks, it, at + bytes - BYTES) == 0);
  RANK_OK(coll_comm_deregister(comm, &it));
  virtual_give(cuda, &mapped);
  return 0;
}

/* ---- ranks that are processes ---------------------------------------------------------------- */

static int use_shared(coll_comm *comm, int rank, int nranks) {
  return use_range(comm, rank, nranks, &comm->gpu->cuda, true);
}

Test(virtual_memory, processes) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  EACH_MODE(mode, MODE_ORDERED, MODE_SPIN)
    for (int nranks = 2; nranks <= 4; nranks++)
      cr_expect_eq(
          run_processes(nranks, NULL, scene_play, scene_make(use_shared), SCENE_LIMIT_S, NULL), 0,
          "%d ranks, mode %d", nranks, mode);
}

/* More allocations than descriptors may be on their way; one rank has other memory. On a
 * communicator that was made from another one. */
static int use_many(coll_comm *comm, int rank, int nranks) {
  const colli_cuda *cuda = &comm->gpu->cuda;
  virtual_memory mapped = {NULL, 0};
  char *at;
  coll_registration *it;
  coll_comm *child;
  RANK_OK(coll_comm_dup(comm, NULL, &child));
  RANK_OK(device_share(child));
  if (rank == 1) {
    at = device_memory.take(25 * (size_t)VIRTUAL_GRANULE);
  } else {
    mapped = virtual_take(cuda, device_of_rank(rank),
                          rank == 0 ? "1111111111111111111111111" : "97333", true);
    at = mapped.at;
  }
  RANK_OK(coll_comm_register(child, at, 25 * (size_t)VIRTUAL_GRANULE, &it));
  for (int border = 1; border < 25; border += 23)
    RANK_CHECK(sharing_add_up(child, rank, nranks, it,
                              at + (size_t)border * VIRTUAL_GRANULE - BYTES / 2) == 0);
  RANK_OK(coll_comm_deregister(child, &it));
  RANK_OK(coll_comm_destroy(&child));
  if (rank == 1)
    device_memory.give(at);
  else
    virtual_give(cuda, &mapped);
  return 0;
}

Test(virtual_memory, many) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(use_many), SCENE_LIMIT_S, NULL),
               0);
}

/* ---- ranks that are threads ------------------------------------------------------------------ */

/* No descriptors are needed. What pinned memory threads find free is by chance, but a leak would
 * grow with the turns. */
enum { TURNS = 6 };
static int use_threads(coll_comm *comm, int rank, int nranks, void *arg) {
  const colli_cuda *cuda = device_use(device_of_rank(rank));
  (void)arg;
  RANK_OK(device_share(comm));
  uint64_t held = 0;
  int fds = 0;
  for (int turn = 0; turn < TURNS; turn++) {
    RANK_CHECK(use_range(comm, rank, nranks, cuda, turn % 2) == 0);
    RANK_OK(coll_barrier(comm)); /* nobody holds more than the library keeps for later */
    if (turn == 0)
      held = device_held();
    if (turn == 0)
      fds = count_fds();
    RANK_CHECK(device_held() <= held + 2);
    /* The others may be counting, too, each with a descriptor. */
    RANK_CHECK(count_fds() <= fds + 2 + nranks);
    RANK_OK(coll_barrier(comm));
  }
  return 0;
}

Test(virtual_memory, threads) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  setenv("GPU_QUEUES", "128", 1);
  device_use(0);
  EACH_MODE(mode, MODE_ORDERED, MODE_MEET)
    for (int nranks = 2; nranks <= 4; nranks++)
      cr_expect_eq(run_threads(nranks, NULL, use_threads, NULL), 0, "%d ranks, mode %d", nranks,
                   mode);
}

/* What no other device has: the driver shares nothing. */
static int use_unshared(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_registration *it;
  (void)arg;
  (void)nranks;
  device_use(device_of_rank(rank));
  RANK_OK(device_share(comm));
  char *at = device_memory.take(BYTES);
  RANK_CHECK(device_refused(comm, coll_comm_register(comm, at, BYTES, &it), COLL_ERR_UNSUPPORTED,
                            "says rank 0: rank 1's memory is shared with no other device"));
  RANK_CHECK(device_refused(comm, coll_comm_register(comm, at, BYTES + 8192, &it),
                            COLL_ERR_INVALID_ARGUMENT,
                            "says rank 0: 20192 bytes are more than the allocation has"));
  device_memory.give(at);
  return 0;
}

Test(virtual_memory, unshared) {
  DEVICE_NEEDS_FAKE("GPU_NO_IPC");
  setenv("GPU_NO_IPC", "1", 1);
  device_use(0);
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_threads(2, NULL, use_unshared, NULL), 0);
}

/* ---- refusals -------------------------------------------------------------------------------- */

/* The last rank's memory is not as it must be. */
static int refuse_all(coll_comm *comm, int rank, int nranks) {
  const colli_cuda *cuda = &comm->gpu->cuda;
  const int device = device_of_rank(rank);
  const bool last = rank == nranks - 1;
  const virtual_memory good = virtual_take(cuda, device, "111", true);
  const virtual_memory secret = virtual_take(cuda, device, "111", false);
  coll_registration *it;
  RANK_CHECK(device_refused(
      comm, coll_comm_register(comm, last ? secret.at : good.at, good.bytes, &it),
      COLL_ERR_UNSUPPORTED,
      "says rank 0: rank 2's virtual memory has no descriptors: request the handle type "
      "POSIX_FILE_DESCRIPTOR, or set TORCH_CUDA_EXPANDABLE_SEGMENTS_IPC=1"));
  OK(cuda->mem_unmap((colli_cu_deviceptr)good.at + VIRTUAL_GRANULE, VIRTUAL_GRANULE));
  for (int i = 0; i < 2; i++) /* a hole, and an end */
    RANK_CHECK(device_refused(
        comm,
        coll_comm_register(comm, good.at + 2 * (size_t)i * VIRTUAL_GRANULE + 64,
                           last ? VIRTUAL_GRANULE : VIRTUAL_GRANULE - 64, &it),
        COLL_ERR_INVALID_ARGUMENT, "says rank 2: 2097152 bytes are more than are mapped on GPU"));
  RANK_CHECK(!it && !comm->direct->registered);
  RANK_OK(coll_comm_register(comm, good.at, VIRTUAL_GRANULE, &it));
  RANK_CHECK(sharing_add_up(comm, rank, nranks, it, good.at) == 0);
  RANK_OK(coll_comm_deregister(comm, &it));
  OK(cuda->mem_unmap((colli_cu_deviceptr)good.at, VIRTUAL_GRANULE));
  OK(cuda->mem_unmap((colli_cu_deviceptr)good.at + 2 * VIRTUAL_GRANULE, VIRTUAL_GRANULE));
  OK(cuda->mem_address_free((colli_cu_deviceptr)good.at, good.bytes));
  virtual_give(cuda, &secret);
  return 0;
}

Test(virtual_memory, refused) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(refuse_all), SCENE_LIMIT_S, NULL),
               0);
}

/* ---- failures of the driver ------------------------------------------------------------------ */

/* The third call of each fails, at the latest. */
SHARING_FAIL_AT(mem_retain_allocation_handle, (colli_cu_allocation * handle, void *at), handle, at)
SHARING_FAIL_AT(mem_export,
                (void *shareable, colli_cu_allocation handle, colli_cu_handle_type type,
                 unsigned long long flags),
                shareable, handle, type, flags)
SHARING_FAIL_AT(mem_import,
                (colli_cu_allocation * handle, void *shareable, colli_cu_handle_type type), handle,
                shareable, type)
SHARING_FAIL_AT(mem_address_reserve,
                (colli_cu_deviceptr * at, size_t bytes, size_t alignment, colli_cu_deviceptr wanted,
                 unsigned long long flags),
                at, bytes, alignment, wanted, flags)
SHARING_FAIL_AT(mem_map,
                (colli_cu_deviceptr at, size_t bytes, size_t offset, colli_cu_allocation handle,
                 unsigned long long flags),
                at, bytes, offset, handle, flags)
SHARING_FAIL_AT(mem_set_access,
                (colli_cu_deviceptr at, size_t bytes, const colli_cu_access *access, size_t count),
                at, bytes, access, count)

/* Puts one of them into the table. */
static const char *break_driver(colli_cuda *cuda, int which) {
  switch (which) {
  case 0:
    cuda->mem_retain_allocation_handle = fail_mem_retain_allocation_handle;
    return "cuMemRetainAllocationHandle";
  case 1:
    cuda->mem_export = fail_mem_export;
    return "cuMemExportToShareableHandle";
  case 2:
    cuda->mem_import = fail_mem_import;
    return "cuMemImportFromShareableHandle";
  case 3:
    cuda->mem_address_reserve = fail_mem_address_reserve;
    return "cuMemAddressReserve";
  case 4:
    cuda->mem_map = fail_mem_map;
    return "cuMemMap";
  default:
    cuda->mem_set_access = fail_mem_set_access;
    return "cuMemSetAccess";
  }
}
enum { BREAKABLE = 6 };

/* A function of one rank's driver fails, the first time or later: no rank has the memory. */
static int break_all(coll_comm *comm, int rank, int nranks) {
  colli_cuda *cuda = &comm->gpu->cuda;
  const virtual_memory mapped = virtual_take(cuda, device_of_rank(rank), pieces, true);
  coll_registration *it;
  for (int which = 0; which < BREAKABLE; which++)
    RANK_CHECK(sharing_refused(comm, rank, nranks, mapped.at, mapped.bytes, break_driver, which,
                               which == 3 || which == 5 ? nranks - 1 : 3) == 0);
  RANK_OK(coll_comm_register(comm, mapped.at, mapped.bytes, &it));
  RANK_CHECK(sharing_add_up(comm, rank, nranks, it, mapped.at) == 0);
  RANK_OK(coll_comm_deregister(comm, &it));
  virtual_give(cuda, &mapped);
  return 0;
}

Test(virtual_memory, broken_driver) {
  setenv("COLL_GPU_SLOT_BYTES", "4096", 1);
  device_load();
  device_mode(MODE_ORDERED);
  cr_expect_eq(run_processes(RANKS, NULL, scene_play, scene_make(break_all), SCENE_LIMIT_S, NULL),
               0);
}

/* ---- ranks that end midway ------------------------------------------------------------------- */

static int ending; /* the signal */

/* Takes the place of the driver's function: the second time, this rank ends. */
static colli_cu_result end_export(void *shareable, colli_cu_allocation handle,
                                  colli_cu_handle_type type, unsigned long long flags) {
  if (sharing_calls_left-- == 0)
    raise(ending);
  return sharing_real.mem_export(shareable, handle, type, flags);
}

static colli_cu_result end_import(colli_cu_allocation *handle, void *shareable,
                                  colli_cu_handle_type type) {
  if (sharing_calls_left-- == 0)
    raise(ending);
  return sharing_real.mem_import(handle, shareable, type);
}

static int lose(coll_comm *comm, int rank, int how, bool takes) {
  colli_cuda *cuda = &comm->gpu->cuda;
  const virtual_memory mapped = virtual_take(cuda, device_of_rank(rank), pieces, true);
  coll_registration *it;
  const int fds = count_fds();
  sharing_real = *cuda;
  sharing_calls_left = 1;
  ending = how;
  if (rank == 1 && takes)
    cuda->mem_import = end_import;
  else if (rank == 1)
    cuda->mem_export = end_export;
  RANK_CHECK(device_refused(comm, coll_comm_register(comm, mapped.at, mapped.bytes, &it),
                            how == SIGKILL ? COLL_ERR_PEER_LOST : COLL_ERR_TIMEOUT, "rank 1"));
  RANK_CHECK(!it && !comm->direct->registered);
  RANK_CHECK(comm->failure.status != COLL_OK && comm->failure.error.peer == 1);
  RANK_CHECK(count_fds() <= fds); /* connections are closed */
  virtual_give(cuda, &mapped);
  return 0;
}

static int lose_giver(coll_comm *comm, int rank, int nranks) {
  (void)nranks;
  return lose(comm, rank, SIGKILL, false);
}

static int lose_taker(coll_comm *comm, int rank, int nranks) {
  (void)nranks;
  return lose(comm, rank, SIGKILL, true);
}

static int freeze_giver(coll_comm *comm, int rank, int nranks) {
  (void)nranks;
  return lose(comm, rank, SIGSTOP, false);
}

static int freeze_taker(coll_comm *comm, int rank, int nranks) {
  (void)nranks;
  return lose(comm, rank, SIGSTOP, true);
}

Test(virtual_memory, lost) {
  static scene_fn *const scenes[] = {lose_giver, lose_taker, freeze_giver, freeze_taker};
  int results[RANKS];
  device_load();
  device_mode(MODE_ORDERED);
  for (int i = 0; i < 4; i++) {
    scene *s = scene_make(scenes[i]);
    if (i >= 2)
      s->timeout_ms = slow_ms(1000);
    run_processes(RANKS, NULL, scene_play, s, SCENE_LIMIT_S, results);
    cr_expect(results[0] == 0 && results[2] == 0, "%d: %d %d", i, results[0], results[2]);
  }
}
