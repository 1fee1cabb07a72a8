/*
 * worker.c: a rank in a storm of tests/chaos/run. It makes collectives, drawn from a seed, compares
 * each result with a reference, shrinks after a failure, and grows when somebody waits to join: the
 * file CHAOS_ID says where. One line on standard output for each event; "depth" counts the shrinks
 * and growths before this communicator:
 *
 *   comm DEPTH RANK MEMBERS   a communicator: this rank's number, all ranks' first numbers
 *   id DEPTH NUMBER           what its rank 0 has drawn for it
 *   fail DEPTH INDEX KIND STATUS CULPRIT TIME MESSAGE    CULPRIT: its first number, or -1;
 *                             TIME: when the call returned, in seconds of CLOCK_MONOTONIC
 *                             KIND "half": in a part; the rank then revoked the whole
 *   wrong DEPTH INDEX KIND ...  a result that is not what the reference says
 *   left DEPTH STATUS MESSAGE   the shrink or growth has failed
 *   unjoined RANK STATUS MESSAGE   a newcomer did not get in, or out of it at once; -1: no rank yet
 *   leak BEFORE AFTER         open descriptors
 *   done DEPTH COUNT          the file CHAOS_STOP exists: the rank ends, COUNT collectives later
 *
 * usage: chaos_worker SEED [join]
 */
#include <dirent.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "calls.h"

enum { MOST_ELEMENTS = 1 << 20, STOP_EVERY = 8, JOIN_MS = 5000 };

/* What the ranks agree on now and then; the highest counts. */
enum { GO_ON, GROW, STOP };

struct worker {
  coll_comm *comm;
  coll_error error; /* of the call that failed */
  int culprit;      /* its first number, or -1 */
  double failed_s;  /* when the call returned */
  int depth, rank, nranks;
  int next; /* GO_ON, GROW or STOP */
  uint64_t job_seed, seed, index;
  char *send, *receive;
};

/* Whether element i of the result is `want`; says so if not. */
static int is(const struct worker *worker, const struct call *call, size_t i, int64_t want) {
  int64_t got = load(call->type, worker->receive, i);
  if (got == want)
    return 1;
  printf("wrong %d %" PRIu64 " %s type %d op %d count %zu root %d: element %zu is %" PRId64
         " instead of %" PRId64 "\n",
         worker->depth, worker->index, kind_names[call->kind], call->type, (int)call->op,
         call->count, call->root, i, got, want);
  return 0;
}

static int is_right(const struct worker *worker, const struct call *call) {
  size_t begin;
  int last;
  size_t count = reduced_here(call, &begin, &last), at = 0;
  for (size_t i = 0; i < count; i++)
    if (!is(worker, call, i, reduced(call, 0, last, begin + i)))
      return 0;
  for (int s = 0; s < call->nranks; s++) {
    count = block_from(call, s, &begin);
    for (size_t i = 0; i < count; i++)
      if (!is(worker, call, at + i, element(call, s, begin + i)))
        return 0;
    at += count;
  }
  return 1;
}

/* Makes a collective on a communicator and compares; exits if the result is wrong. */
static coll_status run_and_compare(struct worker *worker, const struct call *call,
                                   coll_comm *comm) {
  size_t count = (size_t)call->nranks * call->count;
  for (size_t i = 0; i < count; i++) {
    store(call->type, worker->send, i, element(call, call->rank, i));
    store(call->type, worker->receive, i, 251);
  }
  coll_status status = run(call, worker->send, worker->receive, comm);
  if (status == COLL_OK && !is_right(worker, call))
    exit(2);
  return status;
}

/* Notes the failure of a call on a communicator, and ends the whole one on all ranks: the others do
 * not learn of a call that was refused here. A shortage is the fault of the rank that has it. */
static void note(struct worker *worker, const coll_comm *comm) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  worker->failed_s = (double)now.tv_sec + (double)now.tv_nsec / 1e9;
  worker->error = (coll_error)COLL_ERROR_INIT;
  coll_last_error(comm, &worker->error);
  int culprit = worker->error.peer;
  if (culprit < 0 &&
      (worker->error.status == COLL_ERR_NO_MEMORY || worker->error.status == COLL_ERR_SYSTEM))
    culprit = worker->error.rank;
  worker->culprit = -1;
  if (culprit >= 0)
    coll_comm_origin_rank(comm, culprit, &worker->culprit);
  coll_comm_revoke(worker->comm);
}

/* Halves of the communicator make a collective each. */
static coll_status split_and_run(struct worker *worker, uint64_t seed, enum kind *kind) {
  coll_comm *half;
  int color = (int)(mix(seed, (uint64_t)(200 + worker->rank)) % 2);
  coll_status status = coll_comm_split(worker->comm, color, 0, NULL, &half);
  if (status != COLL_OK) {
    note(worker, worker->comm);
    return status;
  }
  struct call call;
  int rank, nranks;
  *kind = HALF;
  coll_comm_rank(half, &rank);
  coll_comm_nranks(half, &nranks);
  draw(&call, mix(seed, (uint64_t)color), rank, nranks);
  if (call.kind == SPLIT)
    call.kind = ALLREDUCE;
  status = run_and_compare(worker, &call, half);
  if (status != COLL_OK)
    note(worker, half); /* the ranks of the other half, and those who are done here, learn of it */
  coll_comm_destroy(&half);
  return status;
}

static coll_status step(struct worker *worker, enum kind *kind) {
  uint64_t seed = mix(worker->seed, worker->index++);
  struct call call;
  coll_status status;
  draw(&call, seed, worker->rank, worker->nranks);
  *kind = call.kind;
  if (worker->index % STOP_EVERY == 0) {
    int waiting = 0;
    coll_comm_joiners(worker->comm, &waiting);
    int mine = access(getenv("CHAOS_STOP"), F_OK) == 0 ? STOP : waiting > 0 ? GROW : GO_ON;
    *kind = ALLREDUCE;
    status = coll_allreduce(&mine, &worker->next, 1, COLL_INT32, COLL_MAX, worker->comm);
  } else if (call.kind == SPLIT) {
    return split_and_run(worker, seed, kind);
  } else {
    status = run_and_compare(worker, &call, worker->comm);
  }
  if (status != COLL_OK)
    note(worker, worker->comm);
  return status;
}

/* Rank 0 listens for newcomers, and writes down where. */
static void open_door(struct worker *worker) {
  const char *path = getenv("CHAOS_ID");
  char fresh[4096];
  coll_id id;
  snprintf(fresh, sizeof fresh, "%s.new", path);
  if (worker->rank != 0 || coll_comm_join_id(worker->comm, &id) != COLL_OK)
    return;
  FILE *file = fopen(fresh, "wb");
  if (!file || fwrite(&id, sizeof id, 1, file) != 1 || fclose(file) != 0 || rename(fresh, path))
    exit(1);
}

/* Says which communicator this is. A newcomer learns its depth. */
static coll_status enter(struct worker *worker) {
  char members[MOST_RANKS * 4] = "";
  coll_comm_rank(worker->comm, &worker->rank);
  coll_comm_nranks(worker->comm, &worker->nranks);
  int origin = -1, mine = -1;
  for (int r = 0, at = 0; r < worker->nranks; r++) {
    coll_comm_origin_rank(worker->comm, r, &origin);
    mine = r == worker->rank ? origin : mine;
    at += snprintf(members + at, sizeof members - (size_t)at, r == 0 ? "%d" : ",%d", origin);
  }
  bool knows = worker->depth >= 0;
  if (knows)
    printf("comm %d %d %s\n", worker->depth, worker->rank, members);
  uint64_t drawn[2] = {0, (uint64_t)worker->depth};
  if (worker->rank == 0 && getrandom(drawn, sizeof *drawn, 0) != sizeof *drawn)
    exit(1);
  coll_status status = coll_broadcast(drawn, drawn, 2, COLL_UINT64, 0, worker->comm);
  if (status != COLL_OK)
    note(worker, worker->comm);
  if (status != COLL_OK && !knows)
    printf("unjoined %d %s %s\n", mine, coll_status_name(status), worker->error.message);
  if (status != COLL_OK)
    return status;
  worker->depth = (int)drawn[1];
  if (!knows)
    printf("comm %d %d %s\n", worker->depth, worker->rank, members);
  printf("id %d %" PRIx64 "\n", worker->depth, drawn[0]);
  open_door(worker);
  return status;
}

/* Makes collectives until one fails, somebody wants to join, or the storm is over. */
static coll_status live(struct worker *worker) {
  enum kind kind = BROADCAST;
  coll_status status = enter(worker);
  if (worker->depth < 0)
    return status;
  worker->seed = mix(worker->job_seed, (uint64_t)worker->depth);
  worker->index = 0;
  worker->next = GO_ON;
  while (status == COLL_OK && worker->next == GO_ON)
    status = step(worker, &kind);
  if (status == COLL_OK)
    return status;
  printf("fail %d %" PRIu64 " %s %s %d %.6f %s\n", worker->depth, worker->index, kind_names[kind],
         coll_status_name(status), worker->culprit, worker->failed_s, worker->error.message);
  return status;
}

static int descriptors(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/fd");
  while (dir && readdir(dir))
    count++;
  if (dir)
    closedir(dir);
  return count;
}

/* Joins the job whose id is in the file CHAOS_ID. */
static coll_status join(struct worker *worker) {
  coll_id id;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  FILE *file = fopen(getenv("CHAOS_ID"), "rb");
  if (!file || fread(&id, sizeof id, 1, file) != 1)
    exit(1);
  fclose(file);
  config.create_timeout_ms = JOIN_MS;
  config.error = &error;
  worker->depth = -1;
  coll_status status = coll_comm_join(&worker->comm, &id, &config);
  if (status != COLL_OK)
    printf("unjoined -1 %s %s\n", coll_status_name(status), error.message);
  return status;
}

/* Works in one communicator after another. */
static void live_on(struct worker *worker) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.create_timeout_ms = atoi(getenv("CHAOS_SHRINK_MS"));
  config.error = &error;
  for (;; worker->depth++) {
    coll_status status = live(worker);
    if (worker->depth < 0)
      return;
    if (status == COLL_OK && worker->next == STOP) {
      printf("done %d %" PRIu64 "\n", worker->depth, worker->index);
      return;
    }
    coll_comm *child = NULL;
    status = status == COLL_OK ? coll_comm_grow(worker->comm, &config, &child)
                               : coll_comm_shrink(worker->comm, &config, &child);
    coll_comm_destroy(&worker->comm);
    worker->comm = child;
    if (status != COLL_OK) {
      printf("left %d %s %s\n", worker->depth, coll_status_name(status), error.message);
      return;
    }
  }
}

int main(int argc, char **argv) {
  static char line[4096];
  setvbuf(stdout, line, _IOLBF, sizeof line);
  struct worker worker = {.send = calloc(MOST_ELEMENTS, 8), .receive = calloc(MOST_ELEMENTS, 8)};
  if (argc < 2 || !worker.send || !worker.receive || !getenv("CHAOS_STOP") || !getenv("CHAOS_ID"))
    return 1;
  worker.job_seed = strtoull(argv[1], NULL, 10);
  int before = descriptors();
  coll_status status = argc > 2 ? join(&worker) : coll_init_from_env(&worker.comm, NULL);
  if (status == COLL_OK)
    live_on(&worker);
  else if (argc == 2)
    return 1;
  coll_comm_destroy(&worker.comm);
  free(worker.send);
  free(worker.receive);
  int after = descriptors();
  if (after >= 0 && after != before)
    printf("leak %d %d\n", before, after);
  return 0;
}
