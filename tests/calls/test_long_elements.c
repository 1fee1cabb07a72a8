/* test_long_elements.c: elements that are longer than a slot. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include "case.h"
#include "data.h"
#include "extent.h"
#include "number.h"
#include "tests/proc/support_family.h"
#include "tests/proc/support_ranks.h"

#define SLOT 4096 /* of the tests that do not take the default */

/* What a rank of all_sizes() is to do. */
typedef struct plan {
  const size_t *sizes;
  int nsizes;
  size_t most; /* elements */
  int forms;   /* of each call: they take turns */
} plan;

/* Every collective with elements of every size. */
static int all_sizes(coll_comm *comm, int rank, int nranks, void *arg) {
  const plan *p = arg;
  uint64_t seed = (uint64_t)nranks;
  for (int s = 0; s < p->nsizes; s++)
    for (int coll = CASE_ALLREDUCE; coll < CASE_BARRIER; coll++)
      for (int form = 0; form < p->forms; form++) {
        test_case cases[3];
        uint64_t hash = number_hash(seed, 1, 2, 3);
        for (int i = 0; i < 3; i++)
          cases[i] =
              (test_case){.coll = (case_coll)coll,
                          .form = (case_form)((seed + (uint64_t)form) % CASE_FORMS),
                          .type = COLL_TYPE_USER(p->sizes[s]),
                          .op = coll >= CASE_BROADCAST ? (coll_op)-1
                                : hash % 2             ? CASE_OP_BYTES
                                                       : CASE_OP_AFFINE,
                          .root = (int)(hash % (uint64_t)nranks),
                          .in_place = (int)(seed / 4 % (coll == CASE_REDUCE_SCATTER ? 3 : 2)),
                          .count = i == 0 ? 1 : (size_t)(hash >> (8 * i)) % (p->most + 1),
                          .seed = hash + (uint64_t)i};
        seed++;
        if (case_run(comm, rank, nranks, cases, 3) != 0)
          return 1;
      }
  return 0;
}

/* Messages of long elements, and whether all else works beside them. */
static int exchange(coll_comm *comm, int rank, int nranks, size_t elem_bytes) {
  enum { COUNT = 3 };
  size_t bytes = elem_bytes * COUNT;
  unsigned char *in = malloc(bytes), *out = malloc(bytes);
  coll_type type = COLL_TYPE_USER(elem_bytes);
  coll_message got;
  RANK_CHECK(in && out);
  data_fill_bytes(in, bytes, (uint64_t)rank);
  RANK_OK(coll_sendrecv(in, COUNT, (rank + 1) % nranks, 1, out, COUNT, (rank + nranks - 1) % nranks,
                        1, type, &got, comm));
  RANK_CHECK(got.count == COUNT && got.type == type);
  RANK_CHECK(data_are_bytes(out, bytes, (uint64_t)((rank + nranks - 1) % nranks)));
  coll_candidate candidates[4];
  int found = 0;
  RANK_OK(coll_candidates(comm, "allgather", 2, type, (coll_op)0, 0, candidates, 4, &found));
  RANK_CHECK(found > 0 || nranks == 1);
  free(in);
  free(out);
  return family_exercise(comm, 100, 1);
}

static int on_both_comms(coll_comm *comm, int rank, int nranks, void *arg) {
  const plan *p = arg;
  coll_comm *child = NULL;
  if (all_sizes(comm, rank, nranks, arg) != 0 || exchange(comm, rank, nranks, 8192) != 0)
    return 1;
  RANK_OK(coll_comm_dup(comm, NULL, &child)); /* over shared connections */
  plan less = {p->sizes, 2, 2, 1};
  int result = all_sizes(child, rank, nranks, &less);
  result = result || exchange(child, rank, nranks, 70001);
  coll_comm_destroy(&child);
  return result;
}

/* Runs all sizes with 1 to `most` threads and with 3 processes, over both transports. */
static void run_sizes(plan *p, int most) {
  const char *transports[] = {"shm", "tcp"};
  const coll_determinism orders[] = {COLL_DETERMINISTIC_OFF, COLL_DETERMINISTIC_ON,
                                     COLL_DETERMINISTIC_ORDERED};
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    for (int nranks = 1; nranks <= most; nranks++) {
      config.deterministic = orders[(nranks + t) % 3];
      cr_assert_eq(run_threads(nranks, &config, on_both_comms, p), 0, "%d ranks, %s", nranks,
                   transports[t]);
    }
    cr_assert_eq(run_processes(3, &config, on_both_comms, p, 100, NULL), 0);
  }
}

Test(long_elements, small_slots, .timeout = 400) {
  const size_t sizes[] = {SLOT + 1, 3 * SLOT + 7, SLOT - 1, SLOT, 65535, 65536};
  plan p = {sizes, 6, 5, extent_seeds(1, 2, 1, CASE_FORMS)};
  setenv("COLL_SLOT_BYTES", "4096", 1);
  run_sizes(&p, extent(4, 5, 3));
  cr_assert_eq(run_threads(7, NULL, all_sizes, &p), 0);
}

Test(long_elements, usual_slots, .timeout = 400) {
  const size_t sizes[] = {3 * 65536 + 7, (1 << 20) + 3, 65537, 65536, 65535};
  plan p = {sizes, extent(3, 5, 3), 2, 1};
  run_sizes(&p, extent(2, 5, 2));
}

/* Every algorithm that reduces, whether or not it is ever chosen for such elements. */
static int one_algorithm(coll_comm *comm, int rank, int nranks, void *arg) {
  for (int form = 0; form < CASE_FORMS; form += extent(2, 1, 2)) {
    test_case cases[2];
    for (int i = 0; i < 2; i++)
      cases[i] = (test_case){.coll = *(const case_coll *)arg,
                             .form = (case_form)form,
                             .type = COLL_TYPE_USER(3 * SLOT + 7 + i * 70000),
                             .op = CASE_OP_BYTES,
                             .root = nranks / 2,
                             .in_place = form / 2,
                             .count = (size_t)(5 + 4 * i),
                             .seed = (uint64_t)form};
    if (case_run(comm, rank, nranks, cases, 2) != 0)
      return 1;
  }
  return 0;
}

/* The names of a collective's algorithms. */
typedef struct name_list {
  const char *collective;
  coll_candidate at[40];
  int count;
} name_list;

static int list_names(coll_comm *comm, int rank, int nranks, void *arg) {
  name_list *list = arg;
  (void)nranks;
  if (rank == 0)
    RANK_OK(coll_candidates(comm, list->collective, 5, COLL_TYPE_USER(SLOT + 1), case_bytes(), 0,
                            list->at, 40, &list->count));
  RANK_CHECK(rank > 0 || (list->count > 1 && list->count <= 40));
  return 0;
}

Test(long_elements, every_algorithm, .timeout = 400) {
  static const case_coll colls[] = {CASE_ALLREDUCE, CASE_REDUCE, CASE_REDUCE_SCATTER, CASE_SCAN,
                                    CASE_EXSCAN};
  static const char *const names[] = {"allreduce", "reduce", "reduce_scatter", "scan", "exscan"};
  setenv("COLL_SLOT_BYTES", "4096", 1);
  setenv("COLL_SLOT_COUNT", "2", 1);
  for (size_t c = 0; c < 5; c++)
    for (int nranks = 2; nranks <= extent(5, 7, 4); nranks += extent(3, 1, 2)) {
      name_list list = {.collective = names[c]};
      case_coll coll = colls[c];
      cr_assert_eq(run_threads(nranks, NULL, list_names, &list), 0);
      for (int i = 0; i < list.count; i++) {
        char algo[64];
        coll_config config = COLL_CONFIG_INIT;
        snprintf(algo, sizeof(algo), "%s:%s", names[c], list.at[i].name);
        config.algo = algo;
        cr_assert_eq(run_threads(nranks, &config, one_algorithm, &coll), 0, "%s, %d ranks", algo,
                     nranks);
      }
    }
}

/* ---- what is refused ------------------------------------------------------------------------- */

/* Ranks disagree about the size: the message has both. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  const int *sizes = arg;
  char *buf = calloc(3, 70000), want[2][40];
  const coll_op op = case_affine();
  coll_error error = COLL_ERROR_INIT;
  RANK_CHECK(nranks == 2 && buf);
  coll_type type = COLL_TYPE_USER(sizes[rank]);
  RANK_CHECK(coll_allreduce(buf, buf, 2, type, op, comm) == COLL_ERR_MISMATCH);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
  for (int i = 0; i < 2; i++) {
    snprintf(want[i], sizeof(want[i]), "elements of %d bytes", sizes[i]);
    RANK_CHECK(strstr(error.message, want[i]));
  }
  free(buf);
  return 0;
}

Test(long_elements, two_sizes_are_told_apart, .timeout = 60) {
  static int sizes[][2] = {{65535, 65536}, {65536, 65537}, {8192, 70000}, {100, 65636}};
  setenv("COLL_SLOT_BYTES", "4096", 1);
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++)
    cr_assert_eq(run_threads(2, NULL, disagree, sizes[i]), 0, "%d and %d", sizes[i][0],
                 sizes[i][1]);
}

/* More than a vector may have, and more than an element may have. */
static int too_large(coll_comm *comm, int rank, int nranks, void *arg) {
  char byte = 0;
  const coll_op op = case_affine();
  coll_error error = COLL_ERROR_INIT;
  coll_type largest = COLL_TYPE_USER(COLL_TYPE_USER_BYTES_MAX);
  const size_t counts[] = {((size_t)1 << 17) + 1, SIZE_MAX / 2, SIZE_MAX};
  (void)arg;
  for (int i = 0; i < 3; i++) {
    RANK_CHECK(coll_allreduce(&byte, &byte, counts[i], largest, op, comm) ==
               COLL_ERR_INVALID_ARGUMENT);
    RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
    RANK_CHECK(strstr(error.message, "more than memory can hold"));
    RANK_CHECK(coll_send(&byte, counts[i], largest, (rank + 1) % nranks, 1, comm) ==
               COLL_ERR_INVALID_ARGUMENT);
    RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
    RANK_CHECK(strstr(error.message, "more than memory can hold"));
  }
  coll_type none = COLL_TYPE_USER(COLL_TYPE_USER_BYTES_MAX + (size_t)1);
  RANK_CHECK(coll_broadcast(&byte, &byte, 1, none, 0, comm) == COLL_ERR_INVALID_ARGUMENT);
  RANK_CHECK(coll_last_error(comm, &error) == COLL_OK && strstr(error.message, "coll_type"));
  return family_exercise(comm, 100, 1);
}

/* There is no room for an element: known before anything is sent. */
static int no_room(coll_comm *comm, int rank, int nranks, void *arg) {
  const size_t bytes = 256 << 20;
  long pages = 0;
  (void)arg;
  const coll_op op = case_affine();
  coll_error error = COLL_ERROR_INIT;
  if (family_exercise(comm, 100, 1) != 0) /* allocates what it needs */
    return 1;
  void *buf =
      mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  RANK_CHECK(buf != MAP_FAILED);
  FILE *file = fopen("/proc/self/statm", "r");
  RANK_CHECK(file && fscanf(file, "%ld", &pages) == 1);
  fclose(file);
  size_t used = (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
  struct rlimit limit = {used + (64 << 20), RLIM_INFINITY};
  RANK_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
  coll_request *request;
  RANK_CHECK(coll_iallreduce(buf, buf, 1, COLL_TYPE_USER(bytes), op, comm, &request) ==
             COLL_ERR_NO_MEMORY);
  RANK_CHECK(!request && coll_last_error(comm, &error) == COLL_OK);
  RANK_CHECK(strstr(error.message, "longer than a slot"));
  return nranks == 2 ? family_exercise(comm, 100, 2) : 1;
}

Test(long_elements, what_cannot_be_is_refused, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, too_large, NULL), 0);
  if (!SANITIZED)
    cr_assert_eq(run_processes(2, NULL, no_room, NULL, 50, NULL), 0);
}

/* ---- the largest ----------------------------------------------------------------------------- */

/* Adds words of 64 bits. */
static void add_words(const void *left, const void *right, void *result, size_t count,
                      coll_type type, void *context) {
  const uint64_t *a = left, *b = right;
  uint64_t *r = result;
  size_t words = count * coll_type_bytes(type) / sizeof(*r);
  (void)context;
  for (size_t i = 0; i < words; i++)
    r[i] = a[i] + b[i];
}

/* A broadcast and an all-reduce of one element. */
static int largest(coll_comm *comm, int rank, int nranks, void *arg) {
  size_t bytes = *(const size_t *)arg, words = bytes / sizeof(uint64_t);
  uint64_t *buf = malloc(bytes), n = (uint64_t)nranks;
  coll_op op;
  RANK_CHECK(buf);
  RANK_OK(coll_op_create("words", add_words, NULL, 1, &op));
  for (size_t i = 0; i < words; i++)
    buf[i] = rank == 0 ? i * 0x9e3779b97f4a7c15ull : 0;
  RANK_OK(coll_broadcast(buf, buf, 1, COLL_TYPE_USER(bytes), 0, comm));
  for (size_t i = 0; i < words; i++) {
    RANK_CHECK(buf[i] == i * 0x9e3779b97f4a7c15ull);
    buf[i] += (uint64_t)rank;
  }
  RANK_OK(coll_allreduce(buf, buf, 1, COLL_TYPE_USER(bytes), op, comm));
  for (size_t i = 0; i < words; i++)
    RANK_CHECK(buf[i] == n * i * 0x9e3779b97f4a7c15ull + n * (n - 1) / 2);
  free(buf);
  RANK_OK(coll_op_free(&op));
  return 0;
}

Test(long_elements, the_largest, .timeout = 300) {
  size_t free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * (size_t)sysconf(_SC_PAGESIZE);
  bool whole = extent(0, 1, 0) && free_bytes > (size_t)8 << 30;
  size_t bytes = whole ? COLL_TYPE_USER_BYTES_MAX : (size_t)extent(64, 64, 8) << 20;
  cr_assert_eq(run_processes(2, NULL, largest, &bytes, 250, NULL), 0);
}
