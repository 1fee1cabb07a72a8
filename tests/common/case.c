/* case.c: one call of any collective, in any form, against a plain reference. */
#include "case.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "data.h"
#include "number.h"

#define GUARD   64 /* bytes around a buffer that must stay as they are */
#define PATTERN 0xa5

/* Blocks of a buffer, in elements. */
typedef struct layout {
  int nblocks;
  size_t count[CASE_MAX_RANKS];
  size_t first[CASE_MAX_RANKS];
  size_t end;
} layout;

/* The state of one case on one rank. */
struct case_state {
  const test_case *c;
  test_case copy;
  int rank, nranks;
  size_t bytes; /* of an element */
  layout in, out;
  unsigned char *in_base, *out_base; /* with guards */
  unsigned char *sendbuf, *recvbuf;
  size_t base_bytes;                     /* of each, with guards */
  unsigned char *in_device, *out_device; /* what the call gets instead of them, or NULL */
  coll_op op;
};

int case_takes(coll_type type, coll_op op) {
  int integer = type <= COLL_UINT64, number = type <= COLL_FLOAT8_E5M2;
  if (op == CASE_OP_AFFINE || type == CASE_TYPE_AFFINE)
    return op == CASE_OP_AFFINE && type == CASE_TYPE_AFFINE;
  if (op <= COLL_AVG)
    return number;
  return op <= COLL_LXOR ? integer : !number;
}

static int reduces(const test_case *c) {
  return c->coll < CASE_BROADCAST;
}

static int varying(const test_case *c) {
  return c->coll == CASE_REDUCE_SCATTERV || c->coll == CASE_ALLGATHERV || c->coll == CASE_GATHERV ||
         c->coll == CASE_SCATTERV || c->coll == CASE_ALLTOALLV;
}

const char *case_text(const test_case *c, int nranks, char text[160]) {
  static const char *const colls[] = {"allreduce",  "reduce",   "reduce_scatter", "reduce_scatterv",
                                      "scan",       "exscan",   "broadcast",      "allgather",
                                      "allgatherv", "gather",   "gatherv",        "scatter",
                                      "scatterv",   "alltoall", "alltoallv",      "barrier"};
  static const char *const forms[] = {"blocking", "nonblocking", "persistent",
                                      "grouped",  "on a stream", "grouped on a stream"};
  snprintf(text, 160,
           "%s, %s, type %d, op %d, %d ranks, root %d, in place %d, count %zu, seed %llu",
           colls[c->coll], forms[c->form], (int)c->type, (int)c->op, nranks, c->root, c->in_place,
           c->count, (unsigned long long)c->seed);
  return text;
}

/* ---- layouts --------------------------------------------------------------------------------- */

/* The block that goes from one rank to another; in other v-forms `to` is 0. */
static size_t block_count(const test_case *c, int from, int to) {
  uint64_t h = number_hash(c->seed, (uint64_t)from, (uint64_t)to, 3);
  if (!varying(c))
    return c->count;
  return h % 4 == 0 ? 0 : (size_t)(h >> 8) % (2 * c->count + 1);
}

/* Lays out blocks: packed, or in another order with gaps. */
static void place(layout *l, int nblocks, int spread) {
  size_t at = 0;
  l->nblocks = nblocks;
  for (int i = 0; i < nblocks; i++) {
    int b = spread ? nblocks - 1 - i : i;
    l->first[b] = at;
    at += l->count[b] + (spread ? 3 : 0);
  }
  l->end = at;
}

/* Whether a buffer of this case has one block for each rank, rather than one. */
static int many_in(case_coll coll) {
  return coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV || coll == CASE_SCATTER ||
         coll == CASE_SCATTERV || coll == CASE_ALLTOALL || coll == CASE_ALLTOALLV;
}

static int many_out(case_coll coll) {
  return coll == CASE_ALLGATHER || coll == CASE_ALLGATHERV || coll == CASE_GATHER ||
         coll == CASE_GATHERV || coll == CASE_ALLTOALL || coll == CASE_ALLTOALLV;
}

/* Whether displacements may be given for it. */
static int spread(const test_case *c, int in) {
  if (!varying(c) || c->seed % 3 == 0)
    return 0;
  return in ? c->coll == CASE_SCATTERV || c->coll == CASE_ALLTOALLV
            : c->coll == CASE_ALLGATHERV || c->coll == CASE_GATHERV || c->coll == CASE_ALLTOALLV;
}

static void lay_out(case_state *r) {
  const test_case *c = r->c;
  int pairs = c->coll == CASE_ALLTOALLV && !c->in_place;
  for (int b = 0; b < r->nranks; b++) {
    r->in.count[b] = block_count(c, pairs ? r->rank : b, pairs ? b : 0);
    r->out.count[b] = block_count(c, b, pairs ? r->rank : 0);
  }
  if (c->coll == CASE_ALLTOALLV && c->in_place) /* as much there as back */
    for (int b = 0; b < r->nranks; b++)
      r->in.count[b] = r->out.count[b] =
          block_count(c, b < r->rank ? b : r->rank, b < r->rank ? r->rank : b);
  if (!many_in(c->coll))
    r->in.count[0] = varying(c) ? block_count(c, r->rank, 0) : c->count;
  if (!many_out(c->coll))
    r->out.count[0] = varying(c) ? block_count(c, r->rank, 0) : c->count;
  place(&r->in, many_in(c->coll) ? r->nranks : 1, spread(c, 1));
  place(&r->out, many_out(c->coll) ? r->nranks : 1, spread(c, 0));
}

/* ---- buffers --------------------------------------------------------------------------------- */

/* Memory of `bytes` bytes: the caller's, or else of its own. */
static unsigned char *get_memory(const test_case *c, int which, size_t bytes) {
  if (!c->memory[which])
    return malloc(bytes);
  if (bytes > c->capacity) {
    fprintf(stderr, "the caller's memory is too short: %zu bytes are needed\n", bytes);
    abort();
  }
  return c->memory[which];
}

/* Where this rank's input and its result are. */
static void make_buffers(case_state *r) {
  const test_case *c = r->c;
  size_t in = r->in.end * r->bytes, out = r->out.end * r->bytes;
  r->base_bytes = (in > out ? in : out) + 2 * GUARD;
  r->in_base = get_memory(c, 0, r->base_bytes);
  r->out_base = get_memory(c, 1, r->base_bytes);
  memset(r->in_base, PATTERN, r->base_bytes);
  memset(r->out_base, PATTERN, r->base_bytes);
  r->sendbuf = r->in_base + GUARD;
  r->recvbuf = r->out_base + GUARD;
  int root = r->rank == c->root, own_in = c->coll >= CASE_ALLGATHER && c->coll <= CASE_GATHERV;
  if (!c->in_place)
    return;
  if (own_in && (root || c->coll <= CASE_ALLGATHERV))
    r->sendbuf = r->recvbuf + r->out.first[r->rank] * r->bytes;
  else if (c->coll == CASE_REDUCE_SCATTER || c->coll == CASE_REDUCE_SCATTERV)
    r->recvbuf = c->in_place == 2 ? r->sendbuf : r->sendbuf + r->in.first[r->rank] * r->bytes;
  else if ((c->coll == CASE_SCATTER || c->coll == CASE_SCATTERV) && root)
    r->recvbuf = r->sendbuf + r->in.first[r->rank] * r->bytes;
  else if (c->coll <= CASE_EXSCAN || (c->coll == CASE_BROADCAST && root) ||
           c->coll == CASE_ALLTOALL || c->coll == CASE_ALLTOALLV)
    r->recvbuf = r->sendbuf;
}

/* ---- memory of another kind ------------------------------------------------------------------ */

/* Copies the filled buffers to the device, as far as the case wants them there. */
static void upload(case_state *r) {
  const case_device *device = r->c->device;
  if (r->c->in_device[0])
    device->write(r->in_device = device->take(r->base_bytes), r->in_base, r->base_bytes);
  if (r->c->in_device[1])
    device->write(r->out_device = device->take(r->base_bytes), r->out_base, r->base_bytes);
}

/* Copies them back for the checks. */
static void download(const case_state *r) {
  if (r->in_device)
    r->c->device->read(r->in_base, r->in_device, r->base_bytes);
  if (r->out_device)
    r->c->device->read(r->out_base, r->out_device, r->base_bytes);
}

/* What the call gets for an address in a buffer. */
static void *given(const case_state *r, unsigned char *at) {
  if (at >= r->in_base && at < r->in_base + r->base_bytes)
    return r->in_device ? r->in_device + (at - r->in_base) : at;
  return r->out_device ? r->out_device + (at - r->out_base) : at;
}

/* ---- contents -------------------------------------------------------------------------------- */

/* The number of the first element of block b of rank `rank`'s input, for reductions. */
static uint64_t element_of(const case_state *r, const layout *l, int block, size_t i) {
  return (l->first[block] + i) % DATA_PERIOD + (reduces(r->c) ? 0 : (uint64_t)block << 40);
}

/* Fills a block of this rank's input; the repeating part is copied. */
static void fill_block(const case_state *r, int b) {
  int op = reduces(r->c) ? (int)r->c->op : -1;
  size_t count = r->in.count[b];
  unsigned char *first = r->sendbuf + r->in.first[b] * r->bytes;
  for (size_t i = 0; i < count && i < DATA_PERIOD; i++)
    number_input(first + i * r->bytes, r->c->type, op, r->rank, element_of(r, &r->in, b, i),
                 r->c->seed);
  data_repeat(first, count, r->bytes);
}

static void fill(const case_state *r) {
  for (int b = 0; b < r->in.nblocks; b++)
    fill_block(r, b);
}

/* ---- expectations ---------------------------------------------------------------------------- */

/* Where the data of block b of this rank's result come from: rank, its block, and its layout. */
static void origin(const case_state *r, int b, int *rank, int *block, layout *theirs) {
  case_state other = *r;
  switch (r->c->coll) {
  case CASE_BROADCAST:
    *rank = r->c->root, *block = 0;
    break;
  case CASE_SCATTER:
  case CASE_SCATTERV:
    *rank = r->c->root, *block = r->rank;
    break;
  case CASE_ALLTOALL:
  case CASE_ALLTOALLV:
    *rank = b, *block = r->rank;
    break;
  default:
    *rank = b, *block = 0;
  }
  other.rank = *rank;
  lay_out(&other);
  *theirs = other.in;
}

/* Writes the first `count` elements that block b of the result must have. */
static void expect_block(const case_state *r, int b, size_t count, unsigned char *want) {
  const test_case *c = r->c;
  int first = 0, last = r->nranks - 1, from = 0, block = 0;
  layout theirs = r->in;
  if (c->coll == CASE_SCAN || c->coll == CASE_EXSCAN)
    last = c->coll == CASE_SCAN ? r->rank : r->rank - 1;
  if (!reduces(c))
    origin(r, b, &from, &block, &theirs);
  else if (c->coll == CASE_REDUCE_SCATTER || c->coll == CASE_REDUCE_SCATTERV)
    block = r->rank;
  for (size_t i = 0; i < count; i++, want += r->bytes) {
    uint64_t element = element_of(r, &theirs, block, i);
    if (reduces(c))
      number_reduce(want, c->type, (int)c->op, first, last, element, c->seed);
    else
      number_input(want, c->type, -1, from, element, c->seed);
  }
}

/* How many elements of block b of the result are wrong. */
static size_t wrong_in_block(const case_state *r, int b) {
  size_t count = r->out.count[b], different = count < DATA_PERIOD ? count : DATA_PERIOD;
  unsigned char *want = malloc(different * r->bytes + 1);
  expect_block(r, b, different, want);
  size_t wrong = data_differing(r->recvbuf + r->out.first[b] * r->bytes, count, r->bytes, want);
  free(want);
  return wrong;
}

/* Whether this rank gets a result. */
static int gets(const case_state *r) {
  case_coll coll = r->c->coll;
  if (coll == CASE_REDUCE || coll == CASE_GATHER || coll == CASE_GATHERV)
    return r->rank == r->c->root;
  return coll != CASE_BARRIER && !(coll == CASE_EXSCAN && r->rank == 0);
}

/* Whether nothing was written outside the result. */
static int intact(const case_state *r) {
  size_t longest = r->in.end > r->out.end ? r->in.end : r->out.end;
  size_t bytes = longest * r->bytes;
  int shared = r->c->in_place != 0;
  for (size_t i = 0; i < GUARD; i++)
    if (r->in_base[i] != PATTERN || r->out_base[i] != PATTERN ||
        r->in_base[GUARD + bytes + i] != PATTERN || r->out_base[GUARD + bytes + i] != PATTERN)
      return 0;
  for (size_t i = 0; !shared && !gets(r) && i < bytes; i++)
    if (r->out_base[GUARD + i] != PATTERN)
      return 0;
  for (int b = 0; !shared && gets(r) && spread(r->c, 0) && b < r->out.nblocks; b++)
    for (size_t i = 0; i < 3 * r->bytes; i++)
      if (r->recvbuf[(r->out.first[b] + r->out.count[b]) * r->bytes + i] != PATTERN)
        return 0;
  return 1;
}

/* ---- calls ----------------------------------------------------------------------------------- */

/* Makes the call in the form of the case: *open is the request of what was only started or made. */
#define CALL(name, ...)                                                                            \
  switch (c->form) {                                                                               \
  case CASE_NONBLOCKING:                                                                           \
    return coll_i##name(__VA_ARGS__, comm, open);                                                  \
  case CASE_PERSISTENT:                                                                            \
    return coll_##name##_init(__VA_ARGS__, comm, open);                                            \
  case CASE_STREAMED:                                                                              \
  case CASE_STREAMED_GROUP:                                                                        \
    return coll_##name##_on_stream(__VA_ARGS__, comm, c->stream);                                  \
  default:                                                                                         \
    return coll_##name(__VA_ARGS__, comm);                                                         \
  }

static coll_status call_reduction(const case_state *r, coll_comm *comm, coll_request **open) {
  const test_case *c = r->c;
  const void *in = given(r, r->sendbuf);
  void *out = given(r, r->recvbuf);
  switch (c->coll) {
  case CASE_REDUCE:
    CALL(reduce, in, r->rank == c->root ? out : NULL, c->count, c->type, r->op, c->root)
  case CASE_REDUCE_SCATTER:
    CALL(reduce_scatter, in, out, c->count, c->type, r->op)
  case CASE_REDUCE_SCATTERV:
    CALL(reduce_scatterv, in, out, r->in.count, c->type, r->op)
  case CASE_SCAN:
    CALL(scan, in, out, c->count, c->type, r->op)
  case CASE_EXSCAN:
    CALL(exscan, in, out, c->count, c->type, r->op)
  default:
    CALL(allreduce, in, out, c->count, c->type, r->op)
  }
}

static coll_status call_gather(const case_state *r, coll_comm *comm, coll_request **open) {
  const test_case *c = r->c;
  int root = r->rank == c->root;
  const void *in = given(r, r->sendbuf);
  void *out = root || c->coll <= CASE_ALLGATHERV ? given(r, r->recvbuf) : NULL;
  const size_t *displs = spread(c, 0) ? r->out.first : NULL;
  switch (c->coll) {
  case CASE_ALLGATHER:
    CALL(allgather, in, out, c->count, c->type)
  case CASE_ALLGATHERV:
    CALL(allgatherv, in, out, r->out.count, displs, c->type)
  case CASE_GATHER:
    CALL(gather, in, out, c->count, c->type, c->root)
  default:
    CALL(gatherv, in, r->in.count[0], out, root ? r->out.count : NULL, root ? displs : NULL,
         c->type, c->root)
  }
}

static coll_status call_spread(const case_state *r, coll_comm *comm, coll_request **open) {
  const test_case *c = r->c;
  int root = r->rank == c->root;
  const void *in = given(r, r->sendbuf);
  void *out = given(r, r->recvbuf);
  const size_t *from = spread(c, 1) ? r->in.first : NULL, *to = spread(c, 0) ? r->out.first : NULL;
  switch (c->coll) {
  case CASE_BROADCAST:
    CALL(broadcast, root ? in : NULL, out, c->count, c->type, c->root)
  case CASE_SCATTER:
    CALL(scatter, root ? in : NULL, out, c->count, c->type, c->root)
  case CASE_SCATTERV:
    CALL(scatterv, root ? in : NULL, root ? r->in.count : NULL, root ? from : NULL, out,
         r->out.count[0], c->type, c->root)
  case CASE_ALLTOALL:
    CALL(alltoall, in, out, c->count, c->type)
  default:
    CALL(alltoallv, in, r->in.count, from, out, r->out.count, to, c->type)
  }
}

static coll_status call_barrier(const test_case *c, coll_comm *comm, coll_request **open) {
  switch (c->form) {
  case CASE_NONBLOCKING:
    return coll_ibarrier(comm, open);
  case CASE_PERSISTENT:
    return coll_barrier_init(comm, open);
  case CASE_STREAMED:
  case CASE_STREAMED_GROUP:
    return coll_barrier_on_stream(comm, c->stream);
  default:
    return coll_barrier(comm);
  }
}

/* Prepares a case on this rank for its call. */
static case_state *make(int rank, int nranks, const test_case *c) {
  case_state *r = calloc(1, sizeof(*r));
  *r = (case_state){.copy = *c, .rank = rank, .nranks = nranks, .bytes = coll_type_bytes(c->type)};
  r->c = &r->copy;
  r->op = c->op == CASE_OP_AFFINE ? case_affine() : c->op == CASE_OP_BYTES ? case_bytes() : c->op;
  lay_out(r);
  make_buffers(r);
  bool from_root = c->coll == CASE_BROADCAST || c->coll == CASE_SCATTER || c->coll == CASE_SCATTERV;
  if (!from_root || rank == c->root)
    fill(r);
  upload(r);
  return r;
}

/* Makes the call, in the case's form. */
static coll_status call(const case_state *r, coll_comm *comm, coll_request **open) {
  const test_case *c = r->c;
  if (c->coll == CASE_BARRIER)
    return call_barrier(c, comm, open);
  if (c->coll < CASE_BROADCAST)
    return call_reduction(r, comm, open);
  if (c->coll >= CASE_ALLGATHER && c->coll <= CASE_GATHERV)
    return call_gather(r, comm, open);
  return call_spread(r, comm, open);
}

coll_status case_begin(coll_comm *comm, int rank, int nranks, const test_case *c,
                       case_state **state, coll_request **request) {
  *state = make(rank, nranks, c);
  *request = NULL;
  return call(*state, comm, request);
}

void case_discard(case_state *r) {
  if (!r)
    return;
  if (!r->c->memory[0])
    free(r->in_base);
  if (!r->c->memory[1])
    free(r->out_base);
  if (r->in_device)
    r->c->device->give(r->in_device);
  if (r->out_device)
    r->c->device->give(r->out_device);
  free(r);
}

int case_end(case_state *r, bool done) {
  size_t wrong = 0;
  download(r);
  for (int b = 0; done && gets(r) && b < r->out.nblocks; b++)
    wrong += wrong_in_block(r, b);
  bool whole = intact(r);
  if (wrong || !whole) {
    char text[160];
    fprintf(stderr, "rank %d: %zu elements wrong%s: %s\n", r->rank, wrong,
            whole ? "" : ", and bytes outside the result", case_text(r->c, r->nranks, text));
  }
  case_discard(r);
  return wrong || !whole;
}
