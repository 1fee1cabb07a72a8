/* test_huge.c: more elements than 32 bits count, where the machine has the memory. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include "support_ranks.h"

#define COUNT      (((size_t)1 << 31) + 12345)
#define NEEDED_KIB ((size_t)12 << 20) /* four vectors, slots, and room for others */

/* Free memory according to the kernel. */
static size_t available_kib(void) {
  char line[128];
  unsigned long kib = 0;
  FILE *file = fopen("/proc/meminfo", "r");
  while (file && fgets(line, sizeof(line), file))
    if (sscanf(line, "MemAvailable: %lu", &kib) == 1)
      break;
  if (file)
    fclose(file);
  return kib;
}

/* Reserves memory that is not backed until touched. */
static unsigned char *map(size_t bytes) {
  void *at =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

/* A value that differs wherever an index could lose its upper bits. */
static unsigned char value(size_t i, int rank) {
  return (unsigned char)(i + (i >> 8) * 3 + (i >> 31) * 7 + (size_t)rank * 11);
}

/* Sets values 0 to count - 1, in runs of 256 that count up: element by element it takes
 * most of the test's time. */
static void fill(unsigned char *buf, size_t count, int rank) {
  unsigned char up[512];
  for (size_t i = 0; i < sizeof(up); i++)
    up[i] = (unsigned char)i;
  for (size_t i = 0; i < count; i += 256)
    memcpy(buf + i, up + value(i, rank), count - i < 256 ? count - i : 256);
}

/* An all-reduce and an all-gather past 2^31 elements. */
static int huge(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  unsigned char *buf = map(COUNT);
  RANK_CHECK(buf);
  fill(buf, COUNT, rank);
  RANK_OK(coll_allreduce(buf, buf, COUNT, COLL_UINT8, COLL_SUM, comm));
  for (size_t i = 0; i < COUNT; i += i < COUNT - 5000 ? 997 : 1)
    RANK_CHECK(buf[i] == (unsigned char)(value(i, 0) + value(i, 1)));
  size_t half = COUNT / (size_t)nranks;
  memset(buf, 0, COUNT);
  fill(buf + (size_t)rank * half, half, rank);
  RANK_OK(coll_allgather(buf + (size_t)rank * half, buf, half, COLL_UINT8, comm));
  for (size_t i = 0; i < half * (size_t)nranks; i += 997)
    RANK_CHECK(buf[i] == value(i % half, (int)(i / half)));
  munmap(buf, COUNT);
  return 0;
}

Test(huge, past_31_bits, .timeout = 280) {
  if (available_kib() < NEEDED_KIB)
    cr_skip_test("less than 12 GiB of memory are free");
  cr_assert_eq(run_threads(2, NULL, huge, NULL), 0);
}
