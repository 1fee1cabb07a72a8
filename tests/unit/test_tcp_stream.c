/* test_tcp_stream.c: the framing of TCP, against a peer that writes arbitrary bytes. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "libcoll/base/prng.h"
#include "transports/stream/stream.h"

#define SLOT_BYTES 4096u

/* A stream and the bare socket at its other end. */
static int open_stream(colli_stream *stream) {
  int fds[2];
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds), 0);
  cr_assert(colli_stream_init(stream, fds[0], SLOT_BYTES, 4));
  return fds[1];
}

static void close_stream(colli_stream *stream, int peer) {
  close(stream->fd);
  close(peer);
  colli_stream_destroy(stream);
}

static void put(int fd, const void *bytes, size_t count) {
  cr_assert_eq(send(fd, bytes, count, MSG_NOSIGNAL), (ssize_t)count);
}

static int peek(colli_stream *stream, coll_tag *got, const void **buf, size_t *bytes) {
  return colli_stream_slot_peek(stream, got, buf, bytes);
}

/* Checks the result of a frame, with both ways to receive. */
static void expect_status(const colli_frame *frame, size_t bytes, coll_status status) {
  for (int form = 0; form < 2; form++) {
    colli_stream stream;
    int peer = open_stream(&stream);
    coll_tag got;
    size_t got_bytes;
    const void *slot;
    char buf[8];
    put(peer, frame, bytes);
    close(peer);
    peer = -1;
    for (int i = 0; i < 2; i++) /* and the same from then on */
      cr_assert_eq(form
                       ? colli_stream_recv(&stream, &frame->tag, buf, sizeof(buf), &got, &got_bytes)
                       : peek(&stream, &got, &slot, &got_bytes),
                   (int)status);
    cr_assert_not_null(stream.detail);
    close_stream(&stream, peer);
  }
}

Test(tcp_stream, hostile_frames) {
  colli_frame frame = {COLLI_FRAME_MAGIC + 1, 8, {{1, 2, 3}}};
  expect_status(&frame, sizeof(frame), COLL_ERR_PROTOCOL);
  frame.magic = COLLI_FRAME_MAGIC;
  frame.bytes = SLOT_BYTES + 1;
  expect_status(&frame, sizeof(frame), COLL_ERR_PROTOCOL);
  frame.bytes = UINT32_MAX;
  expect_status(&frame, sizeof(frame), COLL_ERR_PROTOCOL);
  frame.bytes = 8;
  expect_status(&frame, sizeof(frame), COLL_ERR_PEER_LOST); /* ends before the payload */
  expect_status(&frame, 5, COLL_ERR_PEER_LOST);             /* ends within the frame */
  expect_status(&frame, 0, COLL_ERR_PEER_LOST);
}

Test(tcp_stream, byte_by_byte) {
  colli_stream stream;
  int peer = open_stream(&stream);
  for (int form = 0; form < 2; form++) {
    char whole[sizeof(colli_frame) + 100], buf[100];
    colli_frame frame = {COLLI_FRAME_MAGIC, 100, {{1, 2, 3}}};
    memcpy(whole, &frame, sizeof(frame));
    for (int i = 0; i < 100; i++)
      whole[sizeof(frame) + (size_t)i] = (char)(i * 7);
    coll_tag got;
    size_t bytes;
    const void *slot = buf;
    for (size_t i = 0; i < sizeof(whole); i++) {
      put(peer, &whole[i], 1);
      int status = form ? colli_stream_recv(&stream, &frame.tag, buf, sizeof(buf), &got, &bytes)
                        : peek(&stream, &got, &slot, &bytes);
      cr_assert_eq(status, i + 1 == sizeof(whole) ? COLL_T_DONE : COLL_T_AGAIN);
    }
    cr_assert_eq(memcmp(slot, whole + sizeof(frame), sizeof(buf)), 0);
    if (!form)
      colli_stream_slot_release(&stream);
  }
  close_stream(&stream, peer);
}

Test(tcp_stream, peek_then_receive) {
  colli_stream stream;
  int peer = open_stream(&stream);
  char payload[3000], buf[3000];
  colli_frame frame = {COLLI_FRAME_MAGIC, sizeof(payload), {{1, 2, 3}}};
  memset(payload, 0x5a, sizeof(payload));
  coll_tag got;
  size_t bytes;
  const void *slot;
  for (int i = 0; i < 3; i++) { /* a part of it is in the slot when the caller calls recv() */
    put(peer, &frame, sizeof(frame));
    put(peer, payload, 1000);
    cr_assert_eq(peek(&stream, &got, &slot, &bytes), COLL_T_AGAIN);
    put(peer, payload + 1000, sizeof(payload) - 1000);
    cr_assert_eq(colli_stream_recv(&stream, &frame.tag, buf, sizeof(buf), &got, &bytes),
                 COLL_T_DONE);
    cr_assert_eq(memcmp(buf, payload, sizeof(buf)), 0);
  }
  close_stream(&stream, peer);
}

/* Random bytes, most of them after a valid frame, in random pieces. */
Test(tcp_stream, random_bytes) {
  for (uint64_t seed = 1; seed <= 2000; seed++) {
    colli_prng prng = {seed};
    colli_stream stream;
    int peer = open_stream(&stream), status = 0;
    uint8_t junk[6000];
    for (size_t i = 0; i < sizeof(junk); i++)
      junk[i] = (uint8_t)colli_prng_next(&prng);
    for (size_t at = 0; at + sizeof(colli_frame) < sizeof(junk) && seed % 8;) {
      colli_frame frame = {COLLI_FRAME_MAGIC, (uint32_t)colli_prng_below(&prng, 2000), {{0}}};
      memcpy(junk + at, &frame, sizeof(frame));
      at += sizeof(frame) + frame.bytes + colli_prng_below(&prng, 40) / 39;
    }
    for (size_t at = 0; at < sizeof(junk) && status <= 0;) {
      size_t part = 1 + colli_prng_below(&prng, sizeof(junk) - at);
      put(peer, junk + at, part);
      at += part;
      for (int i = 0; i < 20 && status <= 0; i++) {
        coll_tag got, expect = {{0}};
        size_t bytes;
        const void *slot;
        char buf[100];
        if (colli_prng_below(&prng, 50) == 0)
          colli_stream_buffer_input(&stream);
        if (colli_prng_below(&prng, 20) == 0) {
          status = colli_stream_recv(&stream, &expect, buf, sizeof(buf), &got, &bytes);
          if (status == COLL_T_AGAIN)
            break;
        } else if ((status = peek(&stream, &got, &slot, &bytes)) == COLL_T_DONE) {
          cr_assert_leq(bytes, SLOT_BYTES);
          colli_stream_slot_release(&stream);
        }
      }
      if (status == COLL_T_AGAIN && stream.frame_done && !stream.in_slot)
        break; /* a receive has begun: it must be repeated */
    }
    cr_assert(status <= 0 || status == COLL_ERR_PROTOCOL || status == COLL_ERR_MISMATCH,
              "seed %llu: %d", (unsigned long long)seed, status);
    close_stream(&stream, peer);
  }
}

/* Data in the outgoing ring survives adoption, even if the caller reuses its buffer. */
Test(tcp_stream, adopt) {
  colli_stream stream;
  int peer = open_stream(&stream), status;
  char *buf = malloc(SLOT_BYTES);
  uint64_t count, sent = 0;
  coll_tag tag = {{1, 2, 3}}, got;
  cr_assert_not_null(buf);
  memset(buf, 0x77, SLOT_BYTES);
  while ((status = colli_stream_send(&stream, &tag, buf, SLOT_BYTES)) != COLL_T_AGAIN) {
    cr_assert_leq(status, 0);
    sent++;
  }
  cr_assert_eq(colli_stream_sent(&stream, &count), COLL_OK);
  cr_assert_lt(count, sent, "nothing is pending");
  cr_assert(colli_stream_adopt(&stream));
  memset(buf, 0xee, SLOT_BYTES);
  colli_stream other;
  cr_assert(colli_stream_init(&other, peer, SLOT_BYTES, 4));
  for (uint64_t i = 0; i < sent; i++) {
    size_t bytes;
    while ((status = colli_stream_recv(&other, &tag, buf, SLOT_BYTES, &got, &bytes)) ==
           COLL_T_AGAIN)
      cr_assert_leq(colli_stream_flush(&stream), 0);
    cr_assert_eq(status, COLL_T_DONE);
    for (size_t j = 0; j < SLOT_BYTES; j++)
      cr_assert_eq(buf[j], 0x77);
  }
  free(buf);
  colli_stream_destroy(&other);
  close_stream(&stream, peer);
}
