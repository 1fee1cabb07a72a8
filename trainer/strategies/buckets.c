/* buckets.c: gradients that are summed over the ranks bucket by bucket. */
#include "trainer/strategies/buckets.h"

#include <string.h>

static const char *const doing = "summing gradients";

/* ---- packets -------------------------------------------------------------------------------- */

/* How far the packets of a bucket are. */
enum { ARRIVED, GRADIENTS_SENT, SUMS_SENT };

/* Bytes of the packet of a rank's part. */
static size_t bytes_of(const buckets *b, const bucket *item, int rank) {
  return wire_bytes(&b->w->o->wire, buckets_part(b, item, rank).count);
}

/* Fills in what goes to whom, and comes from whom, for a bucket. */
static void list(const buckets *b, const bucket *item) {
  size_t out = item->out, mine = bytes_of(b, item, b->rank);
  for (int r = 0; r < b->nranks; r++) {
    b->length[r] = bytes_of(b, item, r);
    b->at[r] = out;
    b->same[r] = mine;
    b->arrives[r] = (size_t)r * mine;
    out += b->length[r];
  }
}

/* Lays out the packets of buckets that are cut. */
static bool open_packets(buckets *b, fail *why) {
  size_t ranks = (size_t)b->nranks, bytes = 0, own = 0;
  if (!(b->length = worker_memory(b->w, 4 * ranks * sizeof(*b->length), why)))
    return false;
  b->at = b->length + ranks;
  b->same = b->at + ranks;
  b->arrives = b->same + ranks;
  for (size_t i = 0; i < b->count; i++) {
    bucket *item = &b->item[i];
    item->out = bytes;
    item->rests = own;
    for (int r = 0; r < b->nranks; r++)
      bytes += bytes_of(b, item, r);
    item->in = bytes;
    bytes += ranks * bytes_of(b, item, b->rank);
    own += buckets_part(b, item, b->rank).count;
  }
  return (b->parts || (b->rests = worker_memory(b->w, own * sizeof(float), why))) &&
         (b->packets = worker_shared_memory(b->w, bytes, why));
}

/* The gradients of a bucket are there: starts to send their packets. */
static bool send_packets(buckets *b, bucket *item, fail *why) {
  list(b, item);
  for (int r = 0; r < b->nranks; r++) {
    shard part = buckets_part(b, item, r);
    worker_pack(b->w, part.first, part.count, b->grads + part.first, b->packets + b->at[r]);
    b->w->sums.sent_bytes += r == b->rank ? 0 : (double)b->length[r];
  }
  item->stage = GRADIENTS_SENT;
  coll_status status = coll_ialltoallv(b->packets, b->length, b->at, b->packets + item->in, b->same,
                                       b->arrives, COLL_UINT8, b->w->comm, &item->request);
  return succeeded(why, b->w->comm, status, doing);
}

/* Waits for the packets of this rank's part, and adds them. */
static bool add_gradients(buckets *b, bucket *item, fail *why) {
  if (!worker_wait(b->w, &item->request, doing, why))
    return false;
  double begin = clock_s();
  shard part = buckets_part(b, item, b->rank);
  float *sum = b->grads + part.first;
  list(b, item);
  memset(sum, 0, part.count * sizeof(float));
  for (int r = 0; r < b->nranks; r++)
    if (!wire_add(&b->w->o->wire, part.count, b->packets + item->in + b->arrives[r], sum, why))
      return false;
  item->stage = ARRIVED;
  b->w->sums.compute_s += clock_s() - begin;
  return true;
}

/* Starts to send this rank's sum to all. */
static bool send_sum(buckets *b, bucket *item, fail *why) {
  double begin = clock_s();
  shard part = buckets_part(b, item, b->rank);
  float *rests = b->rests + item->rests;
  list(b, item);
  unsigned char *packet = b->packets + b->at[b->rank];
  rows_add(part.count, rests, b->grads + part.first);
  wire_pack(&b->w->o->wire, part.count, rests, packet);
  item->stage = SUMS_SENT;
  b->w->sums.compute_s += clock_s() - begin;
  b->w->sums.sent_bytes += (double)(b->nranks - 1) * (double)b->length[b->rank];
  coll_status status = coll_iallgatherv(packet, b->packets, b->length, b->at, COLL_UINT8,
                                        b->w->comm, &item->request);
  return succeeded(why, b->w->comm, status, doing);
}

/* Waits for the sums of all parts, which overwrite this rank's gradients. */
static bool take_sums(buckets *b, bucket *item, fail *why) {
  if (!worker_wait(b->w, &item->request, doing, why))
    return false;
  double begin = clock_s();
  list(b, item);
  memset(b->grads + item->first, 0, item->count * sizeof(float));
  for (int r = 0; r < b->nranks; r++) {
    shard part = buckets_part(b, item, r);
    if (!wire_add(&b->w->o->wire, part.count, b->packets + b->at[r], b->grads + part.first, why))
      return false;
  }
  item->stage = ARRIVED;
  b->w->sums.compute_s += clock_s() - begin;
  return true;
}

/* The sums of all buckets go out before the first is waited for, in this order on every rank. */
static bool send_sums(buckets *b, fail *why) {
  for (size_t i = 0; i < b->count; i++) {
    bucket *item = &b->item[i];
    if (item->stage == GRADIENTS_SENT && (!add_gradients(b, item, why) || !send_sum(b, item, why)))
      return false;
  }
  return true;
}

/* Waits until a bucket has its sums; returns at once if it has. */
static bool wait_packets(buckets *b, bucket *item, fail *why) {
  if (item->stage == ARRIVED)
    return true;
  if (b->parts)
    return add_gradients(b, item, why);
  return send_sums(b, why) && take_sums(b, item, why);
}

/* ---- buckets -------------------------------------------------------------------------------- */

void buckets_cut(buckets *b, const model *m, size_t bucket_bytes) {
  size_t end = m->params;
  b->count = 0;
  for (size_t l = m->layers; l-- > 0;) {
    size_t first = m->layer[l].first;
    bool last = l == 0;
    size_t with_next = last ? 0 : (end - m->layer[l - 1].first) * sizeof(float);
    if ((!last && with_next <= bucket_bytes) || first == end)
      continue;
    b->item[b->count++] = (bucket){.first = first, .count = end - first, .lowest_layer = l};
    end = first;
  }
}

bool buckets_open(buckets *b, worker *w, bool parts, fail *why) {
  *b = (buckets){.w = w, .rank = w->rank, .nranks = w->nranks, .parts = parts};
  buckets_cut(b, &w->model, w->o->bucket_bytes);
  return (b->lengths = worker_memory(w, (size_t)w->nranks * sizeof(*b->lengths), why)) &&
         (b->grads = worker_shared_memory(w, w->model.params * sizeof(float), why)) &&
         (!w->pending || open_packets(b, why));
}

const size_t *buckets_lengths(const buckets *b, const bucket *item) {
  for (int r = 0; r < b->nranks; r++)
    b->lengths[r] = buckets_part(b, item, r).count;
  return b->lengths;
}

/* The gradients of a bucket are there: starts to sum them. */
static bool start(buckets *b, bucket *item, fail *why) {
  float *grads = b->grads + item->first;
  double whole = allreduce_bytes(b->nranks, item->count * sizeof(float));
  coll_status status;
  if (b->packets)
    return send_packets(b, item, why);
  if (b->parts)
    status = coll_ireduce_scatterv(grads, b->grads + buckets_part(b, item, b->rank).first,
                                   buckets_lengths(b, item), COLL_FLOAT32, COLL_SUM, b->w->comm,
                                   &item->request);
  else
    status = coll_iallreduce(grads, grads, item->count, COLL_FLOAT32, COLL_SUM, b->w->comm,
                             &item->request);
  b->w->sums.sent_bytes += b->parts ? whole / 2 : whole;
  return succeeded(why, b->w->comm, status, doing);
}

/* Moves on what is in flight, without waiting. */
static bool poll(buckets *b, fail *why) {
  for (size_t i = 0; i < b->started; i++) {
    coll_status status = b->item[i].request ? coll_test(&b->item[i].request) : COLL_OK;
    if (status != COLL_IN_PROGRESS && !succeeded(why, b->w->comm, status, doing))
      return false;
  }
  return true;
}

/* A layer's gradients are final: starts its bucket if it was the last one missing. */
static bool layer_done(void *ctx, size_t l, fail *why) {
  buckets *b = ctx;
  bucket *next = &b->item[b->started];
  if (b->started < b->count && next->lowest_layer == l) {
    if (!start(b, next, why))
      return false;
    b->started++;
  }
  return poll(b, why);
}

model_listener buckets_listener(buckets *b) {
  b->started = 0;
  return (model_listener){.layer_done = layer_done, .ctx = b};
}

bool buckets_wait(buckets *b, size_t i, fail *why) {
  if (!poll(b, why))
    return false;
  return b->packets ? wait_packets(b, &b->item[i], why)
                    : worker_wait(b->w, &b->item[i].request, doing, why);
}

void buckets_settle(buckets *b) {
  if (!b->rests)
    return;
  for (size_t i = 0; i < b->count; i++) {
    shard part = buckets_part(b, &b->item[i], b->rank);
    float *rests = b->rests + b->item[i].rests;
    rows_add(part.count, b->w->pending + part.first, rests);
    memset(rests, 0, part.count * sizeof(float));
  }
}
