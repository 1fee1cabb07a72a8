/* support_site.c: calls on new data each time. */
#include "support_site.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "number.h"
#include "support_device.h"
#include "tests/proc/support_ranks.h"

enum { MOST_RANKS = 8, GUARD = 16, NOTHING = 0xa5 };

/* Blocks of a buffer, in elements. */
typedef struct blocks {
  int count;
  size_t length[MOST_RANKS], first[MOST_RANKS], end;
} blocks;

struct site {
  site_plan plan;
  int rank, nranks;
  size_t elem;
  blocks in, out;
  site_place place[2];
  arena *registered;
  size_t bytes; /* of a buffer, with guards */
  void *base[2];
  device_view view[2]; /* of them */
  size_t send, recv;   /* where input and result begin there; */
  int recv_base;       /* the result's buffer */
};

/* ---- blocks ---------------------------------------------------------------------------------- */

static bool reduces(const site *it) {
  return it->plan.coll < CASE_BROADCAST;
}

static bool varies(const site *it) {
  const case_coll coll = it->plan.coll;
  return coll == CASE_REDUCE_SCATTERV || coll == CASE_ALLGATHERV || coll == CASE_GATHERV ||
         coll == CASE_SCATTERV || coll == CASE_ALLTOALLV;
}

static bool scatters(const site *it) {
  const case_coll coll = it->plan.coll;
  return coll == CASE_REDUCE_SCATTER || coll == CASE_REDUCE_SCATTERV || coll == CASE_SCATTER ||
         coll == CASE_SCATTERV || coll == CASE_ALLTOALL || coll == CASE_ALLTOALLV;
}

static bool gathers(const site *it) {
  const case_coll coll = it->plan.coll;
  return (coll >= CASE_ALLGATHER && coll <= CASE_GATHERV) || coll == CASE_ALLTOALL ||
         coll == CASE_ALLTOALLV;
}

/* The length of the block of one rank for another; in other v-forms `to` is 0. */
static size_t length(const site *it, int from, int to) {
  if (!varies(it))
    return it->plan.count;
  if (it->plan.in_place && from > to && it->plan.coll == CASE_ALLTOALLV) /* as much as back */
    return length(it, to, from);
  const uint64_t h = number_hash(it->plan.shape, (uint64_t)from, (uint64_t)to, 3);
  return h % 4 == 0 ? 0 : (size_t)(h >> 8) % (2 * it->plan.count + 1);
}

/* Lays out blocks, with gaps where displacements are given. */
static void lay_out(const site *it, blocks *l, bool many, bool of_input) {
  const bool pairs = it->plan.coll == CASE_ALLTOALLV;
  const size_t gap =
      varies(it) && it->plan.coll != CASE_REDUCE_SCATTERV ? (size_t)it->plan.shape % 3 : 0;
  l->count = many ? it->nranks : 1;
  for (int b = 0; b < l->count; b++) {
    const int one = many ? b : it->rank;
    l->length[b] = !pairs     ? length(it, one, 0)
                   : of_input ? length(it, it->rank, b)
                              : length(it, b, it->rank);
    l->first[b] = l->end;
    l->end += l->length[b] + gap;
  }
}

/* ---- buffers --------------------------------------------------------------------------------- */

static const case_device *device_of(site_place place) {
  return place == SITE_ODD   ? &device_odd_memory
         : place == SITE_FAR ? &device_far_memory
                             : &device_memory;
}

/* Where the result is if it is in the input's buffer, or the input in the result's. */
static void settle_in_place(site *it) {
  const case_coll coll = it->plan.coll;
  const bool root = it->rank == it->plan.root;
  const bool rooted = coll == CASE_GATHER || coll == CASE_GATHERV || coll == CASE_SCATTER ||
                      coll == CASE_SCATTERV || coll == CASE_BROADCAST;
  const bool alike = it->plan.registered[0] || it->plan.registered[1];
  if (it->plan.in_place && coll == CASE_BROADCAST && alike)
    it->recv_base = 0; /* on all ranks */
  if (!it->plan.in_place || coll == CASE_BARRIER || (rooted && !root))
    return;
  it->recv_base = 0;
  if (scatters(it) && !gathers(it))
    it->recv += it->in.first[it->rank] * it->elem;
  else if (gathers(it) && !scatters(it))
    it->send += it->out.first[it->rank] * it->elem;
}

/* Takes a buffer. All ranks find the same registered ones, because they all have as many elements
 * at most. */
static void take_buffer(site *it, int i, site_place place) {
  const size_t most = 2 * (it->plan.count + 3) * (size_t)it->nranks * it->elem + 2 * (size_t)GUARD;
  it->base[i] = NULL;
  if (it->plan.registered[i] && most <= it->registered->each)
    it->base[i] = arena_take(it->registered);
  it->place[i] = it->base[i] ? SITE_REGISTERED : place;
  if (it->place[i] == SITE_ON_HOST)
    it->base[i] = malloc(it->bytes);
  else if (it->place[i] != SITE_REGISTERED)
    it->base[i] = device_of(place)->take(it->bytes);
  it->view[i] = it->place[i] == SITE_ON_HOST ? (device_view){NULL, it->base[i], it->bytes}
                                             : device_look(it->base[i], it->bytes);
}

site *site_make(const site_plan *plan, int rank, int nranks, const site_place places[2],
                arena *registered) {
  site *it = calloc(1, sizeof(*it));
  *it = (site){.plan = *plan,
               .registered = registered,
               .rank = rank,
               .nranks = nranks,
               .elem = coll_type_bytes(plan->type),
               .send = GUARD,
               .recv = GUARD,
               .recv_base = 1};
  lay_out(it, &it->in, scatters(it), true);
  lay_out(it, &it->out, gathers(it), false);
  const size_t most = it->in.end > it->out.end ? it->in.end : it->out.end;
  it->bytes = most * it->elem + 2 * (size_t)GUARD;
  for (int i = 0; i < 2; i++)
    take_buffer(it, i, places[i]);
  settle_in_place(it);
  return it;
}

void site_free(site *it) {
  for (int i = 0; it && i < 2; i++) {
    if (it->place[i] == SITE_ON_HOST)
      free(it->base[i]);
    else if (it->place[i] == SITE_REGISTERED)
      arena_give(it->registered, it->base[i]);
    else
      device_of(it->place[i])->give(it->base[i]);
  }
  free(it);
}

/* ---- data ------------------------------------------------------------------------------------ */

/* The number of an element of a rank's input. */
static uint64_t number_of(int block, size_t i) {
  return (uint64_t)block << 24 | i;
}

void site_fill(const site *it, uint64_t salt) {
  const int op = reduces(it) ? (int)it->plan.op : -1;
  const case_coll coll = it->plan.coll;
  const bool from_root = coll == CASE_BROADCAST || coll == CASE_SCATTER || coll == CASE_SCATTERV;
  memset(it->view[0].seen, NOTHING, it->bytes);
  memset(it->view[1].seen, NOTHING, it->bytes);
  if (from_root && it->rank != it->plan.root)
    return;
  for (int b = 0; b < it->in.count; b++)
    for (size_t i = 0; i < it->in.length[b]; i++)
      number_input(it->view[0].seen + it->send + (it->in.first[b] + i) * it->elem, it->plan.type,
                   op, it->rank, number_of(b, i), salt);
}

void site_push(const site *it, void *stream) {
  for (int i = 0; i < 2; i++)
    if (it->place[i] != SITE_ON_HOST)
      device_push(&it->view[i], stream);
}

void site_pull(const site *it, void *stream) {
  for (int i = 0; i < 2; i++)
    if (it->place[i] != SITE_ON_HOST)
      device_pull(&it->view[i], stream);
}

/* Element i of block b of the result. */
static void expect(const site *it, uint64_t salt, int b, size_t i, void *want) {
  const site_plan *p = &it->plan;
  const int last = p->coll == CASE_SCAN     ? it->rank
                   : p->coll == CASE_EXSCAN ? it->rank - 1
                                            : it->nranks - 1;
  const int from = gathers(it) ? b : p->root;
  const uint64_t number = number_of(scatters(it) ? it->rank : 0, i);
  if (reduces(it))
    number_reduce(want, p->type, (int)p->op, 0, last, number, salt);
  else
    number_input(want, p->type, -1, from, number, salt);
}

/* Whether this rank gets a result. */
static bool gets(const site *it) {
  const case_coll coll = it->plan.coll;
  if (coll == CASE_REDUCE || coll == CASE_GATHER || coll == CASE_GATHERV)
    return it->rank == it->plan.root;
  return coll != CASE_BARRIER && !(coll == CASE_EXSCAN && it->rank == 0);
}

/* Whether bytes are as site_fill() has left them where there are no data. */
static bool untouched(const unsigned char *at, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    if (at[i] != NOTHING)
      return false;
  return true;
}

/* Whether nothing was written beside the result. */
static bool is_intact(const site *it) {
  const unsigned char *at = it->view[1].seen;
  for (int i = 0; i < 2; i++)
    if (!untouched(it->view[i].seen, GUARD) ||
        !untouched(it->view[i].seen + it->bytes - GUARD, GUARD))
      return false;
  if (it->recv_base == 0 || !gets(it))
    return untouched(at, it->bytes);
  for (int b = 0; b < it->out.count; b++) {
    const size_t end = it->out.first[b] + it->out.length[b];
    const size_t next = b + 1 < it->out.count ? it->out.first[b + 1] : it->out.end;
    if (!untouched(at + it->recv + end * it->elem, (next - end) * it->elem))
      return false;
  }
  return true;
}

bool site_check(const site *it, uint64_t salt) {
  size_t wrong = 0;
  for (int b = 0; gets(it) && b < it->out.count; b++)
    for (size_t i = 0; i < it->out.length[b]; i++) {
      unsigned char want[32];
      const size_t at = it->recv + (it->out.first[b] + i) * it->elem;
      expect(it, salt, b, i, want);
      wrong += memcmp(it->view[it->recv_base].seen + at, want, it->elem) != 0;
    }
  const bool whole = is_intact(it);
  if (wrong > 0 || !whole)
    fprintf(stderr,
            "rank %d: %zu elements wrong%s: collective %d, type %d, op %d, count %zu, root %d, "
            "places %d %d, in place %d, salt %llu\n",
            it->rank, wrong, whole ? "" : ", and bytes beside the result", it->plan.coll,
            (int)it->plan.type, (int)it->plan.op, it->plan.count, it->plan.root, it->place[0],
            it->place[1], it->plan.in_place, (unsigned long long)salt);
  return wrong == 0 && whole;
}

/* ---- calls ----------------------------------------------------------------------------------- */

#define CALL(name, ...)                                                                            \
  return form == CASE_NONBLOCKING ? coll_i##name(__VA_ARGS__, comm, request)                       \
         : form == CASE_STREAMED  ? coll_##name##_on_stream(__VA_ARGS__, comm, stream)             \
                                  : coll_##name(__VA_ARGS__, comm)

/* Where a buffer begins, for the call. */
static void *at_base(const site *it, int base, size_t offset) {
  return (char *)it->base[base] + offset;
}

static coll_status call_reduction(const site *it, case_form form, coll_comm *comm, void *stream,
                                  coll_request **request) {
  const site_plan *p = &it->plan;
  const void *in = at_base(it, 0, it->send);
  void *out = at_base(it, it->recv_base, it->recv);
  switch (p->coll) {
  case CASE_REDUCE:
    CALL(reduce, in, it->rank == p->root ? out : NULL, p->count, p->type, p->op, p->root);
  case CASE_REDUCE_SCATTER:
    CALL(reduce_scatter, in, out, p->count, p->type, p->op);
  case CASE_REDUCE_SCATTERV:
    CALL(reduce_scatterv, in, out, it->in.length, p->type, p->op);
  case CASE_SCAN:
    CALL(scan, in, out, p->count, p->type, p->op);
  case CASE_EXSCAN:
    CALL(exscan, in, out, p->count, p->type, p->op);
  default:
    CALL(allreduce, in, out, p->count, p->type, p->op);
  }
}

static coll_status call_movement(const site *it, case_form form, coll_comm *comm, void *stream,
                                 coll_request **request) {
  const site_plan *p = &it->plan;
  const bool root = it->rank == p->root;
  const void *in = at_base(it, 0, it->send);
  void *out = at_base(it, it->recv_base, it->recv);
  const blocks *from = &it->in, *to = &it->out;
  switch (p->coll) {
  case CASE_BROADCAST:
    CALL(broadcast, root ? in : NULL, out, p->count, p->type, p->root);
  case CASE_ALLGATHER:
    CALL(allgather, in, out, p->count, p->type);
  case CASE_ALLGATHERV:
    CALL(allgatherv, in, out, to->length, to->first, p->type);
  case CASE_GATHER:
    CALL(gather, in, root ? out : NULL, p->count, p->type, p->root);
  case CASE_GATHERV:
    CALL(gatherv, in, from->length[0], root ? out : NULL, root ? to->length : NULL,
         root ? to->first : NULL, p->type, p->root);
  case CASE_SCATTER:
    CALL(scatter, root ? in : NULL, out, p->count, p->type, p->root);
  case CASE_SCATTERV:
    CALL(scatterv, root ? in : NULL, root ? from->length : NULL, root ? from->first : NULL, out,
         to->length[0], p->type, p->root);
  case CASE_ALLTOALL:
    CALL(alltoall, in, out, p->count, p->type);
  default:
    CALL(alltoallv, in, from->length, from->first, out, to->length, to->first, p->type);
  }
}

coll_status site_call(const site *it, case_form form, coll_comm *comm, void *stream,
                      coll_request **request) {
  if (reduces(it))
    return call_reduction(it, form, comm, stream, request);
  if (it->plan.coll != CASE_BARRIER)
    return call_movement(it, form, comm, stream, request);
  return form == CASE_NONBLOCKING ? coll_ibarrier(comm, request)
         : form == CASE_STREAMED  ? coll_barrier_on_stream(comm, stream)
                                  : coll_barrier(comm);
}

int site_repeat(const site *it, bool captured, uint64_t times, coll_comm *comm, int rank,
                void *stream) {
  device_graph graph;
  if (captured) {
    device_capture(stream);
    RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
    graph = device_capture_end(stream);
  }
  for (uint64_t salt = 1; salt <= times; salt++) {
    site_fill(it, salt);
    if (captured)
      device_launch(&graph, stream);
    else
      RANK_OK(site_call(it, CASE_STREAMED, comm, stream, NULL));
    device_await(stream);
    RANK_OK(coll_comm_async_error(comm));
    RANK_CHECK(site_check(it, salt));
  }
  if (captured)
    device_graph_free(&graph);
  return 0;
}
