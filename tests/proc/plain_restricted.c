/*
 * plain_restricted.c: ranks on systems that restrict shared memory: seccomp filters as in
 * containers, a /dev/shm of 64 MiB, or none. Everything still works, and one line says what is used
 * instead. If nothing is missing, nothing is printed.
 */
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_ranks.h"

enum { LIMIT_S = 60, SKIPPED = 77, MOST = 200000, EACH = 500, MANY = 16 };

/* A restricted system. */
typedef struct place {
  const char *name;
  int memfd;           /* errno of memfd_create; 0: it works */
  int readv;           /* errno of process_vm_readv */
  const char *dev_shm; /* its size; NULL: as it is; "": there is none */
  const char *tmpdir;  /* NULL: as it is */
  const char *line;    /* text of the line; NULL: no line */
  const char *many;    /* more text of it with MANY ranks */
} place;

static const place locality[] = {
    {"all allowed", 0, 0, NULL, NULL, NULL, NULL},
    {"no process_vm_readv", 0, EPERM, NULL, NULL, NULL, NULL},
    {"no /dev/shm, but memfds", 0, 0, "", NULL, NULL, NULL},
    {"small /dev/shm, but memfds", 0, EPERM, "64m", NULL, NULL, NULL},
    {"no memfds", EPERM, EPERM, NULL, "/nonexistent", "use memory in files of /dev/shm", NULL},
    {"no memfds, small /dev/shm", ENOSYS, EPERM, "64m", "/nonexistent",
     "use memory in files of /dev/shm", "slots of 8 KiB instead of 64"},
    {"no memfds, no /dev/shm", EPERM, ENOSYS, "", "/tmp", "use memory in files of /tmp", NULL},
    {"no memfds, tiny /dev/shm", EPERM, EPERM, "1m", "/tmp", "use memory in files of", NULL},
    {"nothing", EPERM, EPERM, "", "/nonexistent", "cannot use transport shm", NULL},
    {"next to nothing", ENOSYS, EPERM, "64k", "/nonexistent", "use TCP", NULL},
};

/* Resizes or removes /dev/shm. 0, or SKIPPED. */
static int mount_shm(const char *size) {
  char options[32];
  snprintf(options, sizeof(options), "size=%s", *size ? size : "64k");
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0 ||
      mount("tmpfs", *size ? "/dev/shm" : "/dev", "tmpfs", 0, options) != 0)
    return SKIPPED;
  return 0;
}

/* Makes two system calls fail from now on, in this process and its children. 0, or SKIPPED. */
static int refuse_calls(const place *p) {
  struct sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, p->memfd ? __NR_memfd_create : ~0u, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)p->memfd),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, p->readv ? __NR_process_vm_readv : ~0u, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)p->readv),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof(filter) / sizeof(filter[0]), filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    return SKIPPED;
  return 0;
}

/* Sums, broadcasts and exchanges vectors of several lengths, and checks every element. */
static int work(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  static float in[MOST], from[MANY * EACH], to[MANY * EACH];
  void *memory;
  RANK_OK(coll_mem_alloc(comm, MOST * sizeof(float), &memory));
  float *out = memory;
  static const size_t counts[] = {1, 3000, MOST};
  for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]); c++) {
    for (size_t i = 0; i < counts[c]; i++)
      in[i] = (float)((int)(i % 97) + rank);
    RANK_OK(coll_allreduce(in, out, counts[c], COLL_FLOAT32, COLL_SUM, comm));
    for (size_t i = 0; i < counts[c]; i++)
      RANK_CHECK(out[i] == (float)(nranks * (int)(i % 97) + nranks * (nranks - 1) / 2));
    RANK_OK(coll_broadcast(in, out, counts[c], COLL_FLOAT32, nranks - 1, comm));
    for (size_t i = 0; i < counts[c]; i++)
      RANK_CHECK(out[i] == (float)((int)(i % 97) + nranks - 1));
  }
  for (int i = 0; i < nranks * EACH; i++)
    from[i] = (float)(rank * 1000 + i / EACH);
  RANK_OK(coll_alltoall(from, to, EACH, COLL_FLOAT32, comm));
  for (int i = 0; i < nranks * EACH; i++)
    RANK_CHECK(to[i] == (float)(i / EACH * 1000 + rank));
  RANK_OK(coll_mem_free(comm, memory));
  return 0;
}

/* Child: applies the restrictions and runs ranks, with their standard error in `file`. */
static int run_there(const place *p, int nranks, FILE *file) {
  int skipped = p->dev_shm ? mount_shm(p->dev_shm) : 0;
  if (skipped == 0 && (p->memfd || p->readv))
    skipped = refuse_calls(p);
  if (skipped)
    return skipped;
  if (p->tmpdir)
    setenv("TMPDIR", p->tmpdir, 1);
  fflush(NULL);
  if (dup2(fileno(file), STDERR_FILENO) < 0)
    return 1;
  return run_processes(nranks, NULL, work, NULL, LIMIT_S, NULL);
}

/* Checks what was printed: nothing, or one line with the right text. */
static int check_lines(const place *p, int nranks, FILE *file) {
  char line[2048], first[2048] = "";
  int count = 0;
  rewind(file);
  while (fgets(line, sizeof(line), file))
    if (count++ == 0)
      memcpy(first, line, sizeof(first));
  bool good = count == (p->line ? 1 : 0) && (!p->line || strstr(first, p->line)) &&
              (!p->many || nranks < MANY || strstr(first, p->many));
  if (!good)
    fprintf(stderr, "%s, %d ranks: %d lines, the first: %s\n", p->name, nranks, count, first);
  else
    printf("%s, %d ranks: %s", p->name, nranks, p->line ? first : "no line\n");
  return good ? 0 : 1;
}

/* Runs one place; 0, SKIPPED, or 1. */
static int try_place(const place *p, int nranks) {
  FILE *file = tmpfile();
  int status = 0;
  if (!file)
    return 1;
  fflush(NULL);
  pid_t pid = fork();
  if (pid == 0)
    exit(run_there(p, nranks, file));
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return 1;
  int result = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  if (result == SKIPPED) {
    printf("%s, %d ranks: skipped, this user or system does not allow it\n", p->name, nranks);
  } else {
    result = result != 0 || check_lines(p, nranks, file) != 0;
    if (result != 0)
      fprintf(stderr, "FAILED: %s, %d ranks\n", p->name, nranks);
  }
  fclose(file);
  return result;
}

int main(void) {
  static const int sizes[] = {2, 4, MANY};
  bool skipped = false;
  int failures = 0;
  unsetenv("COLL_LOG");
  for (size_t i = 0; i < sizeof(locality) / sizeof(locality[0]); i++)
    for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
      int result = try_place(&locality[i], sizes[s]);
      skipped = skipped || result == SKIPPED;
      failures += result == 1;
    }
  if (failures > 0)
    return 1;
  return skipped ? SKIPPED : 0;
}
