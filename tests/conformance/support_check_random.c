/* support_check_random.c: a long random mix of everything, from a seed that is printed. */
#include <stdlib.h>
#include <string.h>

#include "sanitized.h"
#include "tests/conformance/support_world.h"

#define RANKS    3
#define CHANNELS 2
#define MESSAGES (SANITIZED ? 100 : 400) /* each way on each connection */
#define MAX_OPEN 64                      /* sends that may be pending at once */

/* One direction of a connection. */
typedef struct flow {
  conf_end *from, *to;
  uint64_t seed;
  int sent, received;
  char *open[MAX_OPEN]; /* pending buffers, by message number */
  uint64_t ticket[MAX_OPEN];
  int first_open;
  bool receiving; /* recv() said AGAIN: the next call must be the same */
  char *in;
} flow;

/* Size of the i-th message of a flow: mostly small, sometimes whole slots. */
static size_t size_of(const conf_world *world, const flow *f, int i) {
  colli_prng prng = {f->seed + (uint64_t)i};
  switch (colli_prng_below(&prng, 5)) {
  case 0:
    return 0;
  case 1:
    return colli_prng_below(&prng, 64);
  case 2:
    return world->slot_bytes;
  default:
    return colli_prng_below(&prng, world->slot_bytes + 1);
  }
}

/* Forgets buffers that are not in use any more, after spoiling them. */
static void reap(conf_world *world, flow *f) {
  uint64_t count = 0;
  cr_assert_eq(f->from->conn->ops->sent(f->from->conn, &count), COLL_OK);
  while (f->first_open < f->sent && f->ticket[f->first_open % MAX_OPEN] <= count) {
    int i = f->first_open++;
    if (f->open[i % MAX_OPEN])
      memset(f->open[i % MAX_OPEN], 0xee, size_of(world, f, i));
    free(f->open[i % MAX_OPEN]);
    f->open[i % MAX_OPEN] = NULL;
  }
}

/* Tries to send the next message in a random form. */
static void send_next(conf_world *world, flow *f, colli_prng *prng) {
  reap(world, f);
  if (f->sent == MESSAGES || f->sent - f->first_open == MAX_OPEN)
    return;
  size_t bytes = size_of(world, f, f->sent);
  uint64_t number = f->seed + (uint64_t)f->sent;
  char *buf = malloc(bytes ? bytes : 1);
  cr_assert_not_null(buf);
  data_fill_bytes(buf, bytes, number);
  conf_send_form form = colli_prng_below(prng, 2) ? CONF_SEND : CONF_SLOT;
  int status = conf_try_send(f->from, form, number, buf, bytes);
  cr_assert_leq(status, 0, "send: %d", status);
  if (status != COLL_T_PENDING) {
    memset(buf, 0xee, bytes);
    free(buf);
    buf = NULL;
  }
  if (status == COLL_T_AGAIN)
    return;
  f->open[f->sent % MAX_OPEN] = buf;
  f->ticket[f->sent % MAX_OPEN] = f->from->posted;
  f->sent++;
}

/* Tries to receive the next message in a random form. */
static void receive_next(conf_world *world, flow *f, colli_prng *prng) {
  if (f->received == MESSAGES)
    return;
  size_t bytes = size_of(world, f, f->received);
  if (!f->in)
    f->in = malloc(bytes ? bytes : 1);
  cr_assert_not_null(f->in);
  conf_recv_form form =
      f->receiving ? CONF_RECV : (conf_recv_form)colli_prng_below(prng, CONF_LOOK + 1);
  int status = conf_try_recv(f->to, form, f->seed + (uint64_t)f->received, f->in, bytes);
  cr_assert_leq(status, 0, "receive: %d", status);
  f->receiving = status == COLL_T_AGAIN && form == CONF_RECV;
  if (status == COLL_T_AGAIN)
    return;
  free(f->in);
  f->in = NULL;
  f->received++;
}

uint64_t conf_seed(void) {
  const char *text = getenv("CONFORMANCE_SEED");
  uint64_t seed = text ? strtoull(text, NULL, 0) : conf_real_ns();
  cr_log_info("to repeat: CONFORMANCE_SEED=%llu", (unsigned long long)seed);
  return seed;
}

void conf_random_traffic(const conf_transport *transport) {
  colli_prng prng = {conf_seed()};
  conf_world *world = conf_begin(transport, RANKS, -1);
  conf_end ends[RANKS][RANKS][CHANNELS];
  flow flows[RANKS * RANKS * CHANNELS];
  memset(flows, 0, sizeof(flows));
  int count = 0;
  for (int i = 0; i < RANKS; i++)
    for (int j = i + 1; j < RANKS; j++)
      for (int channel = 0; channel < CHANNELS; channel++) {
        conf_end *a = &ends[i][j][channel], *b = &ends[j][i][channel];
        *a = conf_connect(world, i, j, channel);
        *b = conf_connect(world, j, i, channel);
        flows[count++] = (flow){.from = a, .to = b, .seed = colli_prng_next(&prng) >> 8};
        flows[count++] = (flow){.from = b, .to = a, .seed = colli_prng_next(&prng) >> 8};
      }
  for (int left = count; left > 0;) {
    flow *f = &flows[colli_prng_below(&prng, (uint64_t)count)];
    for (uint64_t burst = colli_prng_below(&prng, 8); burst > 0; burst--)
      if (colli_prng_below(&prng, 2))
        send_next(world, f, &prng);
      else
        receive_next(world, f, &prng);
    if (colli_prng_below(&prng, 3) == 0)
      conf_round(world);
    left = 0;
    for (int i = 0; i < count; i++)
      left += flows[i].received < MESSAGES || flows[i].first_open < MESSAGES;
  }
  for (int i = 0; i < RANKS; i++)
    for (int j = 0; j < RANKS; j++)
      for (int channel = 0; channel < CHANNELS && i != j; channel++)
        conf_disconnect(&ends[i][j][channel]);
  for (int i = 0; i < RANKS; i++)
    cr_assert_eq(world->rank[i].failures, 0);
  conf_finish(world);
}
