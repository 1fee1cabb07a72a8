/* direct_party.c: one rank does the work of all that share its GPU and its process. */
#include "libcoll/stream/direct_party.h"

#include <pthread.h>
#include <stdlib.h>
#include <time.h>

#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"
#include "libcoll/stream/direct_meet.h"

#define MOST  COLL_GPU_PLACES /* ranks */
#define TURNS 2               /* calls that a rank may still look at: this one, and the last */
#define SPINS 1000            /* tries before a rank sleeps */

_Static_assert(TURNS == 2, "as events are used again");

/* A rank's part of a call: blocks of its input and of its result, or the whole in the first one. */
typedef struct part {
  bool suits;
  size_t ins, outs; /* blocks */
  uint64_t in[MOST], out[MOST];
  size_t in_bytes[MOST], out_bytes[MOST];
} part;

/* A call of all. */
typedef struct turn {
  uint32_t done, left; /* the number of the last call that is in a stream; that somebody gave up */
  part parts[MOST];
} turn;

struct colli_direct_party {
  pthread_mutex_t lock;
  int users;
  colli_cu_event done[TURNS]; /* after the work of the last calls */
  turn turns[TURNS];
};

/* ---- make and free --------------------------------------------------------------------------- */

coll_status colli_direct_party_make(const colli_cuda *cuda, int device, colli_direct_party **out,
                                    coll_error *error) {
  colli_direct_party *party = calloc(1, sizeof(*party));
  *out = NULL;
  if (!party || pthread_mutex_init(&party->lock, NULL) != 0) {
    free(party);
    return colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for ranks of one GPU");
  }
  party->users = 1;
  for (int i = 0; i < TURNS; i++) {
    const colli_cu_result result =
        cuda->event_create(&party->done[i], COLLI_CU_EVENT_DISABLE_TIMING);
    if (result != COLLI_CUDA_SUCCESS) {
      party->done[i] = NULL;
      colli_direct_party_leave(party, cuda);
      return colli_cuda_fail(cuda, error, "cuEventCreate", device, result);
    }
  }
  *out = party;
  return COLL_OK;
}

void colli_direct_party_join(colli_direct_party *party) {
  pthread_mutex_lock(&party->lock);
  party->users++;
  pthread_mutex_unlock(&party->lock);
}

void colli_direct_party_leave(colli_direct_party *party, const colli_cuda *cuda) {
  pthread_mutex_lock(&party->lock);
  const int users = --party->users;
  pthread_mutex_unlock(&party->lock);
  if (users > 0)
    return;
  for (int i = 0; i < TURNS; i++)
    if (party->done[i])
      cuda->event_destroy(party->done[i]);
  pthread_mutex_destroy(&party->lock);
  free(party);
}

/* ---- what a rank has ------------------------------------------------------------------------- */

/* Lists the blocks of a buffer, or the whole. */
static size_t list(const colli_direct_call *it, bool of_input, bool in_blocks, uint64_t *at,
                   size_t *bytes) {
  const uint64_t buffer = (uint64_t)(of_input ? it->call->sendbuf : it->call->recvbuf);
  const size_t all = of_input ? it->reads : it->writes;
  const size_t count = all == 0 ? 0 : in_blocks ? (size_t)it->comm->nranks : 1;
  at[0] = buffer;
  bytes[0] = all;
  for (size_t i = 0; in_blocks && i < count; i++)
    at[i] = buffer + colli_direct_block(it, of_input, i, &bytes[i]);
  return count;
}

/* Whether the buffers do not overlap, or only in this rank's own block, which is at one place. */
static bool are_apart(const colli_direct_call *it, const part *p) {
  const size_t rank = (size_t)it->comm->rank;
  return !colli_direct_overlap(it) ||
         (it->call->coll != COLLI_ALLTOALL &&
          p->in[p->ins > 1 ? rank : 0] == p->out[p->outs > 1 ? rank : 0]);
}

/* Whether kernels can fold at all of these addresses. */
static bool are_aligned(const colli_direct_call *it, const part *p) {
  uint64_t all = 0;
  for (size_t i = 0; i < p->ins; i++)
    all |= p->in[i];
  for (size_t i = 0; i < p->outs; i++)
    all |= p->out[i];
  return !colli_reduces(it->call->coll) || colli_gpu_folds_at((coll_type)it->call->type, all);
}

static part describe(const colli_direct_call *it) {
  part p = {.suits = false};
  const colli_coll coll = it->call->coll;
  if (it->shape.tree || it->afar || it->in || it->out)
    return p;
  p.ins = list(it, true,
               coll == COLLI_REDUCE_SCATTER || coll == COLLI_ALLTOALL || coll == COLLI_SCATTER,
               p.in, p.in_bytes);
  p.outs =
      list(it, false, coll == COLLI_ALLGATHER || coll == COLLI_ALLTOALL || coll == COLLI_GATHER,
           p.out, p.out_bytes);
  p.suits = are_apart(it, &p) && are_aligned(it, &p);
  return p;
}

/* ---- the work -------------------------------------------------------------------------------- */

/* The work of all, which one rank puts into its stream. */
typedef struct work {
  const colli_direct_round *round;
  const part *parts;
  struct coll_gpu_piece pieces[COLL_GPU_PLACES]; /* copies that one kernel makes */
  size_t count;
} work;

/* Puts the copies that are collected into the stream. */
static coll_status put_pieces(work *w) {
  const size_t count = w->count;
  w->count = 0;
  return count > 0 ? colli_direct_put_pieces(w->round, w->pieces, count, 0) : COLL_OK;
}

/* Copies a block of a rank's input to a block of a rank's result. */
static coll_status copy(work *w, int to, size_t to_block, int from, size_t from_block) {
  const part *reader = &w->parts[to], *owner = &w->parts[from];
  if (to_block >= reader->outs || reader->out_bytes[to_block] == 0 ||
      reader->out[to_block] == owner->in[from_block])
    return COLL_OK;
  w->pieces[w->count++] = (struct coll_gpu_piece){reader->out[to_block], owner->in[from_block],
                                                  reader->out_bytes[to_block]};
  return w->count == COLL_GPU_PLACES ? put_pieces(w) : COLL_OK;
}

/* Folds a block of the inputs of ranks [0, end) into the results of ranks [first, last). */
static coll_status fold(work *w, int end, size_t block, int first, int last) {
  const colli_direct_call *it = w->round->it;
  const coll_op op = it->call->op;
  const bool alone = end == 1 && op >= COLL_LAND && op <= COLL_LXOR;
  uint64_t in[MOST + 1], out[MOST];
  for (int rank = 0; rank < end; rank++)
    in[rank] = w->parts[rank].in[block];
  in[end] = in[0]; /* alone: with itself, which makes it 0 or 1 */
  for (int rank = first; rank < last; rank++)
    out[rank - first] = w->parts[rank].out[0];
  const colli_gpu_fold_call call = {
      .type = (coll_type)it->call->type,
      .op = alone ? COLL_LAND : op,
      .wide = it->shape.wide,
      .nranks = it->comm->nranks,
      .ninputs = (uint32_t)end + alone,
      .noutputs = (uint32_t)(last - first),
      .inputs = in,
      .outputs = out,
      .count = w->parts[first].outs > 0 ? w->parts[first].out_bytes[0] / colli_direct_elem(it->call)
                                        : 0};
  return colli_gpu_launch_fold(&w->round->passage->gpu->cuda, it->comm->direct->programs,
                               w->round->passage->stream, &call, w->round->error);
}

/* Reductions. Of scans the last rank's comes first: in place, its result covers an input that only
 * its own needs. */
static coll_status reduce(work *w) {
  const colli_call *call = w->round->it->call;
  const int n = w->round->it->comm->nranks;
  coll_status status = COLL_OK;
  switch (call->coll) {
  case COLLI_ALLREDUCE:
    return fold(w, n, 0, 0, n);
  case COLLI_REDUCE:
    return fold(w, n, 0, call->root, call->root + 1);
  case COLLI_REDUCE_SCATTER:
    for (int rank = 0; rank < n && status == COLL_OK; rank++)
      status = fold(w, n, (size_t)rank, rank, rank + 1);
    return status;
  default:
    for (int rank = n - 1; rank >= 0 && status == COLL_OK; rank--) {
      const int end = call->coll == COLLI_SCAN ? rank + 1 : rank;
      status = end > 0 ? fold(w, end, 0, rank, rank + 1) : COLL_OK;
    }
    return status;
  }
}

/* Copies what rank `to` gets from rank `from`. */
static coll_status move(work *w, int to, int from) {
  const colli_call *call = w->round->it->call;
  switch (call->coll) {
  case COLLI_BROADCAST:
    return from == call->root ? copy(w, to, 0, from, 0) : COLL_OK;
  case COLLI_SCATTER:
    return from == call->root ? copy(w, to, 0, from, (size_t)to) : COLL_OK;
  case COLLI_GATHER:
    return to == call->root ? copy(w, to, (size_t)from, from, 0) : COLL_OK;
  case COLLI_ALLGATHER:
    return copy(w, to, (size_t)from, from, 0);
  case COLLI_ALLTOALL:
    return copy(w, to, (size_t)from, from, (size_t)to);
  default:
    return COLL_OK;
  }
}

/* Puts the work of all into the stream, after all ranks' events and before the party's. */
static coll_status put_work(const colli_direct_round *r, unsigned events, const part *parts) {
  colli_direct *direct = r->it->comm->direct;
  const colli_cuda *cuda = &r->passage->gpu->cuda;
  const int n = r->it->comm->nranks;
  work w = {.round = r, .parts = parts};
  coll_status status = colli_direct_follow(direct, r->passage, events, r->error);
  if (status == COLL_OK && colli_reduces(r->it->call->coll))
    status = reduce(&w);
  else
    for (int to = 0; to < n; to++)
      for (int from = 0; from < n && status == COLL_OK; from++)
        status = move(&w, to, from);
  if (status == COLL_OK)
    status = put_pieces(&w);
  if (status != COLL_OK)
    return status;
  const colli_cu_result result =
      cuda->event_record(direct->party->done[events], r->passage->stream);
  return colli_cuda_status(cuda, r->error, "cuEventRecord", r->passage->device, result);
}

/* ---- together -------------------------------------------------------------------------------- */

/* Takes the lock. Whoever has it puts kernels into its stream: that takes microseconds, less than a
 * sleep, unless the driver holds it. */
static coll_status lock(const colli_direct_round *r, uint64_t limit_ns) {
  struct timespec until;
  pthread_mutex_t *mutex = &r->it->comm->direct->party->lock;
  for (int i = r->it->comm->watch.crowded ? SPINS : 0; i < SPINS; i++) {
    if (pthread_mutex_trylock(mutex) == 0)
      return COLL_OK;
    colli_cpu_relax();
  }
  clock_gettime(CLOCK_REALTIME, &until); /* the only clock that POSIX has for this */
  const uint64_t ns = (uint64_t)until.tv_nsec + limit_ns;
  until.tv_sec += (time_t)(ns / COLLI_NS_PER_S);
  until.tv_nsec = (long)(ns % COLLI_NS_PER_S);
  if (pthread_mutex_timedlock(mutex, &until) == 0)
    return COLL_OK;
  return colli_error_set(
      r->error, COLL_ERR_TIMEOUT, NULL,
      "another rank of this GPU puts the call into its stream, and CUDA's driver "
      "does not return; are too many calls in that stream?");
}

/* Lets the stream wait until the work that another rank has put into its own is done. */
static coll_status follow_work(const colli_direct_round *r, unsigned events) {
  const colli_cuda *cuda = &r->passage->gpu->cuda;
  const colli_cu_result result =
      cuda->stream_wait_event(r->passage->stream, r->it->comm->direct->party->done[events], 0);
  return colli_cuda_status(cuda, r->error, "cuStreamWaitEvent", r->passage->device, result);
}

/* Gives the call up: nobody works for this rank any more, or its stream waits for the end of it. */
static void give_up(const colli_direct_round *r, unsigned events) {
  turn *t = &r->it->comm->direct->party->turns[events];
  colli_direct_round quiet = *r;
  quiet.error = NULL;
  if (lock(&quiet, COLLI_DIRECT_REASON_NS) != COLL_OK)
    return;
  t->left = r->it->number;
  if (t->done == r->it->number)
    (void)follow_work(&quiet, events);
  pthread_mutex_unlock(&r->it->comm->direct->party->lock);
}

/* Another rank has given the call up: fails for its reason, for which this waits a moment. */
static coll_status fail_with_others(const colli_direct_round *r) {
  coll_comm *comm = r->it->comm;
  const uint64_t until_ns = colli_now_ns() + COLLI_DIRECT_REASON_NS;
  colli_call_resume(comm);
  colli_comm_wait_begin(comm);
  while (comm->failure.status == COLL_OK && colli_now_ns() < until_ns)
    colli_comm_wait_a_bit(comm, until_ns);
  const coll_status status = comm->failure.status;
  if (status != COLL_OK)
    *r->error = comm->failure.error;
  else
    colli_direct_set_unexplained(r->error);
  colli_call_pause(comm);
  return r->error->status;
}

/* Whether all ranks' parts suit. */
static bool suits_all(const part *parts, int nranks) {
  for (int rank = 0; rank < nranks; rank++)
    if (!parts[rank].suits)
      return false;
  return true;
}

/* All ranks have met: the first to come here does the work. */
static coll_status go_on(const colli_direct_round *r, unsigned events, bool *served, bool *left) {
  turn *t = &r->it->comm->direct->party->turns[events];
  const uint32_t number = r->it->number;
  *served = suits_all(t->parts, r->it->comm->nranks);
  *left = t->left == number && t->done != number;
  if (!*served)
    return colli_direct_follow(r->it->comm->direct, r->passage, events, r->error);
  if (t->done == number)
    return follow_work(r, events);
  if (*left)
    return COLL_OK;
  const coll_status status = put_work(r, events, t->parts);
  *(status == COLL_OK ? &t->done : &t->left) = number;
  return status;
}

coll_status colli_direct_party_put(colli_direct_round *r, bool *served) {
  colli_direct *direct = r->it->comm->direct;
  colli_direct_party *party = direct->party;
  const unsigned events = direct->meets++ % TURNS;
  const part mine = describe(r->it);
  bool left = false;
  *served = false;
  coll_status status = lock(r, r->it->comm->watch.timeout_ns);
  if (status != COLL_OK)
    return status;
  party->turns[events].parts[r->it->comm->rank] = mine;
  pthread_mutex_unlock(&party->lock);
  status = colli_direct_record(direct, r->passage, events, r->error);
  if (status == COLL_OK)
    status = colli_direct_await_calls(
        r->it->request, colli_direct_place(r->it->way, false, r->it->place++, r->it->places.check),
        r->error);
  if (status == COLL_OK)
    status = lock(r, r->it->comm->watch.timeout_ns);
  if (status == COLL_OK) {
    status = go_on(r, events, served, &left);
    pthread_mutex_unlock(&party->lock);
  } else {
    give_up(r, events);
  }
  if (*served && status == COLL_OK && !left)
    direct->end = party->done[events];
  return status == COLL_OK && *served && left ? fail_with_others(r) : status;
}
