/* test_user_ops.c: user-defined operations belong to the process: they work on every communicator,
 * outlive their handle, and are told apart by name. */
#include <criterion/criterion.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "case.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

enum { RANKS = 4, COUNT = 40 };

/* Every reduction in every form, with an operation that does not commute. */
static int reduce_in_all_forms(coll_comm *comm) {
  int rank = -1, nranks;
  RANK_OK(coll_comm_rank(comm, &rank));
  RANK_OK(coll_comm_nranks(comm, &nranks));
  for (int coll = CASE_ALLREDUCE; coll < CASE_BROADCAST; coll++)
    for (int form = 0; form < CASE_FORMS; form++) {
      test_case cases[2];
      for (int i = 0; i < 2; i++)
        cases[i] = (test_case){.coll = (case_coll)coll,
                               .form = (case_form)form,
                               .type = CASE_TYPE_AFFINE,
                               .op = CASE_OP_AFFINE,
                               .root = nranks - 1,
                               .count = i ? 3001 : 1,
                               .seed = (uint64_t)(coll * CASE_FORMS + form)};
      if (case_run(comm, rank, nranks, cases, 2) != 0)
        return 1;
    }
  return 0;
}

/* ---- on every communicator ------------------------------------------------------------------- */

/* On a communicator and all that can be made from it. */
static int use_everywhere(coll_comm *comm, int rank, int nranks, void *arg) {
  static const int some[] = {3, 0, 1};
  coll_comm *made[5] = {NULL};
  coll_request *request;
  (void)arg;
  RANK_CHECK(nranks == RANKS && reduce_in_all_forms(comm) == 0);
  RANK_OK(coll_comm_dup(comm, NULL, &made[0]));
  RANK_OK(coll_comm_idup(comm, NULL, &made[1], &request));
  RANK_OK(coll_wait(&request, -1));
  RANK_OK(coll_comm_split(comm, rank % 2, -rank, NULL, &made[2]));
  if (rank != 2)
    RANK_OK(coll_comm_create_group(comm, some, 3, 1, NULL, &made[3]));
  RANK_OK(coll_comm_shrink(comm, NULL, &made[4]));
  for (int i = 0; i < 5; i++)
    RANK_CHECK(!made[i] || reduce_in_all_forms(made[i]) == 0);
  for (int i = 0; i < 5; i++)
    if (made[i])
      coll_comm_destroy(&made[i]);
  return 0;
}

Test(user_ops, made_before_every_communicator, .timeout = 100) {
  cr_assert_neq(case_affine(), -1); /* now; and the processes have copies of it */
  cr_assert_eq(run_threads(RANKS, NULL, use_everywhere, NULL), 0);
  cr_assert_eq(run_processes(RANKS, NULL, use_everywhere, NULL, 90, NULL), 0);
}

Test(user_ops, made_after_a_communicator, .timeout = 60) {
  cr_assert_eq(run_processes(RANKS, NULL, use_everywhere, NULL, 50, NULL), 0);
}

/* What members and a newcomer share. */
typedef struct scene {
  coll_id id;
  atomic_int open; /* `id` is there */
} scene;

static int take_in(coll_comm *comm, int rank, int nranks, void *arg) {
  scene *s = arg;
  int count = 0;
  coll_comm *bigger = NULL;
  RANK_CHECK(nranks == 2 && reduce_in_all_forms(comm) == 0);
  if (rank == 0) {
    RANK_OK(coll_comm_join_id(comm, &s->id));
    atomic_store(&s->open, 1);
    RANK_CHECK(WAIT_UNTIL(coll_comm_joiners(comm, &count) != COLL_OK || count == 1, 30));
  }
  RANK_OK(coll_comm_grow(comm, NULL, &bigger));
  RANK_OK(coll_comm_nranks(bigger, &nranks));
  RANK_CHECK(nranks == 3 && reduce_in_all_forms(bigger) == 0);
  coll_comm_destroy(&bigger);
  return 0;
}

static int join(scene *s) {
  const int rank = -1;
  coll_comm *comm = NULL;
  RANK_CHECK(WAIT_UNTIL(atomic_load(&s->open), 30));
  RANK_OK(coll_comm_join(&comm, &s->id, NULL));
  RANK_CHECK(reduce_in_all_forms(comm) == 0);
  coll_comm_destroy(&comm);
  return 0;
}

/* A newcomer makes its own operation. */
Test(user_ops, grown, .timeout = 60) {
  scene *s = shared_memory(sizeof(*s));
  int status = -1;
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0)
    _exit(join(s));
  cr_expect_eq(run_processes(2, NULL, take_in, s, 50, NULL), 0);
  cr_assert_eq(waitpid(pid, &status, 0), pid);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

/* ---- operations of a test's own -------------------------------------------------------------- */

/* result = left op right = left + right + *context: tells which function ran, with what. */
static void add_more(const void *left, const void *right, void *result, size_t count,
                     coll_type type, void *context) {
  const int more = context ? *(const int *)context : 0;
  (void)type;
  for (size_t i = 0; i < count; i++)
    ((int *)result)[i] = ((const int *)left)[i] + ((const int *)right)[i] + more;
}

/* A buffer of a rank, its result, and whether that is right. */
typedef struct vectors {
  int in[COUNT], out[COUNT];
} vectors;

static void fill(vectors *v, int rank) {
  for (int i = 0; i < COUNT; i++) {
    v->in[i] = i * (rank + 1);
    v->out[i] = -1;
  }
}

static bool is_sum(const vectors *v, int nranks, int more) {
  for (int i = 0; i < COUNT; i++)
    if (v->out[i] != i * nranks * (nranks + 1) / 2 + more * (nranks - 1))
      return false;
  return true;
}

/* Every rank makes them in another order, and some more often. */
static int make_in_other_orders(coll_comm *comm, int rank, int nranks, void *arg) {
  static const char *const names[] = {"a", "b", "c"};
  static int more[] = {100, 200, 300};
  coll_op ops[3], again[RANKS];
  vectors v;
  (void)arg;
  for (int i = 0; i < 3; i++) {
    const int k = (i + rank) % 3;
    RANK_OK(coll_op_create(names[k], add_more, &more[k], 1, &ops[k]));
  }
  for (int i = 0; i < rank; i++)
    RANK_OK(coll_op_create("c", add_more, &more[2], 1, &again[i]));
  for (int round = 0; round < 3; round++)
    for (int k = 0; k < 3; k++) {
      fill(&v, rank);
      const coll_op op = k == 2 && rank > 0 ? again[round % rank] : ops[k];
      RANK_OK(coll_allreduce(v.in, v.out, COUNT, COLL_INT32, op, comm));
      RANK_CHECK(is_sum(&v, nranks, more[k]));
    }
  for (int i = 0; i < rank; i++)
    RANK_OK(coll_op_free(&again[i]));
  for (int k = 0; k < 3; k++)
    RANK_OK(coll_op_free(&ops[k]));
  return 0;
}

Test(user_ops, the_order_of_creation_does_not_matter, .timeout = 60) {
  cr_assert_eq(run_threads(RANKS, NULL, make_in_other_orders, NULL), 0);
  cr_assert_eq(run_processes(RANKS, NULL, make_in_other_orders, NULL, 50, NULL), 0);
}

/* Pre-multiplied sums are one operation, whatever their factors. */
static int premultiply(coll_comm *comm, int rank, int nranks, void *arg) {
  vectors v;
  coll_op op;
  const int32_t factor = rank + 2;
  (void)arg;
  RANK_OK(coll_op_create_premul_sum(&factor, COLL_INT32, &op));
  for (int i = 0; i < COUNT; i++)
    v.in[i] = i;
  coll_request *request;
  RANK_OK(coll_allreduce_init(v.in, v.out, COUNT, COLL_INT32, op, comm, &request));
  RANK_OK(coll_op_free(&op));
  for (int round = 0; round < 3; round++) {
    memset(v.out, -1, sizeof(v.out));
    coll_request *running = request;
    RANK_OK(coll_start(request));
    RANK_OK(coll_wait(&running, -1));
    for (int i = 0; i < COUNT; i++)
      RANK_CHECK(v.out[i] == i * nranks * (nranks + 3) / 2);
  }
  RANK_OK(coll_request_free(&request));
  return 0;
}

Test(user_ops, premultiplied_sums, .timeout = 60) {
  cr_assert_eq(run_threads(RANKS, NULL, premultiply, NULL), 0);
}

/* ---- freed while in use ---------------------------------------------------------------------- */

enum { MANY = 100 };

/* Frees an operation, and makes others, one of which gets its memory if that was given back. */
static int free_and_replace(int rank, coll_op *op, coll_op others[MANY]) {
  static int wrong = 1000000;
  RANK_CHECK(coll_op_free(op) == COLL_OK && *op == -1);
  for (int i = 0; i < MANY; i++)
    RANK_CHECK(coll_op_create("another", add_more, &wrong, 1, &others[i]) == COLL_OK);
  return 0;
}

static int free_all(int rank, coll_op others[MANY]) {
  for (int i = 0; i < MANY; i++)
    RANK_CHECK(coll_op_free(&others[i]) == COLL_OK);
  return 0;
}

/* Nonblocking: the last rank comes only when all others have freed their operations. */
static int free_started(coll_comm *comm, int rank, int nranks, void *arg) {
  atomic_int *freed = arg;
  vectors v;
  coll_op op, others[MANY];
  coll_request *request;
  int more = 5;
  fill(&v, rank);
  RANK_OK(coll_op_create("more", add_more, &more, 0, &op));
  if (rank == nranks - 1)
    RANK_CHECK(WAIT_UNTIL(atomic_load(freed) == nranks - 1, 30));
  RANK_OK(coll_iallreduce(v.in, v.out, COUNT, COLL_INT32, op, comm, &request));
  RANK_CHECK(free_and_replace(rank, &op, others) == 0);
  atomic_fetch_add(freed, 1);
  RANK_OK(coll_wait(&request, -1));
  RANK_CHECK(is_sum(&v, nranks, more));
  return free_all(rank, others);
}

/* Persistent, and more plans than there is room for. */
static int free_kept(coll_comm *comm, int rank, int nranks, void *arg) {
  vectors v;
  coll_op op, others[MANY];
  coll_request *request;
  int more = 6;
  char bytes[200] = {0};
  (void)arg;
  RANK_OK(coll_op_create("more", add_more, &more, 0, &op));
  RANK_OK(coll_allreduce_init(v.in, v.out, COUNT, COLL_INT32, op, comm, &request));
  RANK_CHECK(free_and_replace(rank, &op, others) == 0);
  for (int round = 0; round < 3; round++) {
    fill(&v, rank);
    coll_request *running = request;
    RANK_OK(coll_start(request));
    RANK_OK(coll_wait(&running, -1));
    RANK_CHECK(is_sum(&v, nranks, more));
    for (size_t count = 1; count < sizeof(bytes); count++)
      RANK_OK(coll_broadcast(bytes, bytes, count, COLL_UINT8, 0, comm));
  }
  RANK_OK(coll_request_free(&request));
  return free_all(rank, others);
}

/* In a group, blocking or not, which starts only at its end. */
static int free_grouped(coll_comm *comm, int rank, int nranks, void *arg) {
  vectors v[2];
  coll_op op, others[MANY];
  int more = 7;
  (void)arg;
  for (int turn = 0; turn < 2; turn++) {
    coll_request *request = NULL;
    RANK_OK(coll_op_create("more", add_more, &more, 0, &op));
    RANK_OK(coll_group_start(comm));
    for (int i = 0; i < 2; i++) {
      fill(&v[i], rank);
      RANK_OK(coll_allreduce(v[i].in, v[i].out, COUNT, COLL_INT32, op, comm));
    }
    RANK_CHECK(free_and_replace(rank, &op, others) == 0);
    RANK_OK(turn ? coll_group_iend(comm, &request) : coll_group_end(comm));
    RANK_OK(turn ? coll_wait(&request, -1) : COLL_OK);
    RANK_CHECK(is_sum(&v[0], nranks, more) && is_sum(&v[1], nranks, more));
    RANK_CHECK(free_all(rank, others) == 0);
  }
  return 0;
}

Test(user_ops, freed_while_in_use, .timeout = 100) {
  atomic_int *freed = shared_memory(2 * sizeof(*freed));
  cr_expect_eq(run_threads(RANKS, NULL, free_started, &freed[0]), 0);
  cr_expect_eq(run_processes(RANKS, NULL, free_started, &freed[1], 50, NULL), 0);
  cr_expect_eq(run_threads(RANKS, NULL, free_kept, NULL), 0);
  cr_expect_eq(run_threads(RANKS, NULL, free_grouped, NULL), 0);
}

/* ---- two operations in one call -------------------------------------------------------------- */

/* What the ranks of a call disagree about. */
typedef struct dispute {
  const char *names[2]; /* NULL: the predefined COLL_SUM */
  int commutative[2];
  const char *texts[2]; /* of which the message has one or both */
} dispute;

static const dispute disputes[] = {
    {{"mylib maximum", "mylib minimum"}, {1, 1}, {"\"mylib maximum\"", "\"mylib minimum\""}},
    {{"mylib maximum", "mylib maximum"}, {1, 0}, {"\"mylib maximum\"", "operation 0x"}},
    {{"mylib maximum", NULL}, {1, 1}, {"\"mylib maximum\"", "int32, sum)"}},
};

/* Makes a reduction in a form; its result, or that of waiting for it. */
static coll_status reduce_as(coll_comm *comm, case_form form, vectors *v, coll_op op) {
  const size_t counts[] = {COUNT / 2, COUNT / 2};
  coll_request *request = NULL, *running;
  coll_status status;
  switch (form) {
  case CASE_NONBLOCKING:
    status = coll_iallreduce(v->in, v->out, COUNT, COLL_INT32, op, comm, &request);
    return status == COLL_OK ? coll_wait(&request, -1) : status;
  case CASE_PERSISTENT:
    status = coll_scan_init(v->in, v->out, COUNT, COLL_INT32, op, comm, &request);
    running = request;
    status = status == COLL_OK ? coll_start(request) : status;
    status = status == COLL_OK ? coll_wait(&running, -1) : status;
    (void)coll_request_free(&request);
    return status;
  case CASE_GROUPED:
    (void)coll_group_start(comm);
    (void)coll_reduce_scatterv(v->in, v->out, counts, COLL_INT32, op, comm);
    return coll_group_end(comm);
  default:
    return coll_allreduce(v->in, v->out, COUNT, COLL_INT32, op, comm);
  }
}

/* What run_disputes() runs. */
typedef struct disputed_call {
  const dispute *dispute;
  case_form form;
} disputed_call;

/* The ranks first use the same operation, then different ones. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  const disputed_call *c = arg;
  const char *name = c->dispute->names[rank];
  coll_op common, own = COLL_SUM;
  coll_error error = COLL_ERROR_INIT;
  vectors v;
  fill(&v, rank);
  RANK_CHECK(nranks == 2);
  RANK_OK(coll_op_create("common", add_more, NULL, 1, &common));
  RANK_OK(reduce_as(comm, c->form, &v, common));
  if (name)
    RANK_OK(coll_op_create(name, add_more, NULL, c->dispute->commutative[rank], &own));
  coll_status status = reduce_as(comm, c->form, &v, own);
  if (status == COLL_OK) /* a scan's first rank only sends: it hears of it later */
    status = coll_barrier(comm);
  RANK_CHECK(status == COLL_ERR_MISMATCH);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
  if (!strstr(error.message, c->dispute->texts[0]) && !strstr(error.message, c->dispute->texts[1]))
    fprintf(stderr, "%s\n", error.message);
  RANK_CHECK(strstr(error.message, c->dispute->texts[0]) ||
             strstr(error.message, c->dispute->texts[1]));
  RANK_CHECK(strstr(error.message, "same calls"));
  RANK_OK(coll_op_free(&common));
  RANK_CHECK(!name || coll_op_free(&own) == COLL_OK);
  return 0;
}

Test(user_ops, different_operations_are_a_mismatch, .timeout = 100) {
  for (size_t i = 0; i < sizeof(disputes) / sizeof(*disputes); i++)
    for (int form = 0; form < CASE_FORMS; form++) {
      disputed_call c = {&disputes[i], (case_form)form};
      cr_expect_eq(run_threads(2, NULL, disagree, &c), 0, "%zu, form %d", i, form);
      cr_expect_eq(run_processes(2, NULL, disagree, &c, 20, NULL), 0, "%zu, form %d", i, form);
    }
}
