/* test_alltoallw.c: an all-to-all with a type for each rank. */
#include <criterion/criterion.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "extent.h"
#include "number.h"
#include "tests/proc/support_ranks.h"

/* Blocks are whole units, which all types of the test divide but the longest. */
enum { MOST = 7, UNIT = 24, LONG = 1 << 17, GAP = 3, PATTERN = 0xa5 };

static const coll_type types[] = {COLL_UINT8,         COLL_FLOAT16,      COLL_INT32,
                                  COLL_FLOAT64,       COLL_TYPE_USER(3), COLL_TYPE_USER(UNIT),
                                  COLL_TYPE_USER(12), COLL_FLOAT8_E4M3};
enum { TYPES = sizeof(types) / sizeof(types[0]) };

typedef enum form { BLOCKING, NONBLOCKING, PERSISTENT, GROUPED, FORMS } call_form;

/* One exchange, as this rank sees it. */
typedef struct exchange {
  unsigned seed;
  int rank, nranks;
  bool in_place, packed;
} exchange;

/* One side of it. */
typedef struct side {
  size_t counts[MOST], displs[MOST], bytes[MOST], end;
  coll_type types[MOST];
  unsigned char *buf;
} side;

/* How many bytes go from one rank to another; in place, as many as come back. */
static size_t bytes_between(const exchange *x, int from, int to) {
  const int first = x->in_place && to < from ? to : from, second = from + to - first;
  const uint64_t h = number_hash(x->seed, (uint64_t)first, (uint64_t)second, 5);
  const size_t units[] = {0, 1, 2, 3, 17, 1001};
  return h % 8 == 7 ? LONG : UNIT * units[h % 8 % 6];
}

/* Byte i of that block. */
static unsigned char byte_of(const exchange *x, int from, int to, size_t i) {
  return (unsigned char)(number_hash(x->seed, (uint64_t)from, (uint64_t)to, 7) + i * 7 + i / 251);
}

/* Lays out one side, in reverse order with gaps or packed; the types of the sides differ. */
static void lay_out(const exchange *x, bool sends, side *s) {
  size_t at = 0;
  for (int i = 0; i < x->nranks; i++) {
    const int peer = x->packed ? i : x->nranks - 1 - i;
    const int from = sends ? x->rank : peer, to = sends ? peer : x->rank;
    const uint64_t h = number_hash(x->seed, (uint64_t)from, (uint64_t)to, sends ? 8 : 9);
    s->bytes[peer] = bytes_between(x, from, to);
    s->types[peer] = s->bytes[peer] != LONG ? types[h % TYPES]
                     : h % 2                ? COLL_TYPE_USER(LONG)
                                            : COLL_TYPE_USER(LONG / 4);
    s->counts[peer] = s->bytes[peer] / coll_type_bytes(s->types[peer]);
    s->displs[peer] = at;
    at += s->bytes[peer] + (x->packed ? 0 : GAP);
  }
  s->end = at;
}

/* Makes the sides and their buffers. */
static bool make_sides(const exchange *x, side *in, side *out) {
  lay_out(x, true, in);
  lay_out(x, false, out);
  in->buf = malloc(in->end + 1);
  out->buf = x->in_place ? in->buf : malloc(out->end + 1);
  return in->buf && out->buf;
}

/* Fills what this rank sends, and then, if it is not there too, what it receives. */
static void fill(const exchange *x, side *in, side *out) {
  memset(in->buf, PATTERN, in->end + 1);
  if (!x->in_place)
    memset(out->buf, PATTERN, out->end + 1);
  for (int to = 0; to < x->nranks; to++)
    for (size_t i = 0; i < in->bytes[to]; i++)
      in->buf[in->displs[to] + i] = byte_of(x, x->rank, to, i);
}

/* Whether all that came is right, and nothing else was written. */
static bool is_right(const exchange *x, const side *out) {
  bool ok = out->buf[out->end] == PATTERN;
  for (int from = 0; from < x->nranks; from++) {
    const unsigned char *block = out->buf + out->displs[from];
    for (size_t i = 0; i < out->bytes[from]; i++)
      ok &= block[i] == byte_of(x, from, x->rank, i);
    for (int i = 0; !x->packed && i < GAP; i++)
      ok &= block[out->bytes[from] + (size_t)i] == PATTERN;
  }
  return ok;
}

#define ARGUMENTS(in, out)                                                                         \
  (in)->buf, (in)->counts, x->packed ? NULL : (in)->displs, (in)->types, (out)->buf,               \
      (out)->counts, x->packed ? NULL : (out)->displs, (out)->types

/* Runs the exchange in one form; the persistent one twice, the group with a second exchange. */
static int run(coll_comm *comm, int rank, const exchange *x, call_form form, side *in, side *out) {
  coll_request *request = NULL;
  exchange other = *x;
  side in2 = {.buf = NULL}, out2 = {.buf = NULL};
  other.seed += 1000;
  other.in_place = false;
  RANK_CHECK(make_sides(x, in, out) && make_sides(&other, &in2, &out2));
  fill(x, in, out);
  fill(&other, &in2, &out2);
  switch (form) {
  case BLOCKING:
    RANK_OK(coll_alltoallw(ARGUMENTS(in, out), comm));
    break;
  case NONBLOCKING:
    RANK_OK(coll_ialltoallw(ARGUMENTS(in, out), comm, &request));
    RANK_OK(coll_wait(&request, -1));
    break;
  case PERSISTENT:
    RANK_OK(coll_alltoallw_init(ARGUMENTS(in, out), comm, &request));
    for (int i = 0; i < 2; i++) {
      fill(x, in, out);
      RANK_OK(coll_start(request));
      RANK_OK(coll_wait(&request, -1));
    }
    RANK_OK(coll_request_free(&request));
    break;
  default:
    RANK_OK(coll_group_start(comm));
    RANK_OK(coll_alltoallw(ARGUMENTS(in, out), comm));
    RANK_OK(coll_alltoallw(ARGUMENTS(&in2, &out2), comm));
    RANK_OK(coll_group_end(comm));
    RANK_CHECK(is_right(&other, &out2));
  }
  free(in2.buf);
  free(out2.buf);
  return 0;
}

static int exchanges(coll_comm *comm, int rank, int nranks, void *arg) {
  for (unsigned seed = 1; seed <= *(unsigned *)arg; seed++)
    for (int form = 0; form < FORMS; form++) {
      exchange x = {seed * 10 + (unsigned)form, rank, nranks, seed % 3 == 0, seed % 2};
      side in = {.buf = NULL}, out = {.buf = NULL};
      if (run(comm, rank, &x, form, &in, &out) != 0)
        return 1;
      if (!is_right(&x, &out)) {
        fprintf(stderr, "rank %d of %d, seed %u, form %d: wrong result\n", rank, nranks, seed,
                form);
        return 1;
      }
      free(in.buf);
      if (out.buf != in.buf)
        free(out.buf);
    }
  return 0;
}

Test(alltoallw, random, .timeout = 300) {
  unsigned seeds = (unsigned)extent(3, 12, 3);
  cr_assert_eq(run_in_all_ways(MOST, 2, 4, exchanges, &seeds), 0);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

/* Fails unless the call gives an error with those words. */
#define REFUSED(words, ...)                                                                        \
  do {                                                                                             \
    coll_error error = COLL_ERROR_INIT;                                                            \
    RANK_CHECK(coll_alltoallw(__VA_ARGS__, comm) == COLL_ERR_INVALID_ARGUMENT);                    \
    coll_last_error(comm, &error);                                                                 \
    if (!strstr(error.message, words) || strcmp(error.operation, "alltoallw") != 0)                \
      fprintf(stderr, "%s: %s\n", error.operation, error.message);                                 \
    RANK_CHECK(strstr(error.message, words));                                                      \
  } while (0)

static int wrong(coll_comm *comm, int rank, int nranks, void *arg) {
  unsigned char in[16] = {0}, out[16];
  size_t one[2] = {1, 1}, huge[2] = {1, SIZE_MAX / 2}, far[2] = {0, SIZE_MAX}, gap[2] = {0, 8};
  coll_type ints[2] = {COLL_INT32, COLL_INT32}, no[2] = {COLL_INT32, (coll_type)777};
  (void)arg;
  RANK_CHECK(nranks == 2);
  REFUSED("sendcounts is NULL", in, NULL, NULL, ints, out, one, NULL, ints);
  REFUSED("recvtypes is NULL", in, one, NULL, ints, out, one, NULL, NULL);
  REFUSED("sendtypes[1] = 777", in, one, NULL, no, out, one, NULL, ints);
  REFUSED("recvcounts[1]", in, one, NULL, ints, out, huge, NULL, ints);
  REFUSED("sendcounts[1]", in, one, far, ints, out, one, NULL, ints);
  REFUSED("sendbuf is NULL", NULL, one, NULL, ints, out, one, NULL, ints);
  REFUSED("overlap", in, one, NULL, ints, in + 1, one, NULL, ints);
  REFUSED("in place", in, one, NULL, ints, in, one, gap, ints);
  RANK_OK(coll_group_start(comm));
  REFUSED("sendtypes is NULL", in, one, NULL, NULL, out, one, NULL, ints);
  RANK_CHECK(coll_group_end(comm) == COLL_ERR_INVALID_ARGUMENT);
  coll_request *request;
  RANK_CHECK(coll_alltoallw_on_stream(in, one, NULL, ints, out, one, NULL, ints, comm, NULL) ==
             COLL_ERR_UNSUPPORTED);
  RANK_CHECK(coll_ialltoallw(in, one, NULL, no, out, one, NULL, ints, comm, &request) ==
                 COLL_ERR_INVALID_ARGUMENT &&
             !request);
  RANK_OK(coll_barrier(comm)); /* nothing of this was sent */
  return 0;
}

Test(alltoallw, wrong_calls, .timeout = 60) {
  cr_assert_eq(run_threads(2, NULL, wrong, NULL), 0);
}

/* Ranks that disagree on a length get an error, even if their counts are equal; rank 0, whose own
 * blocks are right, perhaps only at its next call. */
static int disagree(coll_comm *comm, int rank, int nranks, void *arg) {
  int32_t in[16] = {0}, out[16];
  size_t one[3] = {1, 1, 1};
  coll_type ints[3] = {COLL_INT32, COLL_INT32, COLL_INT32};
  (void)arg;
  if (rank == 2)
    ints[1] = COLL_INT64;
  RANK_CHECK(nranks == 3);
  coll_status status = coll_alltoallw(in, one, NULL, ints, out, one, NULL, ints, comm);
  if (rank == 0 && status == COLL_OK)
    status = coll_barrier(comm);
  RANK_CHECK(status == COLL_ERR_MISMATCH);
  coll_error error = COLL_ERROR_INIT;
  coll_last_error(comm, &error);
  RANK_CHECK(strstr(error.message, "longer or shorter"));
  return 0;
}

Test(alltoallw, other_lengths, .timeout = 60) {
  coll_config config = COLL_CONFIG_INIT;
  config.timeout_ms = 20000;
  cr_assert_eq(run_threads(3, &config, disagree, NULL), 0);
}
