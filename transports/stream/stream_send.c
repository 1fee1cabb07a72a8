/* stream_send.c: the sending direction of a message stream. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "transports/stream/stream_internal.h"

#define FLUSH_MESSAGES 8u /* at most, in one system call */

/* The i-th waiting message. */
static colli_out *nth_waiting(const colli_stream *stream, unsigned i) {
  return &stream->out[(stream->out_first + i) % stream->slot_count];
}

/* sendmsg(), over TLS if there is. */
static ssize_t send_some(colli_stream *stream, const struct msghdr *msg) {
  if (__builtin_expect(stream->tls != NULL, 0))
    return colli_tls_send(stream->tls, msg->msg_iov, msg->msg_iovlen);
  return sendmsg(stream->fd, msg, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* The kernel has no buffers: returns 0 to try again, -1 to give up. */
static ssize_t lack_buffers(colli_stream *stream) {
  const uint64_t now_ns = colli_now_ns();
  if (stream->lacking_since_ns == 0)
    stream->lacking_since_ns = now_ns;
  if (now_ns - stream->lacking_since_ns < stream->patience_ns)
    return 0;
  colli_stream_fail(stream, &stream->send_status, COLL_ERR_SYSTEM, "sendmsg", ENOBUFS,
                    "the kernel of this host has had no buffers for sending for too long; see its "
                    "memory, and the limits net.ipv4.tcp_mem and tcp_wmem");
  if (stream->recv_status == COLL_OK) /* a receiver that waits for an answer must fail, too */
    stream->recv_status = stream->send_status;
  return -1;
}

/* Writes: bytes accepted, 0 if the kernel accepts nothing now, -1 after an error. */
static ssize_t write_some(colli_stream *stream, struct iovec *iov, size_t count) {
  struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
  for (;;) {
    ssize_t n = send_some(stream, &msg);
    if (n >= 0) {
      stream->lacking_since_ns = 0;
      stream->moved += (uint64_t)n;
      return n;
    }
    if (errno == EINTR)
      continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK)
      return 0;
    if (errno == EBADMSG) {
      colli_stream_fail_altered(stream, &stream->send_status);
      return -1;
    }
    if (errno == ENOBUFS)
      return lack_buffers(stream);
    bool lost = errno == ECONNRESET || errno == EPIPE || errno == ETIMEDOUT ||
                errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETRESET;
    colli_stream_fail(stream, &stream->send_status, lost ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM,
                      "sendmsg", errno,
                      lost ? "the connection broke while sending; see what happened to the peer"
                           : "sending failed");
    return -1;
  }
}

/* Removes the first waiting message. */
static void pop_waiting(colli_stream *stream) {
  COLLI_ASSERT(stream->out_count > 0 && stream->out_count <= stream->slot_count);
  const colli_out *first = nth_waiting(stream, 0);
  if (first->kind == COLLI_OUT_SLOT) {
    COLLI_ASSERT(stream->slot_used > 0 && stream->slot_used <= stream->slot_count);
    stream->slot_first = (stream->slot_first + 1) % stream->slot_count;
    stream->slot_used--;
  }
  stream->out_first = (stream->out_first + 1) % stream->slot_count;
  stream->out_count--;
  stream->out_done = 0;
}

/* Removes `bytes` written bytes from the waiting messages. */
static void advance_waiting(colli_stream *stream, size_t bytes) {
  while (bytes > 0) {
    size_t left = sizeof(colli_frame) + nth_waiting(stream, 0)->frame.bytes - stream->out_done;
    COLLI_ASSERT(left > 0);
    if (bytes < left) {
      stream->out_done += bytes;
      return;
    }
    bytes -= left;
    pop_waiting(stream);
  }
}

/* Sends waiting messages: COLL_T_DONE if none is left, COLL_T_AGAIN, or an error. */
int colli_stream_flush(colli_stream *stream) {
  while (stream->out_count > 0) {
    if (stream->send_status != COLL_OK)
      return (int)stream->send_status;
    struct iovec iov[2 * FLUSH_MESSAGES];
    size_t count = 0, total = 0, skip = stream->out_done;
    for (unsigned i = 0; i < stream->out_count && i < FLUSH_MESSAGES; i++) {
      colli_out *out = nth_waiting(stream, i);
      size_t of_frame = skip < sizeof(out->frame) ? skip : sizeof(out->frame);
      size_t of_payload = skip - of_frame;
      if (of_frame < sizeof(out->frame))
        iov[count++] =
            (struct iovec){(char *)&out->frame + of_frame, sizeof(out->frame) - of_frame};
      if (of_payload < out->frame.bytes)
        iov[count++] =
            (struct iovec){(void *)(out->payload + of_payload), out->frame.bytes - of_payload};
      total += sizeof(out->frame) + out->frame.bytes - skip;
      skip = 0;
    }
    ssize_t n = write_some(stream, iov, count);
    if (n < 0)
      return (int)stream->send_status;
    advance_waiting(stream, (size_t)n);
    if ((size_t)n < total)
      return COLL_T_AGAIN;
  }
  return COLL_T_DONE;
}

/* Appends a message, of which `done` bytes are written, to the waiting ones. */
static void append_waiting(colli_stream *stream, const colli_frame *frame, const void *payload,
                           size_t done, colli_out_kind kind) {
  COLLI_ASSERT(stream->out_count < stream->slot_count && done < sizeof(*frame) + frame->bytes);
  *nth_waiting(stream, stream->out_count) = (colli_out){*frame, payload, stream->accepted, kind};
  if (stream->out_count++ == 0)
    stream->out_done = done;
}

/* Writes a message at once if none is before it: bytes written, or -1. */
static ssize_t write_now(colli_stream *stream, colli_frame *frame, const void *payload) {
  if (stream->out_count > 0)
    return 0;
  struct iovec iov[2] = {{frame, sizeof(*frame)}, {(void *)payload, frame->bytes}};
  return write_some(stream, iov, frame->bytes ? 2 : 1);
}

int colli_stream_send(colli_stream *stream, const coll_tag *tag, const void *buf, size_t bytes) {
  if (stream->send_status != COLL_OK)
    return (int)stream->send_status;
  if (bytes > stream->slot_bytes)
    return colli_stream_fail(stream, &stream->send_status, COLL_ERR_INTERNAL, NULL, 0,
                             "cannot send a message larger than a slot");
  if (stream->out_count > 0 && colli_stream_flush(stream) > 0)
    return (int)stream->send_status;
  if (stream->out_count + stream->slot_acquired >= stream->slot_count)
    return COLL_T_AGAIN;
  colli_frame frame = {stream->out_magic, (uint32_t)bytes, *tag};
  ssize_t done = write_now(stream, &frame, buf);
  if (done < 0)
    return (int)stream->send_status;
  stream->accepted++;
  if ((size_t)done == sizeof(frame) + bytes)
    return COLL_T_DONE;
  append_waiting(stream, &frame, buf, (size_t)done, COLLI_OUT_USER);
  return COLL_T_PENDING;
}

int colli_stream_sent(colli_stream *stream, uint64_t *count) {
  if (stream->out_count > 0)
    colli_stream_flush(stream);
  *count = stream->out_count > 0 ? nth_waiting(stream, 0)->ticket - 1 : stream->accepted;
  return (int)stream->send_status;
}

int colli_stream_slot_acquire(colli_stream *stream, size_t bytes, void **buf) {
  if (stream->send_status != COLL_OK)
    return (int)stream->send_status;
  if (bytes > stream->slot_bytes)
    return colli_stream_fail(stream, &stream->send_status, COLL_ERR_INTERNAL, NULL, 0,
                             "cannot acquire more bytes than a slot has");
  if (stream->out_count > 0 && colli_stream_flush(stream) > 0)
    return (int)stream->send_status;
  size_t pitch = (stream->slot_bytes + COLLI_SLOT_ALIGN - 1) & ~(COLLI_SLOT_ALIGN - 1);
  if (!stream->slot_acquired) {
    if (stream->out_count >= stream->slot_count)
      return COLL_T_AGAIN;
    if (!colli_stream_alloc(&stream->slots, pitch * stream->slot_count))
      return colli_stream_fail(stream, &stream->send_status, COLL_ERR_NO_MEMORY, "malloc", ENOMEM,
                               "out of memory for outgoing slots; lower COLL_SLOT_BYTES");
  }
  stream->slot_acquired = true;
  *buf = stream->slots + pitch * ((stream->slot_first + stream->slot_used) % stream->slot_count);
  return COLL_T_DONE;
}

int colli_stream_slot_commit(colli_stream *stream, const coll_tag *tag, size_t bytes) {
  if (stream->send_status != COLL_OK)
    return (int)stream->send_status;
  size_t pitch = (stream->slot_bytes + COLLI_SLOT_ALIGN - 1) & ~(COLLI_SLOT_ALIGN - 1);
  char *slot =
      stream->slots + pitch * ((stream->slot_first + stream->slot_used) % stream->slot_count);
  COLLI_ASSERT(stream->slot_acquired && bytes <= stream->slot_bytes);
  colli_frame frame = {stream->out_magic, (uint32_t)bytes, *tag};
  stream->slot_acquired = false;
  ssize_t done = write_now(stream, &frame, slot);
  if (done < 0)
    return (int)stream->send_status;
  stream->accepted++;
  if ((size_t)done == sizeof(frame) + bytes)
    return COLL_T_DONE; /* the next message uses the same slot, which is in the cache */
  append_waiting(stream, &frame, slot, (size_t)done, COLLI_OUT_SLOT);
  stream->slot_used++;
  return COLL_T_PENDING;
}

size_t colli_stream_unwritten(const colli_stream *stream) {
  size_t bytes = 0;
  for (unsigned i = 0; i < stream->out_count; i++)
    bytes += sizeof(colli_frame) + nth_waiting(stream, i)->frame.bytes;
  return bytes - (stream->out_count > 0 ? stream->out_done : 0);
}

/* Copies payloads that are still in the caller's memory. */
bool colli_stream_adopt(colli_stream *stream) {
  size_t bytes = 0, at = 0;
  for (unsigned i = 0; i < stream->out_count; i++)
    if (nth_waiting(stream, i)->kind == COLLI_OUT_USER)
      bytes += nth_waiting(stream, i)->frame.bytes;
  if (bytes == 0)
    return true;
  char *copies = malloc(bytes);
  if (!copies)
    return false;
  for (unsigned i = 0; i < stream->out_count; i++) {
    colli_out *out = nth_waiting(stream, i);
    if (out->kind != COLLI_OUT_USER || out->frame.bytes == 0)
      continue;
    memcpy(copies + at, out->payload, out->frame.bytes);
    out->payload = copies + at;
    at += out->frame.bytes;
  }
  stream->adopted = copies;
  return true;
}
