/* sim_internal.h: what the simulator's files share. */
#ifndef COLLI_TRANSPORTS_SIM_PRIVATE_H
#define COLLI_TRANSPORTS_SIM_PRIVATE_H

#include "libcoll/base/prng.h"
#include "transports/sim/sim.h"

#define SIM_PAIR_BUCKETS 4096 /* a power of two */
#define SIM_SLOT_ALIGN   64

/* A message from send() until the receiver has taken it. */
typedef struct sim_msg {
  struct sim_msg *next;
  const void *borrowed; /* the sender's buffer, not read yet; or NULL */
  uint64_t number;      /* on its side, from 1 */
  coll_tag tag;
  size_t bytes;
  _Alignas(SIM_SLOT_ALIGN) char payload[];
} sim_msg;

typedef enum sim_state { SIM_ABSENT, SIM_OPEN, SIM_CLOSED } sim_state;

/* One end of a connection; its queue holds what it sends. */
typedef struct sim_side {
  coll_conn conn;
  struct sim_pair *pair;
  coll_endpoint *ep;
  struct sim_side *next, *prev; /* among the endpoint's */
  sim_state state;
  bool ready;       /* both ends are there and know each other */
  bool peer_closed; /* the other end left in good order */
  bool receiving;   /* a recv() has begun to fill recv_buf */
  coll_status status;
  const char *why;
  sim_msg *head, *tail; /* sent and not yet received, oldest first */
  sim_msg *coming;      /* the first that has not arrived */
  sim_msg *unread;      /* the first whose borrowed buffer has not been read */
  sim_msg *slot;        /* acquired, not committed */
  unsigned credits;
  uint64_t taken;
  uint64_t free_ns;   /* when the line is free again */
  uint64_t arrive_ns; /* of the latest message */
  uint64_t read_ns;   /* when the latest borrowed buffer is read */
  const void *recv_buf;
  size_t recv_bytes;
} sim_side;

typedef struct sim_pair {
  struct sim_pair *next; /* in its bucket */
  int rank[2];           /* the smaller one first */
  int channel;
  int refs; /* open sides and events */
  bool cut;
  bool stalled;
  bool refused; /* the ends hold different secrets */
  sim_side side[2];
} sim_pair;

typedef enum sim_event_kind {
  SIM_EV_READY,  /* a side learns that the other one is there */
  SIM_EV_READ,   /* a borrowed buffer is read */
  SIM_EV_ARRIVE, /* a message of this side reaches the other one */
  SIM_EV_CREDIT, /* this side may send one more */
  SIM_EV_CLOSED, /* this side learns that the other one closed */
  SIM_EV_LOST,   /* this side learns that the other one is dead */
  SIM_EV_RETRY,  /* nothing; makes a rank look again */
  SIM_EV_FAULT   /* number `side` of the plan */
} sim_event_kind;

typedef struct sim_event {
  uint64_t at_ns;
  uint64_t order; /* breaks ties */
  sim_pair *pair;
  int16_t kind;
  int16_t side;
} sim_event;

struct coll_endpoint {
  sim_world *world;
  const coll_transport_env *env;
  const coll_transport_ops *ops;
  sim_side *sides;
  bool touched; /* since the last progress() */
};

struct sim_world {
  sim_config config;
  sim_fault *faults;
  bool *spent; /* one for each fault: a CORRUPT that has struck */
  uint64_t now_ns;
  uint64_t order;
  uint64_t delivered;
  colli_prng network;
  coll_endpoint **endpoints;
  uint64_t *port_ns; /* when each rank's port is free again, with config.link */
  sim_fate *fate;
  bool *left;   /* closed its endpoint */
  int *touched; /* ring of ranks */
  bool *is_touched;
  int touched_first, touched_count;
  sim_event *heap;
  size_t nevents, capacity;
  bool out_of_memory; /* an event was lost: every call fails from now on */
  sim_pair *buckets[SIM_PAIR_BUCKETS];
};

/* ---- sim_event.c ----------------------------------------------------------------------------- */

/* Plans an event; a reference to the pair goes with it. */
void sim_plan(sim_world *world, uint64_t at_ns, sim_event_kind kind, sim_pair *pair, int side);

/* Takes the earliest event out of the queue, which is not empty. */
sim_event sim_event_take(sim_world *world);

/* Notes that something happened to a rank. */
void sim_touch(sim_world *world, int rank);

/* True with the given probability. */
bool sim_chance(sim_world *world, unsigned percent);

/* What the way between two ranks costs. */
sim_link sim_link_of(const sim_world *world, int from, int to);

/* How long a message between two ranks takes, not counting its bytes. */
uint64_t sim_latency(sim_world *world, int from, int to);

/* Damages a message if the plan says so. */
void sim_corrupt(sim_world *world, int from, sim_msg *msg);

/* ---- sim_pair.c ------------------------------------------------------------------------------ */

/* The pair of two ranks on a channel, made if it is new; NULL: out of memory. */
sim_pair *sim_pair_get(sim_world *world, int a, int b, int channel);

/* Gives back one reference. */
void sim_pair_put(sim_world *world, sim_pair *pair);

/* Lets an event happen to a side. */
void sim_side_event(sim_world *world, sim_pair *pair, int side, sim_event_kind kind);

/* The other end. */
sim_side *sim_side_mate(sim_side *side);

/* Sends a message: plans its reading and its arrival. */
void sim_side_post(sim_side *side, sim_msg *msg);

/* Takes the first message off the queue of `side` (its mate has received it). */
void sim_side_take(sim_side *side);

/* Opens and closes one end. */
void sim_side_open(sim_side *side, coll_endpoint *ep);
void sim_side_close(sim_side *side);

/* A rank died: what it sent and has not arrived is lost, and its peers will learn of it. */
void sim_rank_die(sim_world *world, int rank);

/* A rank has closed its endpoint: ranks that wait for a connection to it will learn of that. */
void sim_rank_leave(sim_world *world, int rank);

/* The link between two ranks breaks, or falls silent. */
void sim_link_break(sim_world *world, const sim_fault *fault);

/* Frees a message; NULL is fine. */
void sim_msg_free(sim_msg *msg);

#endif
