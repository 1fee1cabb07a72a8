/*
 * packets.c: the sum of a bucket whose gradients travel in packets, as --wire says.
 *
 *     each rank, for each other one r:  packet of its gradients of r's part --> r
 *     each rank, for its own part:      adds the packets that came, in the order of the ranks
 *     unless it keeps the part alone:   packet of the sum --> all
 *
 * So a rank sends 2 (n - 1) packets of 1 / n of the model in a step, however many ranks there are,
 * a number is rounded twice on its way, and equal runs give equal bits. What a packet of gradients
 * lacks stays in worker.pending, and what one of sums lacks in memory of its own, for the next
 * step. H. Tang et al., DoubleSqueeze: Parallel Stochastic Gradient Descent with Double-Pass
 *   Error-Compensated Compression, ICML 2019; H. Tang et al., 1-bit Adam, ICML 2021.
 */
#include "trainer/strategies/buckets.h"

#include "trainer/layers/rows.h"

#include <string.h>

static const char *const doing = "summing gradients";

/* How far the packets of a bucket are. */
enum { ARRIVED, GRADIENTS_SENT, SUMS_SENT };

/* Where the packets of a bucket lie in packets.memory, and its rests in packets.rests. */
typedef struct layout {
  size_t out, in, rests;
  int stage;
} layout;

typedef struct packets {
  unsigned char *memory;  /* from worker_shared_memory() */
  size_t *length, *at;    /* of the packets that go to each rank */
  size_t *same, *arrives; /* the same of those that come from each */
  float *rests;           /* what sums lack, bucket after bucket; NULL: none are sent */
  layout layout[MODEL_MAX_LAYERS];
} packets;

/* A bucket's layout. */
static layout *layout_of(const buckets *b, const bucket *item) {
  return &b->packets->layout[item - b->item];
}

/* Bytes of the packet of a rank's part. */
static size_t bytes_of(const buckets *b, const bucket *item, int rank) {
  return wire_bytes(&b->w->o->wire, buckets_part(b, item, rank).count);
}

/* Where packets of this rank's part of a bucket come in. */
static unsigned char *incoming(const buckets *b, const bucket *item) {
  return b->packets->memory + layout_of(b, item)->in;
}

/* Fills in what goes to whom, and comes from whom, for a bucket. */
static void list(const buckets *b, const bucket *item) {
  const packets *p = b->packets;
  size_t out = layout_of(b, item)->out, mine = bytes_of(b, item, b->rank);
  for (int r = 0; r < b->nranks; r++) {
    p->length[r] = bytes_of(b, item, r);
    p->at[r] = out;
    p->same[r] = mine;
    p->arrives[r] = (size_t)r * mine;
    out += p->length[r];
  }
}

bool packets_open(buckets *b, fail *why) {
  size_t ranks = (size_t)b->nranks, bytes = 0, own = 0;
  packets *p = b->packets = worker_memory(b->w, sizeof(*p), why);
  if (!p || !(p->length = worker_memory(b->w, 4 * ranks * sizeof(*p->length), why)))
    return false;
  p->at = p->length + ranks;
  p->same = p->at + ranks;
  p->arrives = p->same + ranks;
  for (size_t i = 0; i < b->count; i++) {
    const bucket *item = &b->item[i];
    p->layout[i] = (layout){.out = bytes, .rests = own};
    for (int r = 0; r < b->nranks; r++)
      bytes += bytes_of(b, item, r);
    p->layout[i].in = bytes;
    bytes += ranks * bytes_of(b, item, b->rank);
    own += buckets_part(b, item, b->rank).count;
  }
  return (b->parts || (p->rests = worker_memory(b->w, own * sizeof(float), why))) &&
         (p->memory = worker_shared_memory(b->w, bytes, why));
}

bool packets_send(buckets *b, bucket *item, fail *why) {
  const packets *p = b->packets;
  list(b, item);
  for (int r = 0; r < b->nranks; r++) {
    shard part = buckets_part(b, item, r);
    worker_pack(b->w, part.first, part.count, b->grads + part.first, p->memory + p->at[r]);
    b->w->sums.sent_bytes += r == b->rank ? 0 : (double)p->length[r];
  }
  layout_of(b, item)->stage = GRADIENTS_SENT;
  coll_status status = coll_ialltoallv(p->memory, p->length, p->at, incoming(b, item), p->same,
                                       p->arrives, COLL_UINT8, b->w->comm, &item->request);
  return succeeded(why, b->w->comm, status, doing);
}

/* Waits for the packets of this rank's part, and adds them. */
static bool add_gradients(buckets *b, bucket *item, fail *why) {
  const packets *p = b->packets;
  if (!worker_wait(b->w, &item->request, doing, why))
    return false;
  double begin = clock_s();
  shard part = buckets_part(b, item, b->rank);
  float *sum = b->grads + part.first;
  list(b, item);
  memset(sum, 0, part.count * sizeof(float));
  for (int r = 0; r < b->nranks; r++)
    wire_add(&b->w->o->wire, part.count, incoming(b, item) + p->arrives[r], sum);
  layout_of(b, item)->stage = ARRIVED;
  b->w->sums.compute_s += clock_s() - begin;
  return true;
}

/* Starts to send this rank's sum to all. */
static bool send_sum(buckets *b, bucket *item, fail *why) {
  const packets *p = b->packets;
  double begin = clock_s();
  shard part = buckets_part(b, item, b->rank);
  float *rests = p->rests + layout_of(b, item)->rests;
  list(b, item);
  unsigned char *packet = p->memory + p->at[b->rank];
  rows_add(part.count, rests, b->grads + part.first);
  wire_pack(&b->w->o->wire, part.count, rests, packet);
  layout_of(b, item)->stage = SUMS_SENT;
  b->w->sums.compute_s += clock_s() - begin;
  b->w->sums.sent_bytes += (double)(b->nranks - 1) * (double)p->length[b->rank];
  coll_status status =
      coll_iallgatherv(packet, p->memory, p->length, p->at, COLL_UINT8, b->w->comm, &item->request);
  return succeeded(why, b->w->comm, status, doing);
}

/* Waits for the sums of all parts, which overwrite this rank's gradients. */
static bool take_sums(buckets *b, bucket *item, fail *why) {
  const packets *p = b->packets;
  if (!worker_wait(b->w, &item->request, doing, why))
    return false;
  double begin = clock_s();
  list(b, item);
  memset(b->grads + item->first, 0, item->count * sizeof(float));
  for (int r = 0; r < b->nranks; r++) {
    shard part = buckets_part(b, item, r);
    wire_add(&b->w->o->wire, part.count, p->memory + p->at[r], b->grads + part.first);
  }
  layout_of(b, item)->stage = ARRIVED;
  b->w->sums.compute_s += clock_s() - begin;
  return true;
}

/* The sums of all buckets go out before the first is waited for, in this order on every rank. */
static bool send_sums(buckets *b, fail *why) {
  for (size_t i = 0; i < b->count; i++) {
    bucket *item = &b->item[i];
    if (layout_of(b, item)->stage == GRADIENTS_SENT &&
        (!add_gradients(b, item, why) || !send_sum(b, item, why)))
      return false;
  }
  return true;
}

bool packets_wait(buckets *b, bucket *item, fail *why) {
  if (layout_of(b, item)->stage == ARRIVED)
    return true;
  if (b->parts)
    return add_gradients(b, item, why);
  return send_sums(b, why) && take_sums(b, item, why);
}

void packets_settle(buckets *b) {
  const packets *p = b->packets;
  if (!p || !p->rests)
    return;
  for (size_t i = 0; i < b->count; i++) {
    shard part = buckets_part(b, &b->item[i], b->rank);
    float *rests = p->rests + p->layout[i].rests;
    rows_add(part.count, b->w->pending + part.first, rests);
    memset(rests, 0, part.count * sizeof(float));
  }
}
