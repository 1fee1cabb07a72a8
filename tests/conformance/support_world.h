/* support_world.h: a group of endpoints in one process, and how the checks drive it. */
#ifndef COLLI_TESTS_SUPPORT_WORLD_H
#define COLLI_TESTS_SUPPORT_WORLD_H

#include "data.h"
#include "libcoll/base/prng.h"
#include "tests/conformance/support_conformance.h"

#define CONF_MAX_RANKS 4

typedef struct conf_world conf_world;

/* One rank: its environment and endpoint, and what it was told of failures. */
typedef struct conf_rank {
  coll_transport_env env;
  conf_world *world;
  coll_endpoint *ep; /* NULL: closed */
  uint8_t blob[COLL_BLOB_BYTES];
  int failures;
  coll_transport_failure last;
} conf_rank;

struct conf_world {
  const conf_transport *transport;
  const coll_transport_ops *ops;
  int nranks;
  void *device;
  size_t slot_bytes;
  unsigned slot_count;
  uint64_t deadline_ns; /* real time at which the check has hung, if no message comes before */
  conf_rank rank[CONF_MAX_RANKS];
};

/* One end of a connection, and how many messages it has taken. */
typedef struct conf_end {
  conf_world *world;
  coll_conn *conn;
  uint64_t posted;
} conf_end;

typedef enum conf_send_form { CONF_SEND, CONF_SLOT } conf_send_form;
/* CONF_LOOK: what slot_peek() has shown is taken by recv(). */
typedef enum conf_recv_form { CONF_RECV, CONF_PEEK, CONF_LOOK } conf_recv_form;

/* Opens nranks endpoints; rank `traitor` (-1: none) has another secret. */
conf_world *conf_begin(const conf_transport *transport, int nranks, int traitor);

/* Closes what is open and frees all. */
void conf_finish(conf_world *world);

/* Closes one rank's endpoint, whose connections were disconnected. */
void conf_close(conf_world *world, int rank);

/* One round: each endpoint moves on, and time passes. Fails the test if it has hung. */
void conf_round(conf_world *world);

/* Many rounds, or a while of real time. */
void conf_rounds(conf_world *world);

conf_end conf_connect(conf_world *world, int rank, int peer, int channel);
void conf_disconnect(conf_end *end);

/* Connects two ranks, and sees to it that messages flow. */
void conf_pair(conf_world *world, int a, int b, int channel, conf_end *at_a, conf_end *at_b);

/* A tag that can be told from others by its number, as the payload can (data_fill_bytes). */
coll_tag conf_tag(uint64_t number);

/* One try to send or receive, as the data calls return it; conf_try_recv() checks what came. */
int conf_try_send(conf_end *from, conf_send_form form, uint64_t number, const void *buf,
                  size_t bytes);
int conf_try_recv(conf_end *to, conf_recv_form form, uint64_t number, void *buf, size_t bytes);

/* Whether all messages that `end` took have left the caller's memory. */
bool conf_all_sent(const conf_end *end);

/* Sends message `number` and receives it, driving everything meanwhile. */
void conf_exchange(conf_world *world, conf_end *from, conf_send_form send_form, conf_end *to,
                   conf_recv_form recv_form, uint64_t number, size_t bytes);

/* Receives message `number`, driving everything meanwhile. */
void conf_receive(conf_world *world, conf_end *to, conf_recv_form form, uint64_t number,
                  size_t bytes);

/* Receives until that fails, and returns the error. */
int conf_receive_error(conf_world *world, conf_end *to);

uint64_t conf_real_ns(void);

/* The seed of what is random: that of the clock, or the one in CONFORMANCE_SEED. */
uint64_t conf_seed(void);

#endif
