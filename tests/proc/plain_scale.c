/*
 * plain_scale.c: a thousand processes on one machine create a communicator, sum and leave, in less
 * than a minute in all, even on a busy machine. Each uses less than 8 MiB of private memory and
 * fewer than 64 descriptors. Without arguments the program starts itself as ranks under collrun.
 * Without TEST_ALL=1 there are 300 ranks; under sanitizers, which need more memory, a hundred, and
 * only descriptors are checked.
 */
#include <errno.h>
#include <libgen.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "extent.h"
#include "support_ranks.h"

enum { COUNT = 1000, LIMIT_S = 60, LIMIT_KIB = 8 * 1024, LIMIT_FDS = 64, SKIPPED = 77 };

/* KiB of private memory of this process. */
static int private_kib(void) {
  char line[256];
  int total = 0, kib;
  FILE *file = fopen("/proc/self/smaps_rollup", "r");
  while (file && fgets(line, sizeof(line), file))
    if (sscanf(line, "Private_Clean: %d", &kib) == 1 ||
        sscanf(line, "Private_Dirty: %d", &kib) == 1)
      total += kib;
  if (file)
    fclose(file);
  return total;
}

/* What a rank uses, and when it reached which point. */
typedef struct use {
  int64_t kib, fds;
  int64_t created_ms, summed_ms;
} use;

/* Sums twice, and checks every element. */
static int sum(coll_comm *comm, int rank, int nranks) {
  static int64_t in[COUNT], out[COUNT];
  for (int i = 0; i < COUNT; i++)
    in[i] = (int64_t)rank * (i + 1);
  for (int count = 1; count <= COUNT; count += COUNT - 1) {
    RANK_OK(coll_allreduce(in, out, (size_t)count, COLL_INT64, COLL_SUM, comm));
    for (int i = 0; i < count; i++)
      RANK_CHECK(out[i] == (int64_t)nranks * (nranks - 1) / 2 * (i + 1));
  }
  return 0;
}

/* Runs one rank. */
static int rank_main(void) {
  coll_comm *comm = NULL;
  int rank, nranks;
  double start_s = now_s();
  /* Not counting the standard streams and the listener, which the library takes over. */
  int inherited = count_fds() - 3 - (getenv("COLL_ROOT_FD") != NULL);
  if (coll_init_from_env(&comm, NULL) != COLL_OK)
    return 1;
  double created_s = now_s();
  coll_comm_rank(comm, &rank);
  coll_comm_nranks(comm, &nranks);
  if (sum(comm, rank, nranks) != 0)
    return 1;
  use mine = {.kib = private_kib(),
              .fds = count_fds() - inherited,
              .created_ms = (created_s - start_s) * 1e3};
  mine.summed_ms = (now_s() - created_s) * 1e3;
  RANK_CHECK(mine.kib > 0 && mine.fds > 0);
  RANK_CHECK(SANITIZED || mine.kib < LIMIT_KIB);
  RANK_CHECK(mine.fds < LIMIT_FDS);
  use most;
  RANK_OK(coll_reduce(&mine, &most, sizeof(use) / sizeof(int64_t), COLL_INT64, COLL_MAX, 0, comm));
  coll_comm_destroy(&comm);
  if (rank == 0)
    printf("%d ranks: at most %d KiB and %d descriptors a rank, %.1f s to create, %.1f s to sum\n",
           nranks, (int)most.kib, (int)most.fds, (double)most.created_ms * 1e-3,
           (double)most.summed_ms * 1e-3);
  return 0;
}

/* Becomes collrun, with this program as its ranks. */
static void become_collrun(const char *nranks) {
  char self[4096], collrun[4200];
  ssize_t length = readlink("/proc/self/exe", self, sizeof(self) - 1);
  if (length < 0)
    return;
  self[length] = 0;
  char folder[4096];
  memcpy(folder, self, sizeof(folder));
  snprintf(collrun, sizeof(collrun), "%s/../bin/collrun", dirname(folder));
  execl(collrun, "collrun", "-n", nranks, "--timeout", "120", "--no-bind", self, (char *)NULL);
  fprintf(stderr, "%s: %s\n", collrun, strerror(errno));
}

int main(int argc, char **argv) {
  if (getenv("COLL_RANK"))
    return rank_main();
  char text[16];
  struct rlimit processes;
  int ranks = argc > 1 ? atoi(argv[1]) : extent(300, 1000, 100);
  snprintf(text, sizeof(text), "%d", ranks);
  if (getrlimit(RLIMIT_NPROC, &processes) == 0 && processes.rlim_cur < (rlim_t)ranks + 100) {
    puts("skipped: this user may not have so many processes (ulimit -u)");
    return SKIPPED;
  }
  double start_s = now_s();
  int status = 0;
  pid_t pid = fork();
  if (pid == 0) {
    become_collrun(text);
    _exit(1);
  }
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return 1;
  double took_s = now_s() - start_s;
  printf("%.1f s in all\n", took_s);
  if (!SANITIZED && took_s >= LIMIT_S) {
    fprintf(stderr, "%s ranks took %.1f s, more than %d\n", text, took_s, LIMIT_S);
    return 1;
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}
