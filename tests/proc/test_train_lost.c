/*
 * test_train_lost.c: a rank is killed, or frozen and woken again, at every point of training. The
 * linker wraps the functions of WRAPPED (--wrap in tests/CMakeLists.txt): event() counts their
 * calls, so a fault comes at exactly the same point each time. Every run must end with the weights
 * and the accuracy of its checkpoint, and with all test samples tested.
 */
#include "extent.h"
#include "support_train.h"
#include "trainer/base.h"
#include "trainer/checkpoint.h"
#include "trainer/dataset.h"
#include "trainer/report.h"
#include "waits.h"

#include <criterion/criterion.h>
#include <inttypes.h>
#include <signal.h>
#include <sys/mman.h>

/* What is done to a rank. */
typedef enum fault_kind {
  NOTHING,       /* its events are counted */
  KILL,          /* it is gone */
  FREEZE_SHORT,  /* it is woken when another rank has begun to shrink the communicator */
  FREEZE_LONG,   /* ... when the others have continued without it */
  FREEZE_TO_END, /* ... when the others have written the last checkpoint */
} fault_kind;

#define RANKS       3
#define MOST_EVENTS 400

/* In memory that the ranks share with the test. */
typedef struct fault {
  fault_kind kind;
  int rank, at;     /* the rank with the fault, and the number of the event, from 1 */
  const char *only; /* events of that name are counted; NULL: all are */
  bool early;       /* count those before training, else those since it began */
  pid_t frozen;     /* a rank that is frozen, or 0 */
  int events;       /* so many were seen */
  char hit[32];     /* the event at which the fault came */
  char name[MOST_EVENTS][32];
} fault;

static fault *shared;
static bool mine;     /* this process is the rank with the fault */
static bool training; /* it has begun */
static int seen;      /* events of this process that are counted */

/* The next event of this rank. */
static void event(const char *name) {
  if (!mine || training == shared->early)
    return;
  if (shared->kind == NOTHING && shared->events < MOST_EVENTS)
    snprintf(shared->name[shared->events], sizeof(shared->name[0]), "%s", name);
  shared->events++;
  if (shared->only && strcmp(name, shared->only) != 0)
    return;
  if (++seen != shared->at || shared->kind == NOTHING)
    return;
  snprintf(shared->hit, sizeof(shared->hit), "%s", name);
  if (shared->kind == KILL)
    raise(SIGKILL);
  shared->frozen = getpid();
  raise(SIGSTOP);
  shared->frozen = 0;
}

/* Wakes the frozen rank up. */
static void wake(void) {
  if (shared->frozen && shared->frozen != getpid())
    kill(shared->frozen, SIGCONT);
}

/* Wraps a function of the trainer or of libcoll. */
#define WRAPPED(type, name, params, args)                                                          \
  type __real_##name params;                                                                       \
  type __wrap_##name params;                                                                       \
  type __wrap_##name params {                                                                      \
    event(#name);                                                                                  \
    return __real_##name args;                                                                     \
  }

WRAPPED(bool, model_backward,
        (const model *m, const float *params, pass *p, size_t rows, float *grads, float *in_delta,
         model_listener listener, fail *why),
        (m, params, p, rows, grads, in_delta, listener, why))
WRAPPED(void, progress_step, (progress * p, const progress_state *state), (p, state))
WRAPPED(void, loader_test, (const loader *ld, shard part, float *inputs, uint8_t *labels),
        (ld, part, inputs, labels))
WRAPPED(bool, checkpoint_write,
        (const char *path, int rank, const checkpoint_run *run, const checkpoint_state *state,
         fail *why),
        (path, rank, run, state, why))
WRAPPED(bool, metrics_epoch, (metrics * m, const epoch_result *result, fail *why), (m, result, why))
WRAPPED(bool, metrics_final,
        (metrics * m, const options *o, const epoch_result *last, double seconds, fail *why),
        (m, o, last, seconds, why))
WRAPPED(coll_status, coll_barrier, (coll_comm * comm), (comm))
WRAPPED(coll_status, coll_allreduce,
        (const void *in, void *out, size_t count, coll_type type, coll_op op, coll_comm *comm),
        (in, out, count, type, op, comm))
WRAPPED(coll_status, coll_iallreduce,
        (const void *in, void *out, size_t count, coll_type type, coll_op op, coll_comm *comm,
         coll_request **request),
        (in, out, count, type, op, comm, request))
WRAPPED(coll_status, coll_allgather,
        (const void *in, void *out, size_t count, coll_type type, coll_comm *comm),
        (in, out, count, type, comm))
WRAPPED(coll_status, coll_broadcast,
        (const void *in, void *out, size_t count, coll_type type, int root, coll_comm *comm),
        (in, out, count, type, root, comm))
WRAPPED(coll_status, coll_ireduce_scatterv,
        (const void *in, void *out, const size_t *counts, coll_type type, coll_op op,
         coll_comm *comm, coll_request **request),
        (in, out, counts, type, op, comm, request))
WRAPPED(coll_status, coll_iallgatherv,
        (const void *in, void *out, const size_t *counts, const size_t *places, coll_type type,
         coll_comm *comm, coll_request **request),
        (in, out, counts, places, type, comm, request))
WRAPPED(coll_status, coll_isend,
        (const void *data, size_t count, coll_type type, int peer, int tag, coll_comm *comm,
         coll_request **request),
        (data, count, type, peer, tag, comm, request))
WRAPPED(coll_status, coll_irecv,
        (void *data, size_t count, coll_type type, int peer, int tag, coll_message *got,
         coll_comm *comm, coll_request **request),
        (data, count, type, peer, tag, got, comm, request))

void __real_loader_epoch(loader *ld, uint64_t epoch);
void __wrap_loader_epoch(loader *ld, uint64_t epoch);
/* Training begins with a shuffle. */
void __wrap_loader_epoch(loader *ld, uint64_t epoch) {
  training = true;
  event("loader_epoch");
  __real_loader_epoch(ld, epoch);
}

coll_status __real_coll_comm_shrink(coll_comm *comm, const coll_config *config, coll_comm **child);
coll_status __wrap_coll_comm_shrink(coll_comm *comm, const coll_config *config, coll_comm **child);
/* Where the others notice that a rank does not answer, and where they continue. */
coll_status __wrap_coll_comm_shrink(coll_comm *comm, const coll_config *config, coll_comm **child) {
  if (shared->kind == FREEZE_SHORT)
    wake();
  coll_status status = __real_coll_comm_shrink(comm, config, child);
  int left = RANKS;
  if (status == COLL_OK)
    coll_comm_nranks(*child, &left);
  if (shared->kind == FREEZE_LONG && left < RANKS)
    wake();
  return status;
}

bool __real_checkpoint_publish(const char *path, int rank, fail *why);
bool __wrap_checkpoint_publish(const char *path, int rank, fail *why);
bool __wrap_checkpoint_publish(const char *path, int rank, fail *why) {
  static int published;
  event("checkpoint_publish");
  bool ok = __real_checkpoint_publish(path, rank, why);
  if (shared->kind == FREEZE_TO_END && !mine && ++published == 2)
    wake();
  return ok;
}

static void note_rank(int rank) {
  mine = rank == shared->rank;
}

/* ---- the job and its properties ------------------------------------------------------------- */

/* Shared memory for the fault. */
static void take_shared(void) {
  shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  cr_assert_neq(shared, MAP_FAILED);
}

/* A job of two epochs with two steps each. */
static void make(job *j, const char *strategy) {
  char words[128];
  snprintf(words, sizeof(words), "--strategy %s --batch 102 --epochs 2%s", strategy,
           strcmp(strategy, "gossip") == 0 || strcmp(strategy, "easgd") == 0 ? " --local-steps 1"
                                                                             : "");
  *j = job_make(words);
  j->o.checkpoint = j->checkpoint;
  j->before = note_rank;
  take_shared();
}

static void drop(job *j) {
  munmap(shared, sizeof(*shared));
  job_drop(j);
}

/* Prepares a fault at an event of a rank: the at-th of that name, or of all if it is NULL. */
static void set_fault(fault_kind kind, int rank, int at, const char *only) {
  shared->kind = kind;
  shared->rank = rank;
  shared->at = at;
  shared->only = only;
  shared->frozen = 0;
  shared->events = 0;
  shared->hit[0] = '\0';
}

/* The right answers among the test set, of the weights in the job's checkpoint; their hash, too. */
static double test_again(const job *j, uint64_t *hash) {
  dataset data;
  model m;
  pass p;
  loader ld;
  fail why = {.text = ""};
  double correct = 0;
  cr_assert(dataset_load(&data, j->folder, 64, &why) && model_asked_for(&m, &j->o, &data, &why) &&
            pass_create(&p, &m, FILES_TEST, &why) &&
            loader_create(&ld, &data, j->o.seed, j->o.batch, &why));
  float *params = calloc(m.params, sizeof(float)), *velocity = calloc(m.params, sizeof(float));
  checkpoint_run run = {
      .model = &m, .seed = j->o.seed, .batch = j->o.batch, .data = data.fingerprint};
  checkpoint_state state = {.params = params, .velocity = velocity};
  cr_assert(checkpoint_read(j->checkpoint, &run, &state, &why), "%s", why.text);
  cr_assert(state.epochs == j->o.epochs && state.step == 0);
  loader_test(&ld, (shard){0, FILES_TEST}, p.value[0], p.labels);
  cr_assert(model_forward(&m, params, &p, FILES_TEST, &why));
  model_loss(&m, &p, FILES_TEST, &correct);
  *hash = hash_bytes(HASH_START, params, m.params * sizeof(float));
  free(params);
  free(velocity);
  loader_destroy(&ld);
  pass_destroy(&p);
  dataset_free(&data);
  return correct;
}

/* Whether a rank at that point of the last epoch no longer needs another one, except for a barrier
 * whose messages may all have arrived. */
static bool at_end(const char *name) {
  return strncmp(name, "metrics_", 8) == 0 || strncmp(name, "checkpoint_", 11) == 0 ||
         strcmp(name, "coll_barrier") == 0;
}

/* Runs the job with the fault that was set. The ranks must end as the fault says, and the files of
 * the run must agree. */
static void check_run(const job *j, const char *what) {
  int results[JOB_MOST_RANKS], at = shared->at;
  char want[17];
  uint64_t hash;
  unlink(j->metrics);
  unlink(j->checkpoint);
  job_run(j, RANKS, results);
  const char *name = shared->hit, *why = j->out->why[shared->rank].text;
  /* A slow machine may cause recoveries of its own, so that a frozen rank's events shift. */
  cr_assert(shared->kind != KILL || name[0], "%s: there was no event %d", what, at);
  for (int r = 0; r < RANKS; r++) {
    int want_result = r == shared->rank && shared->kind == KILL ? 128 + SIGKILL : 0;
    if (r == shared->rank && shared->kind == FREEZE_LONG && name[0] &&
        (results[r] != 0 || !at_end(name)))
      want_result = 1; /* it learns that the others continued without it */
    if (r == shared->rank && shared->kind == FREEZE_TO_END)
      want_result = 1;
    cr_assert_eq(results[r], want_result,
                 "%s, event %d (%s): rank %d ended with %d, not %d; results %d %d %d: %s; %s; %s",
                 what, at, name, r, results[r], want_result, results[0], results[1], results[2],
                 j->out->why[0].text, j->out->why[1].text, j->out->why[2].text);
    cr_assert(want_result != 1 || strstr(why, "continued without it"), "%s", why);
  }
  for (int r = 0; r < RANKS; r++) {
    char left[128];
    snprintf(left, sizeof(left), "%s.%d.tmp", j->checkpoint, r);
    cr_assert_neq(access(left, F_OK), 0, "%s, event %d (%s): %s is left", what, at, name, left);
  }
  curve c = job_curve(j);
  double correct = test_again(j, &hash);
  cr_assert(c.test_accuracy >= 0 && c.test_accuracy <= 1);
  cr_assert_float_eq(c.test_accuracy * FILES_TEST, correct, 1e-6,
                     "%s, event %d (%s): %g right answers are reported, the weights give %g", what,
                     at, name, c.test_accuracy * FILES_TEST, correct);
  snprintf(want, sizeof(want), "%016" PRIx64, hash);
  cr_assert_str_eq(c.hash[c.epochs - 1], want, "the checkpoint has other weights than the ranks");
}

/* Counts the events of a rank in an undisturbed run. */
static int count_events(const job *j, int rank) {
  set_fault(NOTHING, rank, 0, NULL);
  check_run(j, "undisturbed");
  cr_assert_lt(shared->events, MOST_EVENTS);
  return shared->events;
}

/*
 * The number of an event among those of its name in the run of count_events(), or 0: the last of
 * the second epoch if there is one; of messages, whose number differs from run to run, the first.
 */
static int find_event(int events, const char *name) {
  bool message = strstr(name, "send") || strstr(name, "recv");
  int epochs = 0, number = 0, found = 0;
  for (int i = 0; i < events; i++) {
    epochs += strcmp(shared->name[i], "loader_epoch") == 0;
    if (strcmp(shared->name[i], name) != 0)
      continue;
    number++;
    if (found == 0 || (epochs == 2 && !message))
      found = number;
  }
  return found;
}

/* ---- killed --------------------------------------------------------------------------------- */

/* At events of the first rank, which writes the files, and of the last, which is a server if any
 * is: with TEST_ALL=1 at every stride-th. */
static void kill_everywhere(const char *strategy, int stride) {
  stride = extent(4 * stride, stride, 8 * stride);
  job j;
  make(&j, strategy);
  for (int rank = 0; rank < RANKS; rank += RANKS - 1) {
    int events = count_events(&j, rank);
    for (int at = rank ? stride : 1; at <= events; at += stride) {
      set_fault(KILL, rank, at, NULL);
      check_run(&j, strategy);
    }
  }
  drop(&j);
}

Test(train_lost, killed_anywhere_allreduce) {
  kill_everywhere("allreduce", 1);
}

Test(train_lost, killed_anywhere_zero1) {
  kill_everywhere("zero1", 2);
}

Test(train_lost, killed_anywhere_ps_sync) {
  kill_everywhere("ps-sync", 2);
}

Test(train_lost, killed_anywhere_ps_sharded) {
  kill_everywhere("ps-sharded", 2);
}

Test(train_lost, killed_anywhere_local_sgd) {
  kill_everywhere("local-sgd", 2);
}

/* At each event before training: the ranks that are left start over. */
Test(train_lost, killed_before_training) {
  static const char *const all[] = {"allreduce", "zero1", "ps-async", "ps-sharded"};
  for (int i = 0; i < 4; i++) {
    job j;
    make(&j, all[i]);
    shared->early = true;
    for (int rank = 0; rank < RANKS; rank += RANKS - 1) {
      int events = count_events(&j, rank);
      cr_assert_geq(events, 5);
      for (int at = 1; at <= events; at++) {
        set_fault(KILL, rank, at, NULL);
        check_run(&j, all[i]);
      }
    }
    drop(&j);
  }
}

/* ---- killed at one point of each kind ------------------------------------------------------- */

/* What a rank does in an epoch, by its first call. */
static const char *const all_points[] = {
    "loader_epoch",    /* the beginning */
    "model_backward",  /* within a step */
    "progress_step",   /* between steps */
    "coll_iallreduce", /* gradients, averages, or messages */
    "coll_ireduce_scatterv",
    "coll_iallgatherv",
    "coll_isend",
    "coll_irecv",
    "coll_broadcast", /* the end of an epoch, where a server gives its model away */
    "loader_test",    /* the test */
    "coll_allreduce", /* its sums */
    "coll_allgather", /* the comparison of weights */
    "metrics_epoch",  /* rank 0: the files of the run */
    "checkpoint_write",
    "checkpoint_publish",
    "metrics_final",
    "coll_barrier", /* the end */
    NULL,
};

/* Tests the fault at each of these points that the strategy has, up to NULL. */
static void fault_at_points(const char *strategy, fault_kind kind, int rank,
                            const coll_config *config, const char *const *points) {
  job j;
  make(&j, strategy);
  j.config = config;
  int events = count_events(&j, rank), tried = 0;
  for (size_t i = 0; points[i]; i++) {
    int at = find_event(events, points[i]);
    if (at == 0)
      continue;
    set_fault(kind, rank, at, points[i]);
    check_run(&j, strategy);
    tried++;
  }
  cr_assert_geq(tried, 5);
  drop(&j);
}

Test(train_lost, killed_at_points_without_turns) {
  static const char *const all[] = {"ps-async", "ps-bounded", "easgd", "gossip"};
  for (int i = 0; i < 4; i++)
    fault_at_points(all[i], KILL, i % 2 ? 0 : 2, NULL, all_points);
}

/* ---- frozen --------------------------------------------------------------------------------- */

/* A configuration in which operations and a shrink wait this long for a rank. */
static coll_config impatient(int timeout_ms, int create_timeout_ms) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = slow_ms(timeout_ms);
  config.create_timeout_ms = slow_ms(create_timeout_ms);
  return config;
}

/* It comes back in time for the shrink: nobody is lost. */
Test(train_lost, frozen_and_back) {
  coll_config config = impatient(500, 30000);
  fault_at_points("allreduce", FREEZE_SHORT, 1, &config, all_points);
}

Test(train_lost, first_rank_frozen_and_back) {
  coll_config config = impatient(500, 30000);
  fault_at_points("zero1", FREEZE_SHORT, 0, &config, all_points);
}

Test(train_lost, server_frozen_and_back) {
  coll_config config = impatient(500, 30000);
  fault_at_points("ps-sync", FREEZE_SHORT, 2, &config, all_points);
}

/* It comes back after the others have continued: it ends with an error, and does them no harm. */
Test(train_lost, frozen_for_long) {
  static const char *const points[] = {"loader_epoch",   "coll_iallreduce",  "loader_test",
                                       "coll_allreduce", "checkpoint_write", NULL};
  coll_config config = impatient(1000, 2000);
  fault_at_points("allreduce", FREEZE_LONG, 0, &config, points);
}

/* It comes back when the run has ended, and must not replace the last checkpoint by an old one. */
Test(train_lost, frozen_with_a_checkpoint) {
  static const char *const points[] = {"checkpoint_write", "checkpoint_publish"};
  coll_config config = impatient(1000, 2000);
  job j;
  make(&j, "allreduce");
  j.config = &config;
  for (int i = 0; i < 2; i++) {
    set_fault(FREEZE_TO_END, 0, 1, points[i]);
    check_run(&j, "frozen");
  }
  drop(&j);
}
