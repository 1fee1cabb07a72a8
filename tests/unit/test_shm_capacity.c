/* test_shm_capacity.c: shared memory by descriptor, and slots that fit into limited memory. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/base/shared.h"
#include "libcoll/comm/shm_capacity.h"
#include "libcoll/sched/sched.h"
#include "transports/shm/shm.h"

enum { SHM = 1, TCP = 2, MIB = 1 << 20, KIB = 1 << 10 };

Test(shared, is_zero_and_has_its_size) {
  colli_shared_fault fault;
  int fd = colli_shared_create(3 * 4096, &fault);
  cr_assert_geq(fd, 0);
  struct stat info;
  cr_assert_eq(fstat(fd, &info), 0);
  cr_expect_eq(info.st_size, 3 * 4096);
  cr_expect_eq(colli_shared_check(fd, 3 * 4096), 1);
  cr_expect_eq(colli_shared_check(fd, 4096), 0);
  cr_expect_eq(ftruncate(fd, 0), -1);
  close(fd);
}

/* Files are accepted although they cannot be sealed. Unsealed memfds and other descriptors are not.
 * */
Test(shared, only_what_cannot_be_sealed_may_lack_seals) {
  static const char *const folders[] = {"/dev/shm", "/tmp"};
  for (int i = 0; i < 2; i++) {
    char path[64];
    snprintf(path, sizeof(path), "%s/libcoll-test-XXXXXX", folders[i]);
    int fd = mkstemp(path);
    if (fd < 0)
      continue; /* the folder is not there */
    unlink(path);
    cr_assert_eq(ftruncate(fd, 4096), 0);
    cr_expect_eq(colli_shared_check(fd, 4096), 1, "%s", folders[i]);
    close(fd);
  }
  int loose = memfd_create("loose", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  cr_assert_geq(loose, 0);
  cr_assert_eq(ftruncate(loose, 4096), 0);
  cr_expect_eq(colli_shared_check(loose, 4096), 0);
  close(loose);
  int ends[2];
  cr_assert_eq(pipe(ends), 0);
  cr_expect_eq(colli_shared_check(ends[0], 0), 0);
  close(ends[0]);
  close(ends[1]);
  cr_expect_eq(colli_shared_check(ends[0], 0), -1);
}

/* Writing a file beyond the limit raises a signal, so it must not be tried. */
Test(shared, heeds_the_limit_on_files) {
  const struct rlimit limit = {8192, 8192};
  colli_shared_fault fault;
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
  cr_expect_eq(colli_shared_create(8193, &fault), -1);
  cr_expect_eq(fault.sys_errno, EFBIG);
  int fd = colli_shared_create(8192, &fault);
  cr_expect_geq(fd, 0);
  close(fd);
}

enum { MOST = 64 };
static colli_rank_info table[MOST];

/* Ranks of one host with this much memory, one after the other; 0 MiB of /dev/shm: memfds. */
static void add_host(int first, int ranks, uint64_t dev_shm_mib, uint64_t tmp_mib) {
  for (int r = first; r < first + ranks; r++)
    table[r] = (colli_rank_info){
        .host_id = (uint64_t)first + 1,
        .transports = SHM | TCP,
        .slot_count = 8,
        .dev_shm_free = dev_shm_mib ? dev_shm_mib * MIB : COLLI_SHM_UNBOUNDED,
        .tmp_free = dev_shm_mib ? tmp_mib * MIB : COLLI_SHM_UNBOUNDED,
    };
}

/* The size that slots of 32 KiB get. */
static size_t settle(int nranks) {
  colli_shm_capacity_check(table, nranks, SHM);
  return colli_shm_capacity_slots(table, nranks, SHM, 32 * KIB);
}

Test(shm_capacity, memfds_are_not_bounded) {
  add_host(0, MOST, 0, 0);
  cr_expect_eq(settle(MOST), 32 * KIB);
  cr_expect_eq(table[0].transports, SHM | TCP);
}

Test(shm_capacity, slots_shrink_to_fit) {
  add_host(0, 16, 1024, 0);
  cr_expect_eq(settle(16), 32 * KIB);
  add_host(0, 16, 64, 1024);
  cr_expect_eq(settle(16), 8 * KIB); /* small slots in memory rather than large ones on a disk */
  add_host(0, 16, 1, 1024);
  cr_expect_eq(settle(16), 32 * KIB);
  add_host(0, 16, 1, 64);
  cr_expect_eq(settle(16), 8 * KIB);
  cr_expect_eq(table[15].transports, SHM | TCP);
}

/* A connection takes as much as its rings do; an eighth of the memory stays free. */
Test(shm_capacity, the_size_of_a_connection_counts) {
  const uint64_t needed = 2 * (1 + COLLI_MAX_LANES) * shm_ring_bytes(32 * KIB, 8);
  const uint64_t least = (needed + 6) / 7 * 8;
  add_host(0, 2, 1, 0);
  table[0].dev_shm_free = table[1].dev_shm_free = least;
  cr_expect_eq(settle(2), 32 * KIB);
  table[1].dev_shm_free = least - 8;
  cr_expect_eq(settle(2), 16 * KIB);
}

Test(shm_capacity, a_host_without_capacity_uses_tcp) {
  add_host(0, 16, 1, 1);
  add_host(16, 4, 0, 0);
  cr_expect_eq(settle(20), 32 * KIB);
  cr_expect_eq(table[0].transports, TCP);
  cr_expect_eq(table[15].transports, TCP);
  cr_expect_eq(table[16].transports, SHM | TCP);
}

/* The host with the least memory decides for all, and on a host the rank that finds the least. */
Test(shm_capacity, the_least_counts) {
  add_host(0, 16, 1024, 0);
  add_host(16, 16, 1024, 0);
  table[20].dev_shm_free = 64 * (uint64_t)MIB;
  cr_expect_eq(settle(32), 8 * KIB);
  add_host(0, 16, 0, 0);
  table[7].dev_shm_free = table[7].tmp_free = 0;
  cr_expect_eq(settle(16), 32 * KIB);
  cr_expect_eq(table[3].transports, TCP);
}

Test(shm_capacity, what_a_user_has_set_stays) {
  add_host(0, 16, 64, 1024);
  for (int r = 0; r < 16; r++)
    table[r].slot_bytes = 16 * KIB;
  colli_shm_capacity_check(table, 16, SHM);
  cr_expect_eq(colli_shm_capacity_slots(table, 16, SHM, 16 * KIB), 16 * KIB);
  cr_expect_eq(table[0].transports, SHM | TCP);
  for (int r = 0; r < 16; r++)
    table[r].tmp_free = 0;
  colli_shm_capacity_check(table, 16, SHM);
  cr_expect_eq(table[0].transports, TCP);
}
