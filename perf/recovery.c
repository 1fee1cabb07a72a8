/*
 * recovery.c: coll_recovery: how long the survivors of a killed rank take to notice its death, to
 * shrink, and to sum again. Each process that the launcher starts is a keeper: in each repetition
 * it forks a rank, so that all repetitions have the same number of ranks, and no launcher sees one
 * die.
 *
 *   keepers   fork, pass the id ..... barrier, kill a rank ............ collect the times
 *   ranks     create, sum, sum, sum, sum, (error) shrink, sum: done
 */
#include <coll/coll.h>
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { NOTICED, SHRUNK, SUMMED, ALL, PHASES };
static const char *const phase_names[PHASES] = {"notice", "shrink", "first all-reduce", "in all"};

/* What a rank tells its keeper. */
typedef struct record {
  bool failed;
  double at_s[ALL]; /* the end of each phase */
} record;

/* What the victim's keeper tells the others. */
typedef struct death {
  char host[64];
  double at_s;
} death;

/* A process that the launcher has started, and its rank in this repetition. */
typedef struct keeper {
  coll_comm *comm; /* of keepers */
  int rank, nranks;
  pid_t child;
  int fd; /* to the child */
} keeper;

static double now_s(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Prints why a call failed; false. */
static bool complain(coll_comm *comm, int rank, const char *call, coll_status status) {
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  fprintf(stderr, "coll_recovery: rank %d: %s: %s: %s\n", rank, call, coll_status_name(status),
          error.message);
  return false;
}

/* Sends or receives all bytes; false if the other end is gone. */
static bool put(int fd, const void *data, size_t bytes) {
  return send(fd, data, bytes, MSG_NOSIGNAL) == (ssize_t)bytes;
}
static bool get(int fd, void *data, size_t bytes) {
  return recv(fd, data, bytes, MSG_WAITALL) == (ssize_t)bytes;
}

/* ---- ranks ----------------------------------------------------------------------------------- */

/* Creates the communicator of this repetition. */
static bool create(const keeper *k, int fd, coll_comm **comm) {
  coll_id id;
  coll_status status = k->rank == 0 ? coll_unique_id(&id, NULL) : COLL_OK;
  if (status != COLL_OK)
    return complain(NULL, k->rank, "coll_unique_id", status);
  if ((k->rank == 0 && !put(fd, &id, sizeof(id))) || !get(fd, &id, sizeof(id)))
    return false;
  status = coll_comm_create(comm, &id, k->nranks, k->rank, NULL);
  return status == COLL_OK || complain(NULL, k->rank, "coll_comm_create", status);
}

/* Sums until a rank dies. False if the result was wrong before. */
static bool sum_until_death(const keeper *k, int fd, coll_comm *comm) {
  const char ready = 1;
  for (int i = 0;; i++) {
    int64_t sum = 1;
    if (coll_allreduce(&sum, &sum, 1, COLL_INT64, COLL_SUM, comm) != COLL_OK)
      return i > 0; /* it died when all had come this far */
    if (sum != k->nranks || (i == 0 && !put(fd, &ready, 1)))
      return false;
  }
}

/* One rank, from its creation to the first sum of the survivors. */
static bool run_rank(const keeper *k, int fd, record *out) {
  coll_comm *comm = NULL, *child = NULL;
  setenv("COLL_LOG", "none", 0); /* deaths are expected; complain() prints the rest */
  if (!create(k, fd, &comm))
    return false;
  if (!sum_until_death(k, fd, comm))
    return complain(comm, k->rank, "wrong or failed before a rank was killed: coll_allreduce",
                    COLL_ERR_INTERNAL);
  out->at_s[NOTICED] = now_s();
  coll_status status = coll_comm_shrink(comm, NULL, &child);
  out->at_s[SHRUNK] = now_s();
  if (status != COLL_OK)
    return complain(comm, k->rank, "coll_comm_shrink", status);
  int64_t sum = 1;
  status = coll_allreduce(&sum, &sum, 1, COLL_INT64, COLL_SUM, child);
  out->at_s[SUMMED] = now_s();
  if (status != COLL_OK || sum != k->nranks - 1)
    return complain(child, k->rank, "coll_allreduce of the survivors", status);
  coll_comm_destroy(&comm);
  return coll_comm_destroy(&child) == COLL_OK;
}

/* Forks the rank; false if that is not possible. */
static bool start_rank(keeper *k) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    perror("coll_recovery: socketpair");
    return false;
  }
  k->child = fork();
  if (k->child == 0) {
    record out = {0};
    close(fds[0]);
    out.failed = !run_rank(k, fds[1], &out);
    put(fds[1], &out, sizeof(out));
    _exit(0);
  }
  close(fds[1]);
  k->fd = fds[0];
  if (k->child < 0)
    perror("coll_recovery: fork");
  return k->child > 0;
}

/* ---- keepers --------------------------------------------------------------------------------- */

/* Passes on the id from rank 0 to all; false if a rank failed. */
static coll_status pass_id(const keeper *k, bool *good) {
  struct {
    coll_id id;
    bool good;
  } box = {.good = *good};
  if (k->rank == 0)
    box.good = *good && get(k->fd, &box.id, sizeof(box.id));
  coll_status status = coll_broadcast(&box, &box, sizeof(box), COLL_UINT8, 0, k->comm);
  *good = *good && box.good && put(k->fd, &box.id, sizeof(box.id));
  return status;
}

/* Kills the victim when all ranks sum. *origin_s: the time of the kill on its host; elsewhere that
 * of the end of a barrier just before. */
static coll_status kill_victim(const keeper *k, int victim, bool *good, double *origin_s) {
  char ready;
  int32_t all = *good && get(k->fd, &ready, 1);
  coll_status status = coll_allreduce(&all, &all, 1, COLL_INT32, COLL_MIN, k->comm);
  *origin_s = now_s();
  death d = {.at_s = *origin_s}, mine = {0};
  gethostname(mine.host, sizeof(mine.host) - 1);
  memcpy(d.host, mine.host, sizeof(d.host));
  if (k->rank == victim && k->child > 0)
    kill(k->child, SIGKILL);
  if (status == COLL_OK)
    status = coll_broadcast(&d, &d, sizeof(d), COLL_UINT8, victim, k->comm);
  if (strcmp(d.host, mine.host) == 0)
    *origin_s = d.at_s;
  *good = *good && all;
  return status;
}

/* One repetition: the milliseconds of each phase, until its last rank ended it. */
static coll_status repeat(keeper *k, int victim, double ms[PHASES], bool *good) {
  double origin_s, last_s[ALL] = {0};
  record r = {0};
  k->fd = -1;
  *good = start_rank(k);
  coll_status status = pass_id(k, good);
  if (status == COLL_OK)
    status = kill_victim(k, victim, good, &origin_s);
  if (status == COLL_OK && *good && k->rank != victim) {
    *good = get(k->fd, &r, sizeof(r)) && !r.failed;
    for (int i = 0; i < ALL; i++)
      last_s[i] = r.at_s[i] - origin_s;
  } else if (k->child > 0) {
    kill(k->child, SIGKILL);
  }
  close(k->fd);
  if (k->child > 0)
    waitpid(k->child, NULL, 0);
  int32_t all = *good;
  if (status == COLL_OK)
    status = coll_allreduce(&all, &all, 1, COLL_INT32, COLL_MIN, k->comm);
  if (status == COLL_OK)
    status = coll_allreduce(last_s, last_s, ALL, COLL_FLOAT64, COLL_MAX, k->comm);
  *good = all;
  for (int i = 0; i < ALL; i++)
    ms[i] = (last_s[i] - (i > 0 ? last_s[i - 1] : 0)) * 1e3;
  ms[ALL] = last_s[SUMMED] * 1e3;
  return status;
}

/* ---- the table ------------------------------------------------------------------------------- */

static int by_size(const void *a, const void *b) {
  double left = *(const double *)a, right = *(const double *)b;
  return (left > right) - (left < right);
}

/* Prints one line; sorts the times. */
static void print_phase(const char *name, double *ms, int count) {
  qsort(ms, (size_t)count, sizeof(*ms), by_size);
  printf("%-18s %10.2f %10.2f %10.2f\n", name, ms[(count - 1) / 2], ms[(count * 99 + 99) / 100 - 1],
         ms[count - 1]);
}

/* Measures all repetitions and prints them; the exit status. */
static int run_keeper(keeper *k, int repetitions) {
  double *ms = calloc((size_t)repetitions * PHASES, sizeof(*ms)), one[PHASES];
  coll_status status = ms ? COLL_OK : COLL_ERR_NO_MEMORY;
  bool good = true;
  for (int i = 0; i < repetitions && status == COLL_OK && good; i++) {
    int victim = (int)((long)i * k->nranks / repetitions);
    status = repeat(k, victim, one, &good);
    for (int phase = 0; phase < PHASES; phase++)
      ms[phase * repetitions + i] = one[phase];
  }
  if (status != COLL_OK)
    complain(k->comm, k->rank, "a keeper's operation", status);
  else if (good && k->rank == 0) {
    printf("# %d ranks, %d times one of them is killed; ms until the last survivor is done\n"
           "#%-17s %10s %10s %10s\n",
           k->nranks, repetitions, "", "p50", "p99", "max");
    for (int phase = 0; phase < PHASES; phase++)
      print_phase(phase_names[phase], ms + phase * repetitions, repetitions);
  }
  free(ms);
  return status == COLL_OK && good ? 0 : 1;
}

static const char usage[] =
    "usage: collrun -n RANKS coll_recovery [-k N]\n"
    "  -k N      repetitions (default 20); with fewer than 100, p99 is the maximum\n"
    "  -h, --help\n"
    "In each repetition all ranks sum, again and again. One is killed; over the repetitions, all\n"
    "parts of the ranks take their turn, from rank 0 on. The others shrink and sum once more.\n"
    "  notice            from the kill until the last survivor's operation has failed\n"
    "  shrink            from then until the last survivor has the new communicator\n"
    "  first all-reduce  from then until the last survivor has its sum\n"
    "  in all            from the kill until then\n"
    "Between hosts, whose clocks differ, the kill counts as made at the end of a barrier before.\n";

int main(int argc, char **argv) {
  static const struct option longs[] = {{"help", 0, NULL, 'h'}, {NULL, 0, NULL, 0}};
  int letter, repetitions = 20;
  while ((letter = getopt_long(argc, argv, "k:h", longs, NULL)) != -1) {
    if (letter == 'k')
      repetitions = atoi(optarg);
    if (letter == 'h') {
      fputs(usage, stdout);
      return 0;
    }
    if (letter == '?' || repetitions < 1 || repetitions > 100000) {
      fputs(usage, stderr);
      return 2;
    }
  }
  keeper k = {0};
  if (coll_init_from_env(&k.comm, NULL) != COLL_OK)
    return 1; /* libcoll has printed why */
  coll_comm_rank(k.comm, &k.rank);
  coll_comm_nranks(k.comm, &k.nranks);
  if (k.nranks < 2) {
    fprintf(stderr, "coll_recovery: one rank has no survivors; use collrun -n RANKS\n");
    coll_comm_destroy(&k.comm);
    return 2;
  }
  int failed = run_keeper(&k, repetitions);
  coll_comm_destroy(&k.comm);
  return failed;
}
