/* test_long_elements.c: elements that are longer than a message may be. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "case.h"
#include "data.h"
#include "extent.h"
#include "number.h"
#include "tests/proc/support_family.h"
#include "tests/proc/support_ranks.h"

#define SLOT "4096"

static const size_t sizes[] = {4096, 4097, 10007, 65535};
static const size_t counts[] = {0, 1, 2, 17};

/* Every collective that moves data, in every form. */
static int move(coll_comm *comm, int rank, int nranks, void *arg) {
  (void)arg;
  uint64_t seed = 0;
  for (size_t s = SANITIZED; s < sizeof(sizes) / sizeof(*sizes); s += (size_t)extent(1, 1, 2))
    for (int coll = CASE_BROADCAST; coll < CASE_BARRIER; coll++)
      for (int form = 0; form < CASE_FORMS; form++) {
        test_case cases[sizeof(counts) / sizeof(*counts)];
        int n = 0;
        for (size_t c = 0; c < sizeof(counts) / sizeof(*counts); c++) {
          uint64_t hash = number_hash(seed, 1, 2, 3);
          cases[n++] = (test_case){.coll = (case_coll)coll,
                                   .form = (case_form)form,
                                   .type = COLL_TYPE_USER(sizes[s]),
                                   .op = (coll_op)-1,
                                   .root = (int)(hash % (uint64_t)nranks),
                                   .in_place = (int)(seed / 4 % 2), /* of all at once */
                                   .count = counts[c],
                                   .seed = seed};
          seed++;
        }
        if (case_run(comm, rank, nranks, cases, n, (coll_op)-1) != 0)
          return 1;
      }
  return 0;
}

/* Messages, too; and reductions are refused, which leaves the communicator as it was. */
static void keep_left(const void *left, const void *right, void *result, size_t count,
                      coll_type type, void *context) {
  (void)right;
  (void)context;
  memmove(result, left, count * coll_type_bytes(type));
}

static int others(coll_comm *comm, int rank, int nranks, void *arg) {
  enum { BYTES = 8192, COUNT = 3 };
  unsigned char in[BYTES * COUNT], out[BYTES * COUNT];
  coll_type type = COLL_TYPE_USER(BYTES);
  coll_error error = COLL_ERROR_INIT;
  coll_request *request;
  coll_op op;
  (void)arg;
  data_fill_bytes(in, sizeof(in), (uint64_t)rank);
  RANK_OK(coll_sendrecv(in, COUNT, (rank + 1) % nranks, 1, out, COUNT, (rank + nranks - 1) % nranks,
                        1, type, NULL, comm));
  RANK_CHECK(data_are_bytes(out, sizeof(out), (uint64_t)((rank + nranks - 1) % nranks)));
  RANK_OK(coll_op_create(comm, keep_left, NULL, 0, &op));
  coll_status want = nranks > 1 ? COLL_ERR_INVALID_ARGUMENT : COLL_OK;
  RANK_CHECK(coll_allreduce(in, out, COUNT, type, op, comm) == want);
  RANK_CHECK(coll_scan(in, out, COUNT, type, op, comm) == want);
  if (nranks > 1) {
    RANK_CHECK(coll_ireduce(in, out, 1, type, op, 0, comm, &request) == want && !request);
    RANK_CHECK(coll_last_error(comm, &error) == COLL_OK);
    RANK_CHECK(strstr(error.message, "8192") && strstr(error.message, "COLL_SLOT_BYTES"));
  }
  RANK_OK(coll_allreduce(in, out, 2, COLL_TYPE_USER(4096), op, comm)); /* just fits */
  data_fill_bytes(in, sizeof(in), 0);
  RANK_CHECK(memcmp(in, out, 2 * 4096) == 0);
  coll_candidate candidates[4];
  int found = 0;
  RANK_OK(coll_candidates(comm, "allgather", 2, type, (coll_op)0, 0, candidates, 4, &found));
  RANK_CHECK(found > 0 || nranks == 1);
  return family_exercise(comm, 100, 1);
}

static int everything(coll_comm *comm, int rank, int nranks, void *arg) {
  coll_comm *child = NULL;
  if (move(comm, rank, nranks, arg) != 0 || others(comm, rank, nranks, arg) != 0)
    return 1;
  RANK_OK(coll_comm_dup(comm, NULL, &child)); /* over shared connections */
  int result = others(child, rank, nranks, arg);
  coll_comm_destroy(&child);
  return result;
}

Test(long_elements, every_collective, .timeout = 250) {
  const char *transports[] = {"shm", "tcp"};
  setenv("COLL_SLOT_BYTES", SLOT, 1);
  for (int t = 0; t < transports_tried(); t++) {
    coll_config config = COLL_CONFIG_INIT;
    config.transport = transports[t];
    for (int nranks = 1; nranks <= extent(3, 6, 2); nranks++)
      cr_assert_eq(run_threads(nranks, &config, everything, NULL), 0);
    cr_assert_eq(run_processes(3, &config, everything, NULL, 100, NULL), 0);
  }
}
