/*
 * support_check_memory.c: a long random mix of what only some transports have: messages that are
 * sent from regions or from registered memory, that are told of where they belong before they come,
 * and that either end works on. A transport that has none of it carries the same messages.
 *
 * Two ranks send each other groups of messages with a tag each, as the slices of an operation.
 */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/shared.h"
#include "tests/conformance/support_world.h"

#define GROUPS     60
#define PLACES     3 /* groups that a rank may have sent and not got back, or received */
#define MOST       5 /* messages of a group */
#define REGION     9
#define KIND_STORE 40
#define KIND_MIX   42 /* the result is own ^ payload; bit 0 says in which order */

typedef enum plan_kind { PLAIN, EXPECTED, LANDED } plan_kind;

/* Memory of one rank: what it sends, receives, and mixes with. */
typedef struct store {
  char *memory;
  size_t bytes;
  int fd; /* of a region, or -1 */
  char *out[PLACES], *in[PLACES], *own[PLACES];
} store;

/* One rank: the groups that it sends, and those that it receives. */
typedef struct side {
  conf_world *world;
  int rank;
  conf_end end;
  store shared, ordinary;
  uint64_t seed;     /* of the groups that it sends */
  int sent, through; /* groups: sent, and of these complete */
  int filled;        /* groups whose memory is */
  unsigned part;     /* messages of the group under way that were taken */
  uint64_t ticket[PLACES];
  bool registered[PLACES];
  int received;
  unsigned got;
  plan_kind plan[GROUPS + 1]; /* as told to the transport; PLAIN: not */
  bool in_registered[PLACES];
  struct side *peer;
  uint64_t referred, worked;
} side;

/* A group: what both ends know of it. */
typedef struct group {
  uint64_t number;
  size_t slice, last;
  unsigned count;
  bool shared; /* the sender has it in its region */
} group;

static group group_of(const side *sender, int index) {
  colli_prng prng = {sender->seed + (uint64_t)index};
  size_t slot = sender->world->slot_bytes;
  group g = {.number = (sender->seed + (uint64_t)index) * 16};
  g.slice = colli_prng_below(&prng, 4) ? slot : 8 * (1 + colli_prng_below(&prng, slot / 8));
  g.last = 8 * (1 + colli_prng_below(&prng, g.slice / 8));
  g.count = 1 + (unsigned)colli_prng_below(&prng, MOST);
  g.shared = colli_prng_below(&prng, 2);
  return g;
}

static size_t bytes_of(const group *g, unsigned part) {
  return part + 1 == g->count ? g->last : g->slice;
}

static size_t all_of(const group *g) {
  return (g->count - 1) * g->slice + g->last;
}

/* What a receiver's memory is for a group: its region's for the one half, other memory else. */
static const store *store_of(const side *s, const group *g) {
  return g->number / 16 % 2 ? &s->shared : &s->ordinary;
}

/* Whether a receiver mixes a group with memory of its own. */
static bool mixes(const side *s, const group *g) {
  return g->number / 32 % 2 && coll_transport_shares_work(s->world->ops);
}

/* Maps a store and divides it up. */
static void make_store(store *st, size_t slot, bool region) {
  colli_shared_fault fault;
  st->bytes = (3 * PLACES * MOST * slot + 4095) / 4096 * 4096;
  st->fd = region ? colli_shared_create(st->bytes, &fault) : -1;
  st->memory = colli_shared_map(st->fd, st->bytes, true);
  cr_assert_not_null(st->memory);
  for (int i = 0; i < PLACES; i++) {
    st->out[i] = st->memory + (size_t)i * MOST * slot;
    st->in[i] = st->out[i] + PLACES * MOST * slot;
    st->own[i] = st->in[i] + PLACES * MOST * slot;
  }
}

static void drop_store(store *st) {
  munmap(st->memory, st->bytes);
  if (st->fd >= 0)
    close(st->fd);
}

/* What a rank was told of its last failure. */
static const char *why(const side *s) {
  const conf_rank *rank = &s->world->rank[s->rank];
  return rank->failures ? rank->last.detail : "no failure";
}

/* Reclaims the slots of groups that are complete. */
static void reap(side *s) {
  uint64_t count = 0;
  const coll_transport_ops *ops = s->world->ops;
  cr_assert_eq(s->end.conn->ops->sent(s->end.conn, &count), COLL_OK);
  for (; s->through < s->sent && s->ticket[s->through % PLACES] <= count; s->through++) {
    int at = s->through % PLACES;
    group g = group_of(s, s->through);
    if (s->registered[at])
      ops->release_buffers(s->world->rank[s->rank].ep, &s->registered[at]);
    s->registered[at] = false;
    memset((g.shared ? &s->shared : &s->ordinary)->out[at], 0xee, all_of(&g));
  }
}

/* Tries to send the next message. */
static void send_next(side *s, colli_prng *prng) {
  const coll_transport_ops *ops = s->world->ops;
  reap(s);
  if (s->sent == GROUPS || s->sent - s->through == PLACES)
    return;
  int at = s->sent % PLACES;
  group g = group_of(s, s->sent);
  char *all = (g.shared ? &s->shared : &s->ordinary)->out[at];
  if (s->filled == s->sent) {
    s->filled++;
    for (unsigned i = 0; i < g.count; i++)
      data_fill_bytes(all + i * g.slice, bytes_of(&g, i), g.number + i);
    s->registered[at] = !g.shared && coll_transport_registers(ops) && colli_prng_below(prng, 2);
    if (s->registered[at])
      ops->register_buffer(s->world->rank[s->rank].ep, &s->registered[at], all, all_of(&g), 0);
  }
  coll_tag tag = conf_tag(g.number);
  const char *buf = all + s->part * g.slice;
  bool refers = g.shared && coll_transport_sends_by_ref(ops);
  int status =
      refers ? s->end.conn->ops->send_ref(s->end.conn, &tag, REGION, buf, bytes_of(&g, s->part))
             : s->end.conn->ops->send(s->end.conn, &tag, buf, bytes_of(&g, s->part));
  cr_assert_leq(status, 0, "send: %d: %s", status, why(s));
  if (status == COLL_T_AGAIN)
    return;
  s->referred += refers && status == COLL_T_PENDING;
  s->ticket[at] = ++s->end.posted;
  if (++s->part == g.count) {
    s->sent++;
    s->part = 0;
  }
}

/* Tells the transport of a group that comes behind `ahead` messages, in a random way. */
static void announce(side *s, int index, unsigned ahead, colli_prng *prng) {
  const coll_transport_ops *ops = s->world->ops;
  group g = group_of(s->peer, index);
  const store *st = store_of(s, &g);
  int at = index % PLACES;
  if (s->plan[index] != PLAIN || colli_prng_below(prng, 2))
    return;
  if (coll_transport_expects(ops)) {
    coll_tag tag = conf_tag(g.number);
    if (st == &s->ordinary && !s->in_registered[at]) {
      ops->register_buffer(s->world->rank[s->rank].ep, &s->in_registered[at], st->in[at],
                           all_of(&g), 1);
      s->in_registered[at] = true;
    }
    int status = ops->expect(s->end.conn, ahead, &tag, st->in[at], all_of(&g), g.slice);
    cr_assert(status == COLL_T_DONE || status == COLL_T_AGAIN, "expect: %d", status);
    s->plan[index] = status == COLL_T_DONE ? EXPECTED : PLAIN;
  } else if (coll_transport_shares_work(ops) && st == &s->shared) {
    bool mix = mixes(s, &g);
    coll_work_offer offer_work = {.kind = mix ? KIND_MIX + (uint32_t)s->rank : KIND_STORE,
                                  .to_region = REGION,
                                  .own_region = mix ? REGION : 0,
                                  .skip = ahead,
                                  .to = st->in[at],
                                  .own = mix ? st->own[at] : NULL,
                                  .bytes = all_of(&g),
                                  .slice = g.count > 1 ? g.slice : g.last};
    s->plan[index] = ops->offer_work(s->end.conn, &offer_work) == 1 ? LANDED : PLAIN;
  }
}

/* Stores a payload, or mixes it with what is there already. */
static void combine(char *to, const char *own, const char *payload, size_t bytes) {
  for (size_t i = 0; i < bytes; i++)
    to[i] = own ? (char)(own[i] ^ payload[i]) : payload[i];
}

/* Does shared work of either end, if there is any. */
static void work(side *s) {
  const coll_transport_ops *ops = s->world->ops;
  coll_work todo;
  if (!coll_transport_shares_work(ops))
    return;
  int status = ops->claim_work(s->end.conn, &todo);
  cr_assert(status == COLL_T_DONE || status == COLL_T_AGAIN, "work_take: %d", status);
  if (status == COLL_T_AGAIN)
    return;
  cr_assert_null(todo.to2); /* nobody mixes with what it sends */
  combine(todo.to, todo.own, todo.payload, todo.bytes);
  cr_assert_eq(ops->finish_work(s->end.conn, &todo), COLL_T_DONE);
  s->worked++;
}

/* Receives a part of a group to its place: 1, or 0. */
static int take_part(side *s, const group *g, plan_kind plan, char *to, const char *own) {
  size_t bytes = bytes_of(g, s->got), came = 0;
  coll_tag tag = conf_tag(g->number), got = {{0}};
  const void *shown;
  if (plan != LANDED && !own) {
    int status = s->end.conn->ops->recv(s->end.conn, &tag, to, bytes, &got, &came);
    cr_assert_leq(status, 0, "receive: %d, %zu bytes for %zu: %s", status, came, bytes, why(s));
    return status == COLL_T_DONE;
  }
  int status = s->end.conn->ops->slot_peek(s->end.conn, &got, &shown, &came);
  cr_assert_leq(status, 0, "receive: %d: %s", status, why(s));
  if (status == COLL_T_AGAIN)
    return 0;
  cr_assert(came == bytes && memcmp(&got, &tag, sizeof(tag)) == 0, "another message");
  cr_assert(shown || plan == LANDED, "nobody was told what is to be done with it");
  if (shown)
    combine(to, own, shown, bytes);
  cr_assert_eq(s->end.conn->ops->slot_release(s->end.conn), COLL_T_DONE);
  return 1;
}

/* Tries to receive the next message. */
static void receive_next(side *s, colli_prng *prng) {
  if (s->received == GROUPS)
    return;
  group g = group_of(s->peer, s->received);
  const store *st = store_of(s, &g);
  int at = s->received % PLACES;
  if (s->got == 0)
    announce(s, s->received, 0, prng);
  if (s->received + 1 < GROUPS)
    announce(s, s->received + 1, g.count - s->got, prng);
  const char *own = mixes(s, &g) && st == &s->shared ? st->own[at] : NULL;
  size_t first = s->got * g.slice;
  if (!take_part(s, &g, s->plan[s->received], st->in[at] + first, own ? own + first : NULL))
    return;
  if (own) /* what was mixed in is taken out again */
    combine(st->in[at] + first, own + first, st->in[at] + first, bytes_of(&g, s->got));
  cr_assert(data_are_bytes(st->in[at] + first, bytes_of(&g, s->got), g.number + s->got),
            "part %u of group %d is damaged", s->got, s->received);
  if (++s->got < g.count)
    return;
  s->got = 0;
  s->received++;
  if (s->in_registered[at])
    s->world->ops->release_buffers(s->world->rank[s->rank].ep, &s->in_registered[at]);
  s->in_registered[at] = false;
}

/* Makes a rank's memory, and tells of its region. */
static void make_side(side *s, conf_world *world, int rank, uint64_t seed) {
  s->world = world;
  s->rank = rank;
  s->seed = seed;
  make_store(&s->shared, world->slot_bytes, true);
  make_store(&s->ordinary, world->slot_bytes, false);
  for (int i = 0; i < PLACES; i++)
    data_fill_bytes(s->shared.own[i], MOST * world->slot_bytes, seed + (uint64_t)i);
  if (!coll_transport_sends_by_ref(world->ops))
    return;
  int status = world->ops->region_add(world->rank[rank].ep, REGION, s->shared.memory,
                                      s->shared.bytes, s->shared.fd);
  cr_assert(status == COLL_OK || status == COLL_ERR_NO_MEMORY, "region_add: %d", status);
}

static void drop_side(side *s) {
  if (coll_transport_sends_by_ref(s->world->ops))
    s->world->ops->region_remove(s->world->rank[s->rank].ep, REGION);
  drop_store(&s->shared);
  drop_store(&s->ordinary);
}

void conf_memory_traffic(const conf_transport *transport) {
  colli_prng prng = {conf_seed()};
  conf_world *world = conf_begin(transport, 2, -1);
  side *sides = calloc(2, sizeof(*sides));
  cr_assert_not_null(sides);
  conf_pair(world, 0, 1, 0, &sides[0].end, &sides[1].end);
  for (int i = 0; i < 2; i++) {
    sides[i].peer = &sides[1 - i];
    make_side(&sides[i], world, i, colli_prng_next(&prng) >> 12);
  }
  while (sides[0].through < GROUPS || sides[1].through < GROUPS || sides[0].received < GROUPS ||
         sides[1].received < GROUPS) {
    side *s = &sides[colli_prng_below(&prng, 2)];
    for (uint64_t burst = colli_prng_below(&prng, 6); burst > 0; burst--)
      switch (colli_prng_below(&prng, 3)) {
      case 0:
        send_next(s, &prng);
        break;
      case 1:
        receive_next(s, &prng);
        break;
      default:
        work(s);
      }
    reap(s);
    if (colli_prng_below(&prng, 3) == 0)
      conf_round(world);
  }
  cr_assert_eq(world->rank[0].failures + world->rank[1].failures, 0);
  bool sure = !transport->param && world->slot_bytes >= 32768; /* not refused, and long enough */
  if (sure && coll_transport_sends_by_ref(world->ops))
    cr_assert(sides[0].referred && sides[1].referred, "nothing went by reference");
  if (sure && coll_transport_shares_work(world->ops))
    cr_assert(sides[0].worked && sides[1].worked, "nobody helped");
  for (int i = 0; i < 2; i++)
    conf_disconnect(&sides[i].end);
  for (int i = 0; i < 2; i++)
    drop_side(&sides[i]);
  free(sides);
  conf_finish(world);
}
