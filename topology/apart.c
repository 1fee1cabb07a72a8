/*
 * apart.c: reads machine files in a child process, because hwloc crashes on damaged ones, and some
 * never end. The child ends after a time, and cannot take all memory. What it found
 * comes back in memory that both share, and is checked (pack.c). Only tools read machines: no
 * communicator forks.
 */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "topology/read.h"

#define MOST_MS           20000              /* a large machine takes 20 ms */
#define MOST_MEMORY_BYTES ((rlim_t)1 << 30)  /* besides what the process has already */
#define MOST_RESULT_BYTES ((size_t)64 << 20) /* pages that nobody writes take no memory */

#define SHORT 41 /* the child's exit status if it could not begin */

/* What the child leaves behind. */
typedef struct report {
  atomic_bool complete;
  coll_status status;
  coll_error error;
  size_t nbytes;
  char bytes[];
} report;

/* What messages call a source. */
static const char *name_of(const char *source) {
  const char *file = colli_topo_file(source);
  return file != NULL ? file : source;
}

/* ---- the child ------------------------------------------------------------------------------- */

/* Limits this process; false if that fails. It leaves no core dump, and no handler of the program's
 * signals runs. */
static bool limit_child(int ms) {
  unsigned long long pages = 0;
  FILE *sizes = fopen("/proc/self/statm", "re");
  if (sizes != NULL) {
    if (fscanf(sizes, "%llu", &pages) != 1)
      pages = 0;
    fclose(sizes);
  }
  rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + MOST_MEMORY_BYTES;
  struct rlimit given;
  sigset_t none;
  for (int number = 1; number < NSIG; number++)
    (void)signal(number, SIG_DFL);
  sigemptyset(&none);
  (void)sigprocmask(SIG_SETMASK, &none, NULL);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  (void)prctl(PR_SET_DUMPABLE, 0);
  if (getrlimit(RLIMIT_AS, &given) != 0)
    return false;
  most = given.rlim_cur < most ? given.rlim_cur : most;
  return setrlimit(RLIMIT_AS, &(struct rlimit){most, most}) == 0 &&
         setitimer(ITIMER_REAL, &(struct itimerval){{0, 0}, {ms / 1000, ms % 1000 * 1000}}, NULL) ==
             0;
}

/* Works, and ends this process. hwloc's own messages are left out: the parent says what it means.
 */
static _Noreturn void be_child(colli_topo_work *work, const char *source, int ms, report *said) {
  FILE *out = limit_child(ms) && freopen("/dev/null", "w", stderr) != NULL
                  ? fmemopen(said->bytes, MOST_RESULT_BYTES, "w")
                  : NULL;
  if (out == NULL)
    _exit(SHORT);
  said->error = (coll_error)COLL_ERROR_INIT;
  said->status = work(source, out, &said->error);
  if (said->status == COLL_OK && (fflush(out) != 0 || ferror(out)))
    said->status = colli_error_set(&said->error, COLL_ERR_INVALID_ARGUMENT, "topology",
                                   "the machine in %s is too large", name_of(source));
  said->nbytes = (size_t)ftell(out);
  atomic_store(&said->complete, true);
  _exit(0);
}

/* ---- its parent ------------------------------------------------------------------------------ */

/* Says how a child ended that did not report. */
static coll_status ended_early(const char *source, int ms, int how, coll_error *error) {
  char what[80] = "hwloc gives up";
  if (WIFEXITED(how) && WEXITSTATUS(how) == SHORT)
    return colli_error_set(error, COLL_ERR_SYSTEM, "topology",
                           "the process in which hwloc reads %s lacks memory or descriptors, or "
                           "could not be limited; look at ulimit -a",
                           name_of(source));
  if (WIFSIGNALED(how) && WTERMSIG(how) == SIGALRM)
    snprintf(what, sizeof(what), "hwloc has not read it after %g s", ms / 1000.0);
  else if (WIFSIGNALED(how))
    snprintf(what, sizeof(what), "hwloc crashes when it reads it (%s)", strsignal(WTERMSIG(how)));
  return colli_error_set(
      error, COLL_ERR_INVALID_ARGUMENT, "topology",
      "%s is damaged: %s. Write it again, on the machine that it describes, with "
      "\"coll_topo --xml FILE.xml\" or \"lstopo FILE.xml\"",
      name_of(source), what);
}

/* Takes what a child has reported. */
static coll_status take(const report *said, const char *source, char **bytes, size_t *nbytes,
                        coll_error *error) {
  if (said->status != COLL_OK) {
    coll_error copy = said->error;
    colli_error_terminate(&copy);
    return colli_error_set(error, said->status, "topology", "%s", copy.message);
  }
  const size_t size = said->nbytes;
  if (size == 0 || size > MOST_RESULT_BYTES)
    return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                           "%s is damaged: hwloc writes over what it found there", name_of(source));
  *bytes = malloc(size + 1);
  if (*bytes == NULL)
    return colli_error_set(error, COLL_ERR_NO_MEMORY, "topology", "out of memory for a machine");
  memcpy(*bytes, said->bytes, size);
  *nbytes = size;
  return COLL_OK;
}

coll_status colli_topo_apart(colli_topo_work *work, const char *source, int ms, char **bytes,
                             size_t *nbytes, coll_error *error) {
  const size_t size = sizeof(report) + MOST_RESULT_BYTES;
  int how = 0;
  *bytes = NULL;
  report *said =
      mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (said == MAP_FAILED)
    return colli_error_sys(error, COLL_ERR_NO_MEMORY, "topology", "mmap", errno,
                           "what a child reads needs memory");
  const pid_t child = fork();
  if (child == 0)
    be_child(work, source, ms, said);
  coll_status status = COLL_OK;
  if (child < 0)
    status = colli_error_sys(error, COLL_ERR_SYSTEM, "topology", "fork", errno,
                             "no process can be made in which hwloc reads %s", name_of(source));
  while (child > 0 && waitpid(child, &how, 0) < 0 && errno == EINTR)
    ;
  if (status == COLL_OK)
    status = atomic_load(&said->complete) ? take(said, source, bytes, nbytes, error)
                                          : ended_early(source, ms, how, error);
  (void)munmap(said, size);
  return status;
}

/* ---- entry points ---------------------------------------------------------------------------- */

/* The work of a child for colli_topo_load(). */
static coll_status read_and_pack(const char *source, FILE *out, coll_error *error) {
  colli_topo *topo;
  const coll_status status = colli_topo_read(source, &topo, error);
  if (status == COLL_OK)
    colli_topo_pack(topo, out);
  colli_topo_free(topo);
  return status;
}

coll_status colli_topo_load(const char *source, colli_topo **topo, coll_error *error) {
  char *bytes;
  size_t nbytes;
  *topo = NULL;
  if (colli_topo_file(source) == NULL)
    return colli_topo_read(source, topo, error);
  coll_status status = colli_topo_apart(read_and_pack, source, MOST_MS, &bytes, &nbytes, error);
  if (status != COLL_OK)
    return status;
  *topo = colli_topo_unpack(bytes, nbytes);
  free(bytes);
  return *topo != NULL ? COLL_OK
                       : colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, "topology",
                                         "%s is damaged: what hwloc reads there is not a machine",
                                         name_of(source));
}

coll_status colli_topo_export(const char *source, FILE *out, coll_error *error) {
  char *bytes;
  size_t nbytes;
  if (colli_topo_file(source) == NULL)
    return colli_topo_describe(source, out, error);
  coll_status status =
      colli_topo_apart(colli_topo_describe, source, MOST_MS, &bytes, &nbytes, error);
  if (status == COLL_OK)
    fwrite(bytes, 1, nbytes, out);
  free(bytes);
  return status;
}
