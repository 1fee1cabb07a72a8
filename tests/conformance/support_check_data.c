/* support_check_data.c: messages, their order, and how many of them a connection takes. */
#include <stdlib.h>
#include <string.h>

#include "tests/conformance/support_world.h"

/* Two ranks and a connection between them. */
typedef struct duo {
  conf_world *world;
  conf_end a, b; /* at rank 0, at rank 1 */
} duo;

static duo begin(const conf_transport *transport) {
  duo d = {.world = conf_begin(transport, 2, -1)};
  conf_pair(d.world, 0, 1, 0, &d.a, &d.b);
  return d;
}

static void end(duo *d) {
  cr_assert_eq(d->world->rank[0].failures + d->world->rank[1].failures, 0);
  conf_disconnect(&d->a);
  conf_disconnect(&d->b);
  conf_finish(d->world);
}

void conf_pairings(const conf_transport *transport) {
  duo d = begin(transport);
  size_t slot = d.world->slot_bytes;
  size_t sizes[] = {0,    1,    3,    8,    31,       32,       33,   64, 1000, 2047,
                    2048, 2049, 4095, 4097, slot / 2, slot - 1, slot, 0,  slot, 5};
  uint64_t number = 10;
  for (int round = 0; round < 2; round++)
    for (int form = 0; form < 6; form++)
      for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
        size_t bytes = sizes[i] < slot ? sizes[i] : slot;
        conf_send_form out = form % 2 ? CONF_SLOT : CONF_SEND;
        conf_recv_form in = (conf_recv_form)(form / 2);
        conf_exchange(d.world, &d.a, out, &d.b, in, number++, bytes);
        conf_exchange(d.world, &d.b, out, &d.a, in, number++, bytes);
      }
  end(&d);
}

void conf_peek_is_stable(const conf_transport *transport) {
  duo d = begin(transport);
  char text[3][100];
  for (uint64_t i = 0; i < 3; i++) {
    data_fill_bytes(text[i], sizeof(text[i]), i + 10);
    while (conf_try_send(&d.a, CONF_SLOT, i + 10, text[i], sizeof(text[i])) != COLL_T_DONE)
      conf_round(d.world);
  }
  for (uint64_t i = 0; i < 3; i++) {
    coll_tag got, again;
    const void *first, *second;
    size_t bytes;
    while (d.b.conn->ops->slot_peek(d.b.conn, &got, &first, &bytes) != COLL_T_DONE)
      conf_round(d.world);
    conf_rounds(d.world); /* the others arrive; this one must not move */
    while (d.b.conn->ops->slot_peek(d.b.conn, &again, &second, &bytes) != COLL_T_DONE)
      conf_round(d.world);
    cr_assert_eq(first, second);
    cr_assert_eq(got.word[0], i + 10);
    cr_assert_eq(again.word[0], i + 10);
    cr_assert(data_are_bytes(first, bytes, i + 10));
    cr_assert_eq(d.b.conn->ops->slot_release(d.b.conn), COLL_T_DONE);
  }
  end(&d);
}

/* Sends slot_count messages of slot_bytes while only the sender's endpoint moves. */
static char *fill_connection(conf_world *world, int rank, conf_end *from, conf_send_form form,
                             uint64_t number) {
  char *buf = malloc(world->slot_count * world->slot_bytes);
  cr_assert_not_null(buf);
  for (unsigned i = 0; i < world->slot_count; i++) {
    char *part = buf + i * world->slot_bytes;
    data_fill_bytes(part, world->slot_bytes, number + i);
    int status = COLL_T_AGAIN;
    for (int try = 0; try < 1000 && status == COLL_T_AGAIN; try++) {
      status = conf_try_send(from, form, number + i, part, world->slot_bytes);
      world->ops->progress(world->rank[rank].ep);
      if (world->transport->advance)
        world->transport->advance(world->device);
    }
    cr_assert(status == COLL_T_DONE || status == COLL_T_PENDING,
              "message %u of %u was not taken: %d", i, world->slot_count, status);
  }
  return buf;
}

void conf_slots_without_receiver(const conf_transport *transport) {
  for (int form = 0; form < 4; form++) {
    duo d = begin(transport);
    char *buf = fill_connection(d.world, 0, &d.a, form & 1 ? CONF_SLOT : CONF_SEND, 100);
    for (unsigned i = 0; i < d.world->slot_count; i++)
      conf_receive(d.world, &d.b, form & 2 ? CONF_PEEK : CONF_RECV, 100 + i, d.world->slot_bytes);
    while (!conf_all_sent(&d.a))
      conf_round(d.world);
    free(buf);
    end(&d);
  }
}

void conf_sent_without_receive(const conf_transport *transport) {
  duo d = begin(transport);
  char *one = fill_connection(d.world, 0, &d.a, CONF_SEND, 100);
  char *other = fill_connection(d.world, 1, &d.b, CONF_SEND, 200);
  /* Both wait for their sends, and neither receives: a connection holds that much. */
  while (!conf_all_sent(&d.a) || !conf_all_sent(&d.b))
    conf_round(d.world);
  memset(one, 0xee, d.world->slot_count * d.world->slot_bytes);
  memset(other, 0xee, d.world->slot_count * d.world->slot_bytes);
  free(one);
  free(other);
  for (unsigned i = 0; i < d.world->slot_count; i++) {
    conf_receive(d.world, &d.b, i % 2 ? CONF_RECV : CONF_PEEK, 100 + i, d.world->slot_bytes);
    conf_receive(d.world, &d.a, i % 2 ? CONF_RECV : CONF_PEEK, 200 + i, d.world->slot_bytes);
  }
  conf_exchange(d.world, &d.a, CONF_SEND, &d.b, CONF_RECV, 300, d.world->slot_bytes);
  end(&d);
}

/* Sends until the connection refuses, as it must after a bounded number; returns that number. */
static uint64_t send_until_full(conf_world *world, conf_end *from, uint64_t number,
                                const char *buf) {
  /* What a transport keeps, and what the kernel holds: for TCP up to 32 MiB a socket, of which a
   * connection over rails has up to 8. */
  uint64_t most = (512ull << 20) / world->slot_bytes + world->slot_count, taken = 0;
  int refused = 0;
  while (refused < 200) {
    int status =
        conf_try_send(from, taken % 2 ? CONF_SLOT : CONF_SEND, number, buf, world->slot_bytes);
    cr_assert_leq(status, 0, "send: %d", status);
    refused = status == COLL_T_AGAIN ? refused + 1 : 0;
    taken += status != COLL_T_AGAIN;
    cr_assert_lt(taken, most, "no back-pressure after %llu messages", (unsigned long long)taken);
    conf_round(world);
  }
  cr_assert_geq(taken, world->slot_count);
  return taken;
}

void conf_flow_control(const conf_transport *transport) {
  duo d = begin(transport);
  char *buf = malloc(d.world->slot_bytes);
  cr_assert_not_null(buf);
  data_fill_bytes(buf, d.world->slot_bytes, 77);
  for (int round = 0; round < 2; round++) {
    uint64_t taken = send_until_full(d.world, &d.a, 77, buf);
    for (uint64_t i = 0; i < taken; i++)
      conf_receive(d.world, &d.b, i % 3 ? CONF_RECV : CONF_PEEK, 77, d.world->slot_bytes);
    while (!conf_all_sent(&d.a))
      conf_round(d.world);
  }
  conf_exchange(d.world, &d.a, CONF_SEND, &d.b, CONF_RECV, 78, 1);
  free(buf);
  end(&d);
}

void conf_buffer_in_use(const conf_transport *transport) {
  enum { MESSAGES = 200 };
  duo d = begin(transport);
  char *buf[MESSAGES];
  uint64_t ticket[MESSAGES];
  uint64_t before = 0;
  int sent = 0, received = 0, freed = 0;
  char *in = malloc(d.world->slot_bytes);
  cr_assert_not_null(in);
  while (received < MESSAGES || freed < MESSAGES) {
    if (sent < MESSAGES) {
      size_t bytes = d.world->slot_bytes - (size_t)sent;
      buf[sent] = malloc(bytes);
      cr_assert_not_null(buf[sent]);
      data_fill_bytes(buf[sent], bytes, 100 + (uint64_t)sent);
      int status = conf_try_send(&d.a, CONF_SEND, 100 + (uint64_t)sent, buf[sent], bytes);
      cr_assert_leq(status, 0);
      if (status != COLL_T_PENDING) { /* not in use: may be changed and freed */
        memset(buf[sent], 0xee, bytes);
        free(buf[sent]);
        buf[sent] = NULL;
      }
      ticket[sent] = d.a.posted;
      sent += status != COLL_T_AGAIN;
    }
    uint64_t count = 0;
    cr_assert_eq(d.a.conn->ops->sent(d.a.conn, &count), COLL_OK);
    cr_assert(count >= before && count <= d.a.posted, "%llu of %llu sent, before it was %llu",
              (unsigned long long)count, (unsigned long long)d.a.posted,
              (unsigned long long)before);
    before = count;
    for (; freed < sent && ticket[freed] <= count; freed++) {
      if (buf[freed])
        memset(buf[freed], 0xee, d.world->slot_bytes - (size_t)freed);
      free(buf[freed]);
    }
    if (received < MESSAGES && (sent == MESSAGES || received + 50 < sent)) {
      conf_recv_form form = received % 2 ? CONF_RECV : CONF_PEEK;
      received += conf_try_recv(&d.b, form, 100 + (uint64_t)received, in,
                                d.world->slot_bytes - (size_t)received) == COLL_T_DONE;
    } else if (received < sent) {
      received +=
          conf_try_recv(&d.b, received % 2 ? CONF_RECV : CONF_PEEK, 100 + (uint64_t)received, in,
                        d.world->slot_bytes - (size_t)received) == COLL_T_DONE;
    }
    conf_round(d.world);
  }
  free(in);
  end(&d);
}

/* Sends messages of `bytes` bytes, until the connection is full or there are many; their number.
 * None needs a further call once send() has returned. */
static uint64_t send_copies(conf_end *from, uint64_t number, size_t bytes) {
  char *buf = bytes ? malloc(bytes) : NULL;
  cr_assert(buf || !bytes);
  uint64_t taken = 0;
  for (int refused = 0; refused < 20 && taken < 200;) {
    if (bytes)
      data_fill_bytes(buf, bytes, number + taken);
    int status = conf_try_send(from, CONF_SEND, number + taken, buf, bytes);
    cr_assert(status == COLL_T_DONE || status == COLL_T_AGAIN, "send of %zu bytes: %d", bytes,
              status);
    cr_assert(conf_all_sent(from), "a send of %zu bytes needs a further call", bytes);
    taken += status == COLL_T_DONE;
    refused = status == COLL_T_DONE ? 0 : refused + 1;
    if (bytes)
      memset(buf, 0xee, bytes);
  }
  free(buf);
  return taken;
}

/* What a transport with COLL_CAP_SEND_COPIES promises. */
void conf_send_copies(const conf_transport *transport) {
  if (!(transport->ops->caps & COLL_CAP_SEND_COPIES))
    return;
  duo d = begin(transport);
  const size_t slot = d.world->slot_bytes;
  const size_t sizes[] = {0, 1, 8, 32, 33, slot / 2, slot - 1, slot};
  uint64_t number = 100;
  for (size_t i = 0; i < sizeof(sizes) / sizeof(*sizes); i++) {
    uint64_t end_of_size = number + send_copies(&d.a, number, sizes[i]);
    cr_assert_geq(end_of_size - number, d.world->slot_count);
    for (; number < end_of_size; number++)
      conf_receive(d.world, &d.b, number % 2 ? CONF_RECV : CONF_PEEK, number, sizes[i]);
  }
  end(&d);
}

void conf_channels_and_peers(const conf_transport *transport) {
  conf_world *world = conf_begin(transport, 4, -1);
  conf_end ends[4][4][2]; /* at rank, to peer, on channel */
  for (int i = 0; i < 4; i++)
    for (int j = i + 1; j < 4; j++)
      for (int channel = 0; channel < 2; channel++)
        conf_pair(world, i, j, channel, &ends[i][j][channel], &ends[j][i][channel]);
  char *buf = malloc(world->slot_bytes);
  cr_assert_not_null(buf);
  data_fill_bytes(buf, world->slot_bytes, 5);
  uint64_t stuck = send_until_full(world, &ends[0][1][0], 5, buf); /* must not hold up the others */
  uint64_t number = 10;
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < 4; i++)
      for (int j = 0; j < 4; j++)
        for (int channel = 0; channel < 2 && i != j; channel++, number++)
          if (i != 0 || j != 1 || channel != 0)
            conf_exchange(world, &ends[i][j][channel], number % 2 ? CONF_SEND : CONF_SLOT,
                          &ends[j][i][channel], number % 3 ? CONF_RECV : CONF_PEEK, number,
                          number * 97 % world->slot_bytes);
  for (uint64_t i = 0; i < stuck; i++)
    conf_receive(world, &ends[1][0][0], CONF_RECV, 5, world->slot_bytes);
  free(buf);
  for (int i = 0; i < 4; i++)
    for (int j = 0; j < 4; j++)
      for (int channel = 0; channel < 2 && i != j; channel++)
        conf_disconnect(&ends[i][j][channel]);
  conf_finish(world);
}

/* Sends `sent` bytes and expects `expected` bytes with the tag of message `number`. */
static void expect_mismatch(const conf_transport *transport, size_t sent, size_t expected,
                            uint64_t number) {
  duo d = begin(transport);
  conf_end a, b;
  conf_pair(d.world, 0, 1, 1, &a, &b);
  char *out = calloc(1, sent + 1), *in = calloc(1, expected + 1);
  cr_assert(out && in);
  while (conf_try_send(&d.a, CONF_SEND, 10, out, sent) == COLL_T_AGAIN)
    conf_round(d.world);
  coll_tag expect = conf_tag(number), came = conf_tag(10), got = {{0}};
  size_t got_bytes = 0;
  int status;
  while ((status = d.b.conn->ops->recv(d.b.conn, &expect, in, expected, &got, &got_bytes)) ==
         COLL_T_AGAIN)
    conf_round(d.world);
  cr_assert_eq(status, COLL_ERR_MISMATCH, "%zu bytes for %zu: %d", sent, expected, status);
  cr_assert_eq(memcmp(&got, &came, sizeof(got)), 0);
  cr_assert_eq(got_bytes, sent);
  conf_exchange(d.world, &a, CONF_SEND, &b, CONF_RECV, 11, 100);
  conf_exchange(d.world, &d.b, CONF_SEND, &d.a, CONF_RECV, 12, 100);
  free(in);
  conf_disconnect(&a);
  conf_disconnect(&b);
  end(&d); /* env->fail() was not called */
  free(out);
}

void conf_mismatch_tag(const conf_transport *transport) {
  size_t slot = transport->slot_bytes ? transport->slot_bytes : 8192;
  expect_mismatch(transport, 0, 0, 11);
  expect_mismatch(transport, 100, 100, 11);
  expect_mismatch(transport, slot, slot, 11);
}

void conf_mismatch_size(const conf_transport *transport) {
  size_t slot = transport->slot_bytes ? transport->slot_bytes : 8192;
  expect_mismatch(transport, 100, 101, 10);
  expect_mismatch(transport, 101, 100, 10);
  expect_mismatch(transport, slot, 100, 10);
  expect_mismatch(transport, 100, slot, 10);
  expect_mismatch(transport, slot - 1, slot, 10);
  expect_mismatch(transport, 0, 1, 10);
  expect_mismatch(transport, 1, 0, 10);
}
