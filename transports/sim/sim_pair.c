/* sim_pair.c: connections. A pair holds both ends; events and open ends keep it alive. */
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "transports/sim/sim_internal.h"

/* The bucket of a pair. */
static sim_pair **bucket_of(sim_world *world, int low, int high, int channel) {
  uint64_t key = ((uint64_t)low << 32 | (uint32_t)high) * 0x9e3779b97f4a7c15ull +
                 (uint64_t)channel * 0xc2b2ae3d27d4eb4full;
  return &world->buckets[key >> 52 & (SIM_PAIR_BUCKETS - 1)];
}

/* Whether a fault of this kind has struck the link between two ranks. */
static bool link_struck(const sim_world *world, const int rank[2], sim_fault_kind kind) {
  for (int i = 0; i < world->config.nfaults; i++) {
    const sim_fault *fault = &world->faults[i];
    bool here = (fault->rank == rank[0] && fault->peer == rank[1]) ||
                (fault->rank == rank[1] && fault->peer == rank[0]);
    if (fault->kind == kind && here && world->now_ns - SIM_START_NS >= fault->at_ns)
      return true;
  }
  return false;
}

/* The pair of two ranks on a channel. */
sim_pair *sim_pair_get(sim_world *world, int a, int b, int channel) {
  int low = a < b ? a : b, high = a < b ? b : a;
  sim_pair **bucket = bucket_of(world, low, high, channel);
  for (sim_pair *pair = *bucket; pair; pair = pair->next)
    if (pair->rank[0] == low && pair->rank[1] == high && pair->channel == channel)
      return pair;
  sim_pair *pair = calloc(1, sizeof(*pair));
  if (!pair)
    return NULL;
  pair->next = *bucket;
  *bucket = pair;
  pair->rank[0] = low;
  pair->rank[1] = high;
  pair->channel = channel;
  pair->side[0].pair = pair->side[1].pair = pair;
  pair->cut = link_struck(world, pair->rank, SIM_CUT);
  pair->stalled = link_struck(world, pair->rank, SIM_STALL);
  return pair;
}

/* Frees a message. */
void sim_msg_free(sim_msg *msg) {
  free(msg);
}

/* Gives back one reference. */
void sim_pair_put(sim_world *world, sim_pair *pair) {
  COLLI_ASSERT(pair->refs > 0);
  if (--pair->refs > 0)
    return;
  sim_pair **at = bucket_of(world, pair->rank[0], pair->rank[1], pair->channel);
  while (*at != pair)
    at = &(*at)->next;
  *at = pair->next;
  COLLI_ASSERT(pair->side[0].state != SIM_OPEN && pair->side[1].state != SIM_OPEN);
  for (int i = 0; i < 2; i++) {
    sim_msg_free(pair->side[i].slot);
    while (pair->side[i].head) {
      sim_msg *msg = pair->side[i].head;
      pair->side[i].head = msg->next;
      sim_msg_free(msg);
    }
  }
  free(pair);
}

/* The other end. */
sim_side *sim_side_mate(sim_side *side) {
  sim_pair *pair = side->pair;
  return side == &pair->side[0] ? &pair->side[1] : &pair->side[0];
}

/* 0 or 1. */
static int index_of(const sim_side *side) {
  return side == &side->pair->side[1];
}

/* The rank of one end. */
static int rank_of(const sim_side *side) {
  return side->pair->rank[index_of(side)];
}

/* Reads the oldest borrowed buffer. */
static void read_one(sim_side *side) {
  sim_msg *msg = side->unread;
  if (!msg)
    return;
  memcpy(msg->payload, msg->borrowed, msg->bytes);
  msg->borrowed = NULL;
  while (msg && !msg->borrowed)
    msg = msg->next;
  side->unread = msg;
}

/* A message of `side` reaches the other end. */
static void deliver_message(sim_world *world, sim_side *side) {
  if (!side->coming || side->pair->cut)
    return;
  COLLI_ASSERT(!side->coming->borrowed); /* what arrives was read */
  side->coming = side->coming->next;
  world->delivered++;
  if (sim_side_mate(side)->state == SIM_OPEN)
    sim_touch(world, rank_of(sim_side_mate(side)));
}

/* Ends a side with an error. */
static void end_side(sim_side *side, coll_status status, const char *why) {
  if (side->status != COLL_OK)
    return;
  side->status = status;
  side->why = why;
}

/* Lets an event happen to a side. */
void sim_side_event(sim_world *world, sim_pair *pair, int index, sim_event_kind kind) {
  sim_side *side = &pair->side[index];
  if (kind == SIM_EV_READ)
    read_one(side);
  if (kind == SIM_EV_ARRIVE) {
    deliver_message(world, side);
    return;
  }
  if (side->state != SIM_OPEN)
    return;
  if (kind == SIM_EV_READY && pair->refused)
    end_side(side, COLL_ERR_AUTH, "the other rank holds another secret");
  else if (kind == SIM_EV_READY)
    side->ready = true;
  else if (kind == SIM_EV_CREDIT)
    side->credits++;
  else if (kind == SIM_EV_CLOSED)
    side->peer_closed = true;
  else if (kind == SIM_EV_LOST)
    end_side(side, COLL_ERR_PEER_LOST, "the simulated connection broke");
  sim_touch(world, pair->rank[index]);
}

/* Sends a message: plans its reading and its arrival. */
void sim_side_post(sim_side *side, sim_msg *msg) {
  sim_world *world = side->ep->world;
  int from = side->ep->env->rank, index = index_of(side);
  COLLI_ASSERT_RANK(side->state == SIM_OPEN && side->credits > 0, from);
  msg->number = ++side->taken;
  msg->next = NULL;
  if (side->head)
    side->tail->next = msg;
  else
    side->head = msg;
  side->tail = msg;
  if (!side->coming)
    side->coming = msg;
  if (msg->borrowed && !side->unread)
    side->unread = msg;
  side->credits--;
  sim_corrupt(world, from, msg);
  uint64_t latency = sim_latency(world, from, side->conn.peer);
  if (msg->borrowed) {
    uint64_t at = world->now_ns + colli_prng_below(&world->network, latency + 1);
    side->read_ns = at > side->read_ns ? at : side->read_ns;
    sim_plan(world, side->read_ns, SIM_EV_READ, side->pair, index);
  }
  uint64_t *free_ns = world->config.link ? &world->port_ns[from] : &side->free_ns;
  uint64_t start = *free_ns > world->now_ns ? *free_ns : world->now_ns;
  double ns_per_byte = sim_link_of(world, from, side->conn.peer).ns_per_byte;
  *free_ns = start + (uint64_t)((double)msg->bytes * ns_per_byte);
  uint64_t at = *free_ns + latency;
  at = at > side->read_ns ? at : side->read_ns;
  side->arrive_ns = at > side->arrive_ns ? at : side->arrive_ns;
  if (!side->pair->stalled)
    sim_plan(world, side->arrive_ns, SIM_EV_ARRIVE, side->pair, index);
}

/* Takes the first message off the queue of `side`. */
void sim_side_take(sim_side *side) {
  sim_world *world = sim_side_mate(side)->ep->world;
  sim_msg *msg = side->head;
  COLLI_ASSERT(msg && msg != side->coming && !msg->borrowed); /* it has arrived */
  side->head = msg->next;
  sim_msg_free(msg);
  if (side->state == SIM_OPEN && !side->pair->stalled)
    sim_plan(world, world->now_ns + sim_latency(world, side->conn.peer, rank_of(side)),
             SIM_EV_CREDIT, side->pair, index_of(side));
}

/* Plans what one end learns after `base_ns` or later. */
static void plan_for(sim_world *world, uint64_t base_ns, sim_event_kind kind, sim_side *side) {
  uint64_t from = base_ns > world->now_ns ? base_ns : world->now_ns;
  sim_plan(world, from + sim_latency(world, side->conn.peer, rank_of(side)), kind, side->pair,
           index_of(side));
}

/* Whether two endpoints belong to the same communicator and hold the same secret. */
static bool same_secret(const coll_transport_env *a, const coll_transport_env *b) {
  return a->comm_id == b->comm_id && memcmp(a->secret, b->secret, COLL_SECRET_BYTES) == 0;
}

/* Opens one end. */
void sim_side_open(sim_side *side, coll_endpoint *ep) {
  sim_world *world = ep->world;
  sim_side *mate = sim_side_mate(side);
  int peer = rank_of(mate);
  side->conn = (coll_conn){ep->ops, peer, side->pair->channel};
  side->ep = ep;
  side->state = SIM_OPEN;
  side->credits = ep->env->slot_count;
  side->pair->refs++;
  side->next = ep->sides;
  side->prev = NULL;
  if (ep->sides)
    ep->sides->prev = side;
  ep->sides = side;
  if (side->pair->cut || world->fate[peer] == SIM_KILLED) {
    plan_for(world, world->now_ns + world->config.lost_ns, SIM_EV_LOST, side);
  } else if (mate->state == SIM_CLOSED || world->left[peer]) {
    plan_for(world, 0, SIM_EV_CLOSED, side);
  } else if (mate->state == SIM_OPEN && !side->pair->stalled) {
    side->pair->refused = !same_secret(ep->env, mate->ep->env);
    plan_for(world, 0, SIM_EV_READY, side);
    plan_for(world, 0, SIM_EV_READY, mate);
  }
}

/* Closes one end: what was sent is read now and arrives later. */
void sim_side_close(sim_side *side) {
  sim_world *world = side->ep->world;
  sim_side *mate = sim_side_mate(side);
  while (side->unread)
    read_one(side);
  if (side->prev)
    side->prev->next = side->next;
  else
    side->ep->sides = side->next;
  if (side->next)
    side->next->prev = side->prev;
  COLLI_ASSERT(side->state == SIM_OPEN);
  side->state = SIM_CLOSED;
  bool heard = !side->pair->stalled && !side->pair->cut && world->fate[rank_of(side)] != SIM_KILLED;
  if (mate->state == SIM_OPEN && heard)
    plan_for(world, side->arrive_ns, SIM_EV_CLOSED, mate);
  sim_pair_put(world, side->pair);
}

/* Drops the messages of a side that have not arrived. */
static void drop_coming(sim_side *side) {
  sim_msg **at = &side->head;
  while (*at != side->coming)
    at = &(*at)->next;
  while (*at) {
    sim_msg *msg = *at;
    *at = msg->next;
    sim_msg_free(msg);
  }
  side->coming = side->unread = NULL;
  side->tail = NULL;
  for (sim_msg *msg = side->head; msg; msg = msg->next)
    side->tail = msg;
}

/* Tells all ranks that are connected to `rank` or wait to be. */
static void tell_all(sim_world *world, int rank, bool died) {
  for (size_t b = 0; b < SIM_PAIR_BUCKETS; b++) {
    for (sim_pair *pair = world->buckets[b]; pair; pair = pair->next) {
      if (pair->rank[0] != rank && pair->rank[1] != rank)
        continue;
      sim_side *side = &pair->side[pair->rank[1] == rank];
      sim_side *mate = sim_side_mate(side);
      if (died) {
        drop_coming(side);
        end_side(side, COLL_ERR_INTERNAL, "a rank that is dead by plan was called");
      }
      if (mate->state == SIM_OPEN && died)
        plan_for(world, world->now_ns + world->config.lost_ns, SIM_EV_LOST, mate);
      else if (mate->state == SIM_OPEN && side->state == SIM_ABSENT)
        plan_for(world, 0, SIM_EV_CLOSED, mate);
    }
  }
}

/* A rank died. */
void sim_rank_die(sim_world *world, int rank) {
  tell_all(world, rank, true);
}

/* A rank has closed its endpoint. */
void sim_rank_leave(sim_world *world, int rank) {
  world->left[rank] = true;
  if (world->fate[rank] != SIM_KILLED)
    tell_all(world, rank, false);
}

/* The link between two ranks breaks, or falls silent. */
void sim_link_break(sim_world *world, const sim_fault *fault) {
  int low = fault->rank < fault->peer ? fault->rank : fault->peer;
  int high = fault->rank + fault->peer - low;
  for (size_t b = 0; b < SIM_PAIR_BUCKETS; b++) {
    for (sim_pair *pair = world->buckets[b]; pair; pair = pair->next) {
      if (pair->rank[0] != low || pair->rank[1] != high)
        continue;
      if (fault->kind == SIM_STALL) {
        pair->stalled = true;
        continue;
      }
      pair->cut = true;
      for (int i = 0; i < 2; i++) {
        drop_coming(&pair->side[i]);
        if (pair->side[i].state == SIM_OPEN)
          plan_for(world, world->now_ns + world->config.lost_ns, SIM_EV_LOST, &pair->side[i]);
      }
    }
  }
}
