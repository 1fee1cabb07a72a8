/* direct_in_place.c: collectives on registered buffers, which peers read where they are. */
#include "libcoll/stream/direct_in_place.h"

#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/comm/direct_shape.h"
#include "libcoll/gpu/kernels/meet_args.h"
#include "libcoll/stream/direct_meet.h"

/* ---- which --------------------------------------------------------------------------------- */

/* The registration that has all of [at, at + bytes), or NULL; the first one of several. */
static coll_registration *look_up(const colli_direct *direct, const void *at, size_t bytes) {
  coll_registration *found = NULL;
  for (coll_registration *it = direct->registered; it && at; it = it->next) {
    const uint64_t offset = (uint64_t)at - it->own;
    if (offset <= it->bytes && bytes <= it->bytes - offset)
      found = it; /* the list has the latest one first */
  }
  return found;
}

/* Finds the registration of the input, or of the result. Kernels that fold need aligned addresses,
 * on all ranks. */
static coll_registration *find(const colli_direct_call *it, bool of_input, size_t *at) {
  const colli_direct *direct = it->comm->direct;
  const void *buffer = of_input ? it->call->sendbuf : it->call->recvbuf;
  const size_t bytes = of_input ? it->reads : it->writes;
  coll_registration *found = bytes ? look_up(direct, buffer, bytes) : NULL;
  if (!found)
    return NULL;
  *at = (size_t)((uint64_t)buffer - found->own);
  const bool folds = colli_reduces(it->call->coll);
  if (folds && !colli_gpu_folds_at((coll_type)it->call->type, found->memory.low | *at))
    return NULL;
  return found;
}

/* The registered buffers that others could read. */
static colli_direct_places find_places(const colli_direct_call *it, colli_direct_reads *reads) {
  colli_direct_places p = {.from = NULL};
  p.from = find(it, true, &p.from_at);
  p.to = find(it, false, &p.to_at);
  *reads = colli_direct_choose_reads(it->call->coll, it->call->varying && !it->call->known,
                                     colli_direct_overlap(it), p.from, p.to);
  if (!reads->from)
    p.from = NULL;
  if (!reads->to)
    p.to = NULL;
  if (!p.from)
    p.from_at = 0;
  if (!p.to)
    p.to_at = 0;
  return p;
}

/* Whether an all-reduce folds segments into slots. */
static bool in_slots(const colli_direct_call *it, const colli_direct_places *p) {
  return colli_direct_ends_in_slots(&it->shape, (colli_direct_reads){p->from, p->to});
}

/* A number of at most 22 bits, and not 0. */
static uint32_t check_of(const colli_direct_places *p) {
  const coll_registration *const both[] = {p->from, p->to};
  const size_t at[] = {p->from_at, p->to_at};
  uint64_t h = 0;
  for (int i = 0; i < 2; i++) {
    h = (h ^ (both[i] ? both[i]->number : 0)) * 0x9e3779b97f4a7c15u;
    h = (h ^ h >> 29 ^ at[i]) * 0xbf58476d1ce4e5b9u;
    h ^= h >> 32;
  }
  return 1 + (uint32_t)(h % 0x3fffff);
}

/* Counts the call as a user of a registration, or no longer. */
static void count_use(const colli_direct_call *it, coll_registration *of, int change) {
  if (of && it->captured)
    of->graphs += change;
  else if (of)
    of->eager += change;
}

void colli_direct_settle_places(colli_direct_call *it, unsigned *meets) {
  if (!it->comm->direct->registered)
    return;
  colli_direct_reads reads;
  colli_direct_places p = find_places(it, &reads);
  if (!p.from && !p.to)
    return;
  const unsigned in_place =
      (unsigned)colli_direct_meets_in_place(&it->shape, reads, it->writes, it->captured);
  if (in_place > *meets)
    return;
  p.check = check_of(&p);
  it->places = p;
  *meets = in_place;
  count_use(it, p.from, 1);
  count_use(it, p.to, 1);
}

void colli_direct_leave_places(colli_direct_call *it) {
  count_use(it, it->places.from, -1);
  count_use(it, it->places.to, -1);
  it->places = (colli_direct_places){.from = NULL};
}

/* ---- parts ----------------------------------------------------------------------------------- */

/* The guard of kernels that write what others read. */
static uint64_t guard_of(const colli_direct_round *r) {
  return colli_direct_guard(r->it->comm->direct, r->it->way);
}

/* Puts this rank's part of a result there, where others read it. */
static coll_status put_own(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  size_t at = 0, bytes = it->reads;
  if (it->call->coll == COLLI_ALLGATHER)
    at = colli_direct_block(it, false, (size_t)it->comm->rank, &bytes);
  const struct coll_gpu_piece piece = {colli_direct_result(it) + at, colli_direct_input(it), bytes};
  if (bytes == 0 || it->reads == 0 || piece.to == piece.from)
    return COLL_OK;
  if (it->afar) /* kernels do not reach it */
    return colli_direct_put_copy(r, piece.to, piece.from, bytes);
  return colli_direct_put_pieces(r, &piece, 1, guard_of(r));
}

/* Where a rank's buffer begins that others read. */
static uint64_t place_of(const colli_direct_call *it, int rank) {
  const colli_direct_places *p = &it->places;
  return p->to ? p->to->memory.at[rank] + p->to_at : p->from->memory.at[rank] + p->from_at;
}

/* Copies from ranks [first, end): the whole result from one, or a block of it from each. */
static coll_status pull(const colli_direct_round *r, int first, int end) {
  const colli_direct_call *it = r->it;
  const bool gathers = it->call->coll == COLLI_ALLGATHER, swaps = it->call->coll == COLLI_ALLTOALL;
  const size_t rank = (size_t)it->comm->rank;
  struct coll_gpu_piece *pieces = malloc((size_t)(end - first) * sizeof(*pieces));
  size_t count = 0;
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  for (int peer = first; peer < end; peer++) {
    size_t bytes = it->writes, to = 0, from = 0;
    if (gathers || swaps)
      to = colli_direct_block(it, false, (size_t)peer, &bytes);
    if (gathers && it->places.to)
      from = to;
    else if (swaps)
      from = rank * bytes;
    if (bytes > 0 && (!it->places.to || peer != (int)rank))
      pieces[count++] =
          (struct coll_gpu_piece){colli_direct_result(it) + to, place_of(it, peer) + from, bytes};
  }
  const coll_status status = count > 0 ? colli_direct_put_pieces(r, pieces, count, 0) : COLL_OK;
  free(pieces);
  return status;
}

/* Whether the result of a reduce-scatter covers input of other ranks' blocks, which they read until
 * the end: until then it is in this rank's own block. */
static bool comes_late(const colli_direct_call *it, uint64_t own_block) {
  return it->call->coll == COLLI_REDUCE_SCATTER && colli_direct_overlap(it) &&
         (uint64_t)it->call->recvbuf != own_block;
}

/* Folds the blocks for this rank. */
static coll_status reduce_scatter(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  size_t bytes;
  const size_t at = colli_direct_block(it, true, (size_t)it->comm->rank, &bytes);
  const uint64_t own = colli_direct_input(it) + at;
  const bool late = comes_late(it, own);
  return colli_direct_put_fold(r, it->comm->nranks, at, late ? own : colli_direct_result(it), bytes,
                               0);
}

/* Moves the result of a reduce-scatter that comes late to the beginning of the input. Pieces go
 * through the room for results, because the blocks of v-forms may overlap. */
static coll_status put_late(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const uint64_t room = colli_gpu_peers_result(peers, it->captured);
  size_t bytes;
  if (it->call->coll != COLLI_REDUCE_SCATTER)
    return COLL_OK;
  const uint64_t own =
      colli_direct_input(it) + colli_direct_block(it, true, (size_t)it->comm->rank, &bytes);
  coll_status status = COLL_OK;
  for (size_t at = 0; comes_late(it, own) && at < bytes && status == COLL_OK;
       at += peers->slot_bytes) {
    const size_t some = bytes - at < peers->slot_bytes ? bytes - at : peers->slot_bytes;
    status = colli_direct_put_copy(r, room, own + at, some);
    if (status == COLL_OK)
      status = colli_direct_put_copy(r, colli_direct_result(it) + at, room, some);
  }
  return status;
}

/* Where a piece of a rank's segment begins in the result, which is `at` bytes into the segment, and
 * how long it is; not more than `bytes`. */
static size_t find_piece(const colli_direct_call *it, int rank, size_t at, size_t *bytes) {
  const size_t segment = colli_direct_segment(&it->shape, it->writes);
  const size_t first = (size_t)rank * segment + at;
  size_t left = first < it->writes ? it->writes - first : 0;
  if (left > segment - at) /* the next rank's follows */
    left = segment - at;
  if (*bytes > left)
    *bytes = left;
  return first;
}

/* Copies such a piece of each rank's segment into the result: from the beginning of its slot, or
 * from its own result. */
static coll_status pull_segments(const colli_direct_round *r, size_t at, size_t bytes) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  struct coll_gpu_piece *pieces = malloc((size_t)peers->nranks * sizeof(*pieces));
  size_t count = 0;
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  for (int rank = 0; rank < peers->nranks; rank++) {
    size_t some = bytes;
    const size_t first = find_piece(it, rank, at, &some);
    if (some > 0 && !(it->places.to && rank == peers->rank))
      pieces[count++] = (struct coll_gpu_piece){
          colli_direct_result(it) + first,
          it->places.to ? place_of(it, rank) + first : colli_gpu_peers_slot(peers, rank, r->slot),
          some};
  }
  const coll_status status = count > 0 ? colli_direct_put_pieces(r, pieces, count, 0) : COLL_OK;
  free(pieces);
  return status;
}

/* Folds such a piece of this rank's segment. */
static coll_status fold_segment(const colli_direct_round *r, size_t at, size_t bytes) {
  const colli_direct_call *it = r->it;
  const colli_gpu_peers *peers = it->comm->direct->peers;
  const size_t first = find_piece(it, peers->rank, at, &bytes);
  const uint64_t to = it->places.to ? colli_direct_result(it) + first
                                    : colli_gpu_peers_slot(peers, peers->rank, r->slot);
  return colli_direct_put_fold(r, peers->nranks, first, to, bytes, guard_of(r));
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Where a rank says that it has gone on without the others. */
static uint64_t gone_at(const colli_gpu_peers *peers, int rank) {
  return peers->area[rank] + COLLI_GPU_STATE_AT + offsetof(struct coll_gpu_meet_state, released);
}

/* After this rank has read the others' memory: looks whether that was still theirs. */
static coll_status look(const colli_direct_round *r) {
  const colli_direct *direct = r->it->comm->direct;
  const colli_gpu_peers *peers = direct->peers;
  uint32_t *gone = colli_direct_gone(direct, r->it->captured);
  struct coll_gpu_piece *pieces = malloc((size_t)peers->nranks * sizeof(*pieces));
  if (!pieces)
    return colli_error_set(r->error, COLL_ERR_NO_MEMORY, NULL, "out of memory for a list");
  for (int rank = 0; rank < peers->nranks; rank++)
    pieces[rank] =
        (struct coll_gpu_piece){(uint64_t)&gone[rank], gone_at(peers, rank), sizeof(*gone)};
  const coll_status status = colli_direct_put_pieces(r, pieces, (size_t)peers->nranks, 0);
  free(pieces);
  return status;
}

/* Before anything that comes after the call: says if this rank goes on without the others. The
 * kernel that spins does that by itself. */
static coll_status tell(const colli_direct_round *r) {
  const colli_direct *direct = r->it->comm->direct;
  if (r->it->way != COLLI_GPU_ORDERED)
    return COLL_OK;
  return colli_direct_put_copy(r, gone_at(direct->peers, direct->peers->rank),
                               (uint64_t)colli_direct_words_of(direct)->stopped, sizeof(uint32_t));
}

bool colli_direct_is_torn(const colli_direct_call *it) {
  if (!it->places.check || it->way == COLLI_GPU_MEET)
    return false;
  const uint32_t *gone = colli_direct_gone(it->comm->direct, it->captured);
  for (int rank = 0; rank < it->comm->nranks; rank++)
    if (rank != it->comm->rank && __atomic_load_n(&gone[rank], __ATOMIC_ACQUIRE))
      return true;
  return false;
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* The last meet, after all have read. */
static coll_status put_last_meet(const colli_direct_round *r) {
  coll_status status = r->it->way == COLLI_GPU_MEET ? COLL_OK : look(r);
  if (status == COLL_OK)
    status = colli_direct_meet(r);
  return status == COLL_OK ? tell(r) : status;
}

/* An all-reduce in segments, through slots. When all have come to the last meet, all have read the
 * inputs. */
static coll_status reduce_in_slots(colli_direct_round *r) {
  const size_t piece = colli_direct_slot_piece(&r->it->shape);
  const size_t segment = colli_direct_segment(&r->it->shape, r->it->writes);
  coll_status status = COLL_OK;
  for (size_t at = 0; at < segment && status == COLL_OK; at += piece) {
    if (at > 0 && r->it->captured) /* all have read the slot, which is always the same */
      status = colli_direct_meet(r);
    r->slot = colli_direct_next_slot(r);
    if (status == COLL_OK)
      status = fold_segment(r, at, piece);
    if (status == COLL_OK)
      status = at + piece < segment ? colli_direct_meet(r) : put_last_meet(r);
    if (status == COLL_OK)
      status = pull_segments(r, at, piece);
  }
  return status;
}

/* An all-reduce in segments, all in the ranks' results. */
static coll_status reduce_in_results(const colli_direct_round *r) {
  coll_status status = fold_segment(r, 0, SIZE_MAX);
  if (status == COLL_OK)
    status = colli_direct_meet(r);
  return status == COLL_OK ? pull_segments(r, 0, SIZE_MAX) : status;
}

/* What this rank does with the others' buffers. */
static coll_status put_result(const colli_direct_round *r) {
  const colli_direct_call *it = r->it;
  const int n = it->comm->nranks, root = it->call->root;
  if (it->writes == 0)
    return COLL_OK;
  switch (it->call->coll) {
  case COLLI_ALLREDUCE:
    if (it->places.to)
      return reduce_in_results(r);
    return colli_direct_put_fold(r, n, 0, colli_direct_result(it), it->writes, 0);
  case COLLI_REDUCE:
    return colli_direct_put_fold(r, n, 0, colli_direct_result(it), it->writes, 0);
  case COLLI_REDUCE_SCATTER:
    return reduce_scatter(r);
  case COLLI_BROADCAST:
    return pull(r, root, root + 1);
  default:
    return pull(r, 0, n);
  }
}

coll_status colli_direct_put_in_place(colli_direct_round *r) {
  coll_status status = r->it->places.from ? COLL_OK : put_own(r);
  if (status == COLL_OK)
    status = colli_direct_meet(r);
  if (status == COLL_OK && in_slots(r->it, &r->it->places))
    return reduce_in_slots(r);
  if (status == COLL_OK)
    status = put_result(r);
  if (status == COLL_OK)
    status = put_last_meet(r);
  return status == COLL_OK ? put_late(r) : status;
}
