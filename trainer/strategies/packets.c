/* packets.c: buckets whose gradients travel in packets, as --wire says. */
#include "trainer/strategies/packets.h"

#include "trainer/clock.h"
#include "trainer/layers/rows.h"

#include <stdlib.h>
#include <string.h>

static const char *const doing = "summing gradients";

shard packets_part(const packets *p, const bucket *item, int rank) {
  shard part = shard_of(item->count, rank, p->nranks);
  part.first += item->first;
  return part;
}

/* Bytes of the packet of a rank's part. */
static size_t bytes_of(const packets *p, const bucket *item, int rank) {
  return wire_bytes(&p->w->o->wire, packets_part(p, item, rank).count);
}

/* Where packets of this rank's part of a bucket come in. */
static unsigned char *incoming(const packets *p, const bucket *item) {
  return p->memory + p->place[item - p->b->item].in;
}

/* Writes down what goes to whom and comes from whom for a bucket. */
static void list(packets *p, const bucket *item) {
  const packets_place *place = &p->place[item - p->b->item];
  size_t out = place->out, mine = bytes_of(p, item, p->rank);
  for (int r = 0; r < p->nranks; r++) {
    p->bytes[r] = bytes_of(p, item, r);
    p->at[r] = out;
    p->same[r] = mine;
    p->received[r] = (size_t)r * mine;
    out += p->bytes[r];
  }
}

/* The gradients of a bucket are there: starts to send their parts to the ranks that add them. */
static coll_status start_bucket(buckets *b, bucket *item) {
  packets *p = b->owner;
  list(p, item);
  for (int r = 0; r < p->nranks; r++) {
    shard part = packets_part(p, item, r);
    worker_pack(p->w, part.first, part.count, b->grads + part.first, p->memory + p->at[r]);
    p->w->sums.sent_bytes += r == p->rank ? 0 : (double)p->bytes[r];
  }
  p->place[item - b->item].gradients = true;
  return coll_ialltoallv(p->memory, p->bytes, p->at, incoming(p, item), p->same, p->received,
                         COLL_UINT8, b->comm, &item->request);
}

bool packets_open(packets *p, worker *w, buckets *b, bool back, fail *why) {
  size_t ranks = (size_t)w->nranks, bytes = 0, own = 0;
  void *memory = NULL;
  *p = (packets){.w = w, .b = b, .rank = w->rank, .nranks = w->nranks};
  b->start = start_bucket;
  b->owner = p;
  p->bytes = calloc(4 * ranks, sizeof(*p->bytes));
  if (!p->bytes)
    return fail_memory(why, "packets");
  p->at = p->bytes + ranks;
  p->same = p->at + ranks;
  p->received = p->same + ranks;
  for (size_t i = 0; i < b->count; i++) {
    p->place[i] = (packets_place){.out = bytes, .later = own};
    for (int r = 0; r < w->nranks; r++)
      bytes += bytes_of(p, &b->item[i], r);
    p->place[i].in = bytes;
    bytes += ranks * bytes_of(p, &b->item[i], w->rank);
    own += packets_part(p, &b->item[i], w->rank).count;
  }
  p->later = back ? calloc(own + 1, sizeof(float)) : NULL; /* not NULL if this rank has no part */
  if (back && !p->later)
    return fail_memory(why, "packets");
  coll_status status = coll_mem_alloc(b->comm, bytes, &memory);
  p->memory = memory;
  return status == COLL_OK || fail_coll(why, b->comm, status, "memory for packets");
}

void packets_close(packets *p) {
  if (!p->w)
    return;
  packets_settle(p);
  if (p->memory)
    coll_mem_free(p->b->comm, p->memory);
  free(p->bytes);
  free(p->later);
  *p = (packets){.w = NULL};
}

void packets_settle(packets *p) {
  for (size_t i = 0; p->later && i < p->b->count; i++) {
    shard part = packets_part(p, &p->b->item[i], p->rank);
    float *later = p->later + p->place[i].later;
    rows_add(part.count, p->w->pending + part.first, later);
    memset(later, 0, part.count * sizeof(float));
  }
}

bool packets_sum(packets *p, size_t i, fail *why) {
  bucket *item = &p->b->item[i];
  if (!p->place[i].gradients)
    return true;
  if (!worker_wait(p->w, &item->request, doing, why))
    return false;
  p->place[i].gradients = false;
  double begin = clock_s();
  shard part = packets_part(p, item, p->rank);
  float *sum = p->b->grads + part.first;
  list(p, item);
  memset(sum, 0, part.count * sizeof(float));
  for (int r = 0; r < p->nranks; r++)
    wire_add(&p->w->o->wire, part.count, incoming(p, item) + p->received[r], sum);
  p->w->sums.compute_s += clock_s() - begin;
  return true;
}

bool packets_share(packets *p, size_t i, fail *why) {
  double begin = clock_s();
  bucket *item = &p->b->item[i];
  shard part = packets_part(p, item, p->rank);
  float *later = p->later + p->place[i].later;
  list(p, item);
  unsigned char *packet = p->memory + p->at[p->rank];
  rows_add(part.count, later, p->b->grads + part.first);
  wire_pack(&p->w->o->wire, part.count, later, packet);
  p->w->sums.compute_s += clock_s() - begin;
  p->w->sums.sent_bytes += (double)(p->nranks - 1) * (double)p->bytes[p->rank];
  p->place[i].sums = true;
  coll_status status =
      coll_iallgatherv(packet, p->memory, p->bytes, p->at, COLL_UINT8, p->b->comm, &item->request);
  return status == COLL_OK || fail_coll(why, p->b->comm, status, doing);
}

bool packets_take(packets *p, size_t i, fail *why) {
  bucket *item = &p->b->item[i];
  if (!p->place[i].sums)
    return true;
  if (!worker_wait(p->w, &item->request, doing, why))
    return false;
  p->place[i].sums = false;
  double begin = clock_s();
  list(p, item);
  memset(p->b->grads + item->first, 0, item->count * sizeof(float));
  for (int r = 0; r < p->nranks; r++)
    wire_add(&p->w->o->wire, packets_part(p, item, r).count, p->memory + p->at[r],
             p->b->grads + packets_part(p, item, r).first);
  p->w->sums.compute_s += clock_s() - begin;
  return true;
}
