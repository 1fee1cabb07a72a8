/*
 * support_check_devices.c: messages from and to memory of a device, which a file stands for: a
 * random mix of those that are sent from there, in slots and to targets, of those that are copied
 * to targets, and of others. Transports without that skip it, and those that refuse the file.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "tests/conformance/support_world.h"

#define ITEMS 60
#define AHEAD 5 /* targets that are offered before their messages are due, at most */
#define SHIFT 5 /* of the memory, from the beginning of a page */

typedef enum item_kind { PLAIN, FROM_DEVICE, TO_TARGET, COPIED, KINDS } item_kind;

/* What is sent together, with one tag: of a target several messages. */
typedef struct item {
  item_kind kind;
  size_t bytes, slice;
  unsigned count;
} item;

/* One end: memory of a device with a place for each item. */
typedef struct device_end {
  conf_end end;
  int rank, fd;
  char *memory; /* where the test looks at it */
  size_t bytes, place;
  coll_device_memory *registered;
} device_end;

static item item_of(uint64_t seed, unsigned index, size_t slot) {
  colli_prng prng = {seed * 1000 + index};
  item it = {.kind = (item_kind)colli_prng_below(&prng, KINDS), .count = 1};
  it.slice = 1 + colli_prng_below(&prng, colli_prng_below(&prng, 2) ? slot : 40);
  if (it.kind == TO_TARGET && colli_prng_below(&prng, 3) == 0)
    it.slice = 2 * slot; /* no slot has to hold it */
  it.bytes = it.slice;
  if (it.kind >= TO_TARGET) {
    it.bytes += colli_prng_below(&prng, 3 * it.slice);
    it.count = (unsigned)((it.bytes + it.slice - 1) / it.slice);
  }
  return it;
}

static size_t bytes_of(const item *it, unsigned part) {
  return part + 1 == it->count ? it->bytes - part * it->slice : it->slice;
}

/* Whether a transport takes a file as memory of a device; *end is to be closed in any case. */
static bool open_end(conf_world *w, int rank, device_end *end) {
  const char *why = NULL;
  end->rank = rank;
  end->place = 8 * w->slot_bytes;
  end->bytes = ITEMS * end->place;
  end->fd = memfd_create("device", MFD_CLOEXEC);
  cr_assert_geq(end->fd, 0);
  cr_assert_eq(ftruncate(end->fd, (off_t)(end->bytes + 4096)), 0);
  end->memory = mmap(NULL, end->bytes + 4096, PROT_READ | PROT_WRITE, MAP_SHARED, end->fd, 0);
  cr_assert_neq(end->memory, MAP_FAILED);
  end->memory += SHIFT;
  const int status =
      w->ops->register_device(w->rank[rank].ep, end->fd, SHIFT, (char *)0x70000000 + SHIFT,
                              end->bytes, 1, &end->registered, &why);
  cr_assert(status == COLL_OK || why, "no reason");
  return status == COLL_OK;
}

static void close_end(conf_world *w, device_end *end) {
  if (end->registered)
    w->ops->release_device(w->rank[end->rank].ep, end->registered);
  munmap(end->memory - SHIFT, end->bytes + 4096);
  close(end->fd);
}

/* Tries to send the next part of an item, as the transport's calls return it. */
static int send_part(device_end *from, const item *it, unsigned index, unsigned part) {
  const coll_transport_ops *ops = from->end.conn->ops;
  const coll_tag tag = conf_tag(index);
  const size_t at = index * from->place + part * it->slice, bytes = bytes_of(it, part);
  const char *buf = from->memory + at;
  if (part == 0)
    data_fill_bytes(from->memory + at, it->bytes, index);
  const int status = it->kind == PLAIN    ? ops->send(from->end.conn, &tag, buf, bytes)
                     : it->kind == COPIED ? ops->send_to_target(from->end.conn, &tag, buf, bytes)
                                          : ops->send_device(from->end.conn, &tag, from->registered,
                                                             at, bytes, it->kind == TO_TARGET);
  from->end.posted += status == COLL_T_DONE || status == COLL_T_PENDING;
  cr_assert(status <= 0 && (it->kind != COPIED || status != COLL_T_PENDING), "%d", status);
  return status;
}

/* Tries to take the next part; whether that worked. */
static bool take_part(device_end *to, const item *it, unsigned index, unsigned part) {
  const coll_transport_ops *ops = to->end.conn->ops;
  const coll_tag tag = conf_tag(index);
  coll_tag got;
  const void *buf;
  size_t bytes;
  const size_t at = index * to->place + part * it->slice;
  const int status = ops->slot_peek(to->end.conn, &got, &buf, &bytes);
  cr_assert(status <= 0, "%d", status);
  if (status != COLL_T_DONE)
    return false;
  cr_assert_eq(memcmp(&got, &tag, sizeof(tag)), 0);
  cr_assert_eq(bytes, bytes_of(it, part));
  if (it->kind >= TO_TARGET)
    cr_assert_eq((uintptr_t)buf, 0x70000000 + SHIFT + at, "another place of the target");
  else
    memcpy(to->memory + at, buf, bytes);
  cr_assert_eq(ops->slot_release(to->end.conn), COLL_T_DONE);
  if (part + 1 == it->count)
    cr_assert(data_are_bytes(to->memory + index * to->place, it->bytes, index), "item %u", index);
  return true;
}

/* Offers the targets of the items up to `until`. */
static unsigned offer(device_end *to, uint64_t seed, unsigned from, unsigned until, size_t slot) {
  for (; from < until && from < ITEMS; from++) {
    const item it = item_of(seed, from, slot);
    const coll_tag tag = conf_tag(from);
    if (it.kind < TO_TARGET)
      continue;
    const int status =
        to->end.conn->ops->offer_device(to->end.conn, &tag, to->registered, from * to->place,
                                        it.bytes, it.slice, it.kind == COPIED);
    cr_assert(status == COLL_T_DONE || status == COLL_T_AGAIN, "%d", status);
    if (status == COLL_T_AGAIN)
      break;
  }
  return from;
}

/* Sends all items one way. */
static void exchange(conf_world *w, device_end *from, device_end *to, uint64_t seed) {
  colli_prng prng = {seed};
  unsigned sent = 0, sent_parts = 0, taken = 0, taken_parts = 0, offered = 0;
  while (taken < ITEMS) {
    const item out = item_of(seed, sent, w->slot_bytes), in = item_of(seed, taken, w->slot_bytes);
    if (colli_prng_below(&prng, 2))
      offered = offer(to, seed, offered, taken + 1 + (unsigned)colli_prng_below(&prng, AHEAD),
                      w->slot_bytes);
    if (sent < ITEMS && send_part(from, &out, sent, sent_parts) != COLL_T_AGAIN &&
        ++sent_parts == out.count) {
      sent++;
      sent_parts = 0;
    }
    if (colli_prng_below(&prng, 2) && take_part(to, &in, taken, taken_parts) &&
        ++taken_parts == in.count) {
      taken++;
      taken_parts = 0;
    }
    conf_round(w);
  }
  while (!conf_all_sent(&from->end))
    conf_round(w);
}

void conf_device_traffic(const conf_transport *transport) {
  if (!coll_transport_reaches_devices(transport->ops))
    return;
  const uint64_t seed = conf_seed();
  conf_world *w = conf_begin(transport, 2, -1);
  device_end a = {.fd = -1}, b = {.fd = -1};
  conf_pair(w, 0, 1, 0, &a.end, &b.end);
  const bool opened_a = open_end(w, 0, &a), opened_b = open_end(w, 1, &b);
  if (opened_a && opened_b)
    for (unsigned i = 0; i < 3; i++) {
      exchange(w, &a, &b, seed + 2 * i);
      exchange(w, &b, &a, seed + 2 * i + 1);
    }
  conf_disconnect(&a.end);
  conf_disconnect(&b.end);
  close_end(w, &a);
  close_end(w, &b);
  conf_finish(w);
}
