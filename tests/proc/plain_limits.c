/*
 * plain_limits.c: ranks under limits on memory, files and descriptors. Each rank either does all
 * its work or gets an error that says what is wrong. No signal kills one.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "sanitized.h"
#include "support_ranks.h"

enum { RANKS = 4, COUNT = 100000, LIMIT_S = 60, PATIENCE_MS = 4000, REFUSED = 3, NOT_MADE = 120 };

typedef struct limit {
  const char *name;
  int resource;
  long value;       /* RLIMIT_AS: more than the process has at the start */
  const char *says; /* text of the errors; "": the work may succeed or fail; NULL: it must
                       succeed */
} limit;

static const limit limits[] = {
    {"no locked memory", RLIMIT_MEMLOCK, 0, NULL},
    {"files of 4 KiB", RLIMIT_FSIZE, 4096, NULL},
    {"files of 300 KiB", RLIMIT_FSIZE, 300 << 10, NULL},
    {"12 descriptors", RLIMIT_NOFILE, 12, "open files"},
    {"20 descriptors", RLIMIT_NOFILE, 20, "open files"},
    {"64 KiB of memory", RLIMIT_AS, 64 << 10, "COLL_ERR_NO_MEMORY"},
    {"300 KiB of memory", RLIMIT_AS, 300 << 10, ""},
    {"800 KiB of memory", RLIMIT_AS, 800 << 10, ""},
    {"2 MiB of memory", RLIMIT_AS, 2 << 20, ""},
    {"64 MiB of memory", RLIMIT_AS, 64 << 20, NULL},
};

/* Sums; an error must have a text. */
static int work(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  static float in[COUNT], out[COUNT];
  for (int i = 0; i < COUNT; i++)
    in[i] = (float)(rank + i % 7);
  coll_status status = coll_allreduce(in, out, COUNT, COLL_FLOAT32, COLL_SUM, comm);
  if (status != COLL_OK) {
    coll_error error = COLL_ERROR_INIT;
    coll_last_error(comm, &error);
    RANK_CHECK(error.status == status && strlen(error.message) > 20);
    return REFUSED;
  }
  for (int i = 0; i < COUNT; i++)
    RANK_CHECK(out[i] == (float)(nranks * (i % 7) + nranks * (nranks - 1) / 2));
  return 0;
}

/* Bytes of address space that this process has. */
static long address_space(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld", &pages) != 1)
    abort();
  fclose(file);
  return pages * sysconf(_SC_PAGESIZE);
}

/* Child: runs ranks under the limit, with their standard error in `file`. Returns 0 if each
 * succeeded or failed in the right way. */
static int run_limited(const limit *l, FILE *file) {
  int results[RANKS];
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = config.create_timeout_ms = PATIENCE_MS;
  rlim_t value = (rlim_t)(l->value + (l->resource == RLIMIT_AS ? address_space() : 0));
  struct rlimit both = {value, value};
  if (dup2(fileno(file), STDERR_FILENO) < 0 || setrlimit(l->resource, &both) != 0)
    return 1;
  run_processes(RANKS, &config, work, NULL, LIMIT_S, results);
  bool good = true;
  for (int r = 0; r < RANKS; r++)
    good =
        good && (results[r] == 0 || (l->says && (results[r] == REFUSED || results[r] == NOT_MADE)));
  printf("%s: %d %d %d %d%s\n", l->name, results[0], results[1], results[2], results[3],
         good ? "" : ": FAILED");
  return good ? 0 : 1;
}

/* Runs ranks under a limit and checks their messages. */
static bool holds(const limit *l) {
  int status = 0;
  bool said = !l->says || !*l->says;
  FILE *file = tmpfile();
  fflush(NULL);
  pid_t pid = file ? fork() : -1;
  if (pid == 0)
    exit(run_limited(l, file));
  if (pid < 0 || waitpid(pid, &status, 0) != pid)
    return false;
  char line[2048];
  rewind(file);
  while (fgets(line, sizeof(line), file)) {
    said = said || strstr(line, l->says);
    if (status != 0)
      fputs(line, stderr);
  }
  fclose(file);
  if (!said)
    fprintf(stderr, "%s: nobody says '%s'\n", l->name, l->says);
  return said && status == 0;
}

int main(void) {
  int failures = 0;
  for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++)
    if (!SANITIZED || limits[i].resource != RLIMIT_AS) /* sanitizers reserve terabytes */
      failures += !holds(&limits[i]);
  return failures > 0;
}
