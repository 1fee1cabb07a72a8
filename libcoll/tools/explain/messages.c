/*
 * messages.c: parts across groups that are messages from and to GPU memory (GPUDirect RDMA), for
 * coll_explain: into which messages, and the time that assumptions give them. The rule is that of
 * libcoll/stream/levels_messages.h.
 */
#include <stdio.h>

#include "explain.h"
#include "libcoll/comm/levels.h"

/* A part in numbers; elements. */
typedef struct messages {
  bool chain, pieces; /* a broadcast; what has a piece for each group at first */
  size_t room, least; /* least: bytes */
  size_t all, block;  /* of the vector; of the longest block, or of a broadcast all */
  size_t each, times; /* of a block in a round, and rounds; or of a piece, and pieces */
  size_t steps;       /* of a stream, each of messages that go together */
  double bytes;       /* that the busiest rank sends, or receives */
} messages;

/* Finds what does not depend on whether the part is made of messages. */
static messages describe(const question *part) {
  const size_t slot = explain_param(COLLI_PARAM_SLOT_BYTES), elem = part->type_bytes;
  messages m = {.chain = part->coll == COLLI_BROADCAST,
                .pieces = part->coll == COLLI_ALLREDUCE || part->coll == COLLI_REDUCE,
                .least = slot < COLLI_LEND_LEAST ? COLLI_LEND_LEAST : slot + 1,
                .all = part->bytes / elem};
  m.room =
      colli_levels_message_room(explain_param(COLLI_PARAM_GPU_SLOT_BYTES), part->net.nranks, elem);
  m.block = m.all;
  if (m.pieces)
    m.block -= colli_levels_piece_at(m.all, part->net.nranks - 1, part->net.nranks);
  return m;
}

bool explain_are_messages(const question *part) {
  const messages m = describe(part);
  return part->rdma && !part->captured &&
         colli_levels_are_messages(part->coll, m.block, m.room, part->type_bytes, m.least);
}

/* Counts them. */
static void count(const question *part, messages *m) {
  const size_t n = (size_t)part->net.nranks, elem = part->type_bytes;
  m->each = m->chain ? colli_levels_in_chain(m->all, part->net.nranks, elem, m->least)
                     : colli_levels_in_round(part->coll, m->block, m->room, elem, m->least);
  m->times = (m->block + m->each - 1) / m->each;
  m->steps = m->chain ? m->times + n - 2 : m->pieces ? 2 * m->times : m->times;
  m->bytes = (double)(m->chain    ? m->all
                      : m->pieces ? m->all - m->block + (n - 1) * m->block
                                  : (n - 1) * m->all) *
             (double)elem;
}

/* What they cost. */
typedef struct messages_cost {
  double operations, steps, sent, folded;
} messages_cost;

static messages_cost cost_of(const question *part, const messages *m) {
  const double elem = (double)part->type_bytes, n = part->net.nranks, steps = (double)m->steps;
  const double folds = colli_reduces(part->coll) ? (double)m->times : 0;
  return (messages_cost){
      .operations = steps * EXPLAIN_GATE_OPERATIONS + folds,
      .steps = steps,
      /* The last rank of a chain gets its first piece when the others have passed it on. */
      .sent = m->bytes + (m->chain ? (n - 2) * (double)m->each * elem : 0),
      .folded = folds > 0 ? (n + 1) * (double)m->block * elem : 0};
}

double explain_messages_price(const question *part) {
  const gpu_costs *c = &part->costs;
  messages m = describe(part);
  count(part, &m);
  const messages_cost cost = cost_of(part, &m);
  return cost.operations * c->launch_us + cost.steps * c->host_us +
         cost.sent / c->network_gb / 1e3 + cost.folded / c->memory_gb / 1e3;
}

/* Prints the time. */
static void print_time(const question *part, const messages *m, double us) {
  const gpu_costs *c = &part->costs;
  const messages_cost cost = cost_of(part, m);
  char text[32];
  explain_time(text, us * 1e3);
  puts("time = operations * launch + steps * host + bytes / network + bytes that kernels fold / "
       "memory");
  printf("  = %.0f * %g us + %.0f * %g us + %.0f B / %g GB/s + %.0f B / %g GB/s\n", cost.operations,
         c->launch_us, cost.steps, c->host_us, cost.sent, c->network_gb, cost.folded, c->memory_gb);
  printf("  = %s under these assumptions\n", text);
}

double explain_messages(const question *part) {
  const double us = explain_messages_price(part);
  messages m = describe(part);
  count(part, &m);
  printf(
      "%s of %zu bytes%s, %d groups,\nby messages that the network's devices move from and to GPU "
      "memory (GPUDirect RDMA)\n",
      part->name, part->bytes, colli_exact(part->coll) ? " a block" : "", part->net.nranks);
  printf(
      "%zu %s%s of up to %zu bytes%s, %zu step%s; the busiest rank sends or receives %.0f bytes\n",
      m.times, m.chain ? "piece" : "round", m.times == 1 ? "" : "s", m.each * part->type_bytes,
      m.chain ? " along the chain of groups" : " a block", m.steps, m.steps == 1 ? "" : "s",
      m.bytes);
  printf("\nassumed%s: launch %g us, host %g us, network %g GB/s, memory %g GB/s\n",
         part->assumes ? " as asked" : " (--assume changes it)", part->costs.launch_us,
         part->costs.host_us, part->costs.network_gb, part->costs.memory_gb);
  print_time(part, &m, us);
  return us;
}
