/* stream_recv.c: the receiving direction of a message stream. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include "libcoll/base/assert.h"
#include "transports/stream/stream_internal.h"

/* Copies up to `bytes` bytes that were read ahead; returns how many. */
static size_t unstage(colli_stream *stream, void *to, size_t bytes) {
  COLLI_ASSERT(stream->stage_begin <= stream->stage_end);
  COLLI_ASSERT(stream->stage_end <= stream->stage_capacity);
  size_t staged = stream->stage_end - stream->stage_begin;
  bytes = bytes < staged ? bytes : staged;
  if (bytes == 0)
    return 0;
  memcpy(to, stream->stage + stream->stage_begin, bytes);
  stream->stage_begin += bytes;
  if (stream->stage_begin == stream->stage_end)
    stream->stage_begin = stream->stage_end = 0;
  return bytes;
}

/* Grows the stage to at least `capacity` bytes; false: out of memory. */
static bool grow_stage(colli_stream *stream, size_t capacity) {
  if (stream->stage_capacity >= capacity)
    return true;
  char *stage = realloc(stream->stage, capacity);
  if (!stage)
    return false;
  stream->stage = stage;
  stream->stage_capacity = capacity;
  return true;
}

/* readv(), over TLS if there is. */
static ssize_t read_some(colli_stream *stream, struct iovec *iov, int count) {
  if (__builtin_expect(stream->tls != NULL, 0))
    return colli_tls_recv(stream->tls, iov, (size_t)count);
  return count == 1 ? read(stream->fd, iov->iov_base, iov->iov_len) : readv(stream->fd, iov, count);
}

/* What a read that returned no bytes means: AGAIN or an error. */
static int read_failed(colli_stream *stream, ssize_t n) {
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
    return COLL_T_AGAIN;
  if (n == 0)
    return colli_stream_fail(stream, &stream->recv_status, COLL_ERR_PEER_LOST, "readv", 0,
                             stream->frame_done
                                 ? "the peer closed the connection in the middle of a message"
                                 : "the peer closed the connection; it ended or was destroyed");
  if (errno == EBADMSG)
    return colli_stream_fail_altered(stream, &stream->recv_status);
  bool lost = errno == ECONNRESET || errno == ETIMEDOUT || errno == EPIPE ||
              errno == EHOSTUNREACH || errno == ENETUNREACH || errno == ENETRESET;
  return colli_stream_fail(
      stream, &stream->recv_status, lost ? COLL_ERR_PEER_LOST : COLL_ERR_SYSTEM, "readv", errno,
      lost ? "the connection broke; see what happened to the peer" : "receiving failed");
}

/* Checks that libcoll can have sent a complete frame. */
static int check_frame(colli_stream *stream) {
  const bool known = stream->frame.magic == COLLI_FRAME_MAGIC || stream->numbered;
  if (known && stream->frame.bytes <= stream->slot_bytes)
    return COLL_T_DONE;
  return colli_stream_fail(
      stream, &stream->recv_status, COLL_ERR_PROTOCOL, NULL, 0,
      !known ? "received bytes that are not a message; do all ranks run the same version?"
             : "received a message larger than a slot; is COLL_SLOT_BYTES the same "
               "on all ranks?");
}

/* Reads several small messages ahead into the stage; returns what read() did. */
static ssize_t read_ahead(colli_stream *stream) {
  COLLI_ASSERT(stream->stage_end == 0 && stream->stage_capacity >= COLLI_STAGE_BYTES);
  struct iovec stage = {stream->stage, COLLI_STAGE_BYTES};
  ssize_t n = read_some(stream, &stage, 1);
  if (n > 0)
    stream->stage_end = (size_t)n;
  return n;
}

/* Reads the rest of the frame and of a payload of `bytes` bytes straight to their places. */
static ssize_t read_direct(colli_stream *stream, char *payload, size_t bytes) {
  COLLI_ASSERT(stream->frame_done <= sizeof(stream->frame) && stream->payload_done <= bytes);
  size_t missing = sizeof(stream->frame) - stream->frame_done;
  struct iovec iov[2] = {{(char *)&stream->frame + stream->frame_done, missing},
                         {payload + stream->payload_done, bytes - stream->payload_done}};
  ssize_t n = missing ? read_some(stream, iov, 2) : read_some(stream, &iov[1], 1);
  if (n > 0) {
    size_t of_frame = (size_t)n < missing ? (size_t)n : missing;
    stream->frame_done += of_frame;
    stream->payload_done += (size_t)n - of_frame;
  }
  return n;
}

/*
 * Reads once for a message of (probably) `bytes` bytes to `payload`: DONE if something was read,
 * perhaps not all of it; AGAIN if there is nothing to read.
 */
static int read_once(colli_stream *stream, char *payload, size_t bytes) {
  bool ahead = stream->frame_done < sizeof(stream->frame) && bytes <= COLLI_SMALL_BYTES;
  ssize_t n = ahead ? read_ahead(stream) : read_direct(stream, payload, bytes);
  if (n <= 0)
    return read_failed(stream, n);
  stream->moved += (uint64_t)n;
  return COLL_T_DONE;
}

/* Copies what was read ahead into the current message, of which `bytes` bytes are expected. */
static int copy_staged(colli_stream *stream, char *payload, size_t bytes) {
  if (stream->frame_done < sizeof(stream->frame))
    stream->frame_done += unstage(stream, (char *)&stream->frame + stream->frame_done,
                                  sizeof(stream->frame) - stream->frame_done);
  if (stream->frame_done < sizeof(stream->frame))
    return COLL_T_AGAIN;
  int status = check_frame(stream);
  if (status != COLL_T_DONE)
    return status;
  size_t size = stream->frame.bytes < bytes ? stream->frame.bytes : bytes;
  if (stream->payload_done < size)
    stream->payload_done +=
        unstage(stream, payload + stream->payload_done, size - stream->payload_done);
  return COLL_T_DONE;
}

/* Begins the next message. */
static void begin_message(colli_stream *stream) {
  COLLI_ASSERT(stream->frame_done == sizeof(stream->frame));
  COLLI_ASSERT(stream->payload_done == stream->frame.bytes);
  stream->last_bytes = stream->frame.bytes;
  stream->frame_done = stream->payload_done = 0;
  stream->in_slot = false;
}

/* Reports a message that is not the expected one; nothing can be received after it. */
static int report_mismatch(colli_stream *stream, coll_tag *got, size_t *got_bytes) {
  stream->recv_status = COLL_ERR_MISMATCH;
  *got = stream->frame.tag;
  *got_bytes = stream->frame.bytes;
  return COLL_ERR_MISMATCH;
}

int colli_stream_recv(colli_stream *stream, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes) {
  if (__builtin_expect(stream->recv_status != COLL_OK, 0))
    return stream->recv_status == COLL_ERR_MISMATCH ? report_mismatch(stream, got, got_bytes)
                                                    : (int)stream->recv_status;
  if (__builtin_expect(stream->in_slot, 0)) { /* slot_peek() began to read it */
    stream->in_slot = false;
    if (stream->payload_done > bytes)
      return report_mismatch(stream, got, got_bytes);
    if (stream->payload_done > 0)
      memcpy(buf, stream->in_slot_buf, stream->payload_done);
  }
  for (;;) {
    int status = copy_staged(stream, buf, bytes);
    if (status > 0)
      return status;
    if (status == COLL_T_DONE) {
      if (stream->frame.bytes != bytes || memcmp(&stream->frame.tag, expect, sizeof(*expect)) != 0)
        return report_mismatch(stream, got, got_bytes);
      if (stream->payload_done == bytes) {
        begin_message(stream);
        return COLL_T_DONE;
      }
    }
    status = read_once(stream, buf, bytes);
    if (status != COLL_T_DONE)
      return status;
  }
}

int colli_stream_head(colli_stream *stream, uint32_t *magic) {
  if (stream->recv_status != COLL_OK)
    return (int)stream->recv_status;
  for (;;) {
    int status = copy_staged(stream, NULL, 0);
    *magic = stream->frame.magic;
    if (status != COLL_T_AGAIN)
      return status;
    status = read_once(stream, NULL, 0);
    if (status != COLL_T_DONE)
      return status;
  }
}

int colli_stream_skip(colli_stream *stream) {
  char waste[16384];
  COLLI_ASSERT(stream->frame_done == sizeof(stream->frame));
  while (stream->payload_done < stream->frame.bytes) {
    size_t bytes = stream->frame.bytes - stream->payload_done;
    bytes = bytes < sizeof(waste) ? bytes : sizeof(waste);
    struct iovec iov = {waste, bytes};
    ssize_t n = (ssize_t)unstage(stream, waste, bytes);
    if (n == 0 && (n = read_some(stream, &iov, 1)) > 0)
      stream->moved += (uint64_t)n;
    if (n <= 0)
      return read_failed(stream, n);
    stream->payload_done += (size_t)n;
  }
  begin_message(stream);
  return COLL_T_DONE;
}

/* Moves bytes that were read with a peeked message, but belong to later ones, to the stage. */
static int stage_excess(colli_stream *stream) {
  COLLI_ASSERT(stream->stage_begin == stream->stage_end);
  size_t excess = stream->payload_done - stream->frame.bytes;
  if (!grow_stage(stream, excess))
    return colli_stream_fail(stream, &stream->recv_status, COLL_ERR_NO_MEMORY, "realloc", ENOMEM,
                             "out of memory for received messages");
  memcpy(stream->stage, stream->in_slot_buf + stream->frame.bytes, excess);
  stream->stage_begin = 0;
  stream->stage_end = excess;
  stream->payload_done = stream->frame.bytes;
  return COLL_T_DONE;
}

int colli_stream_slot_peek(colli_stream *stream, coll_tag *got, const void **buf, size_t *bytes) {
  if (stream->recv_status != COLL_OK)
    return (int)stream->recv_status;
  if (!colli_stream_alloc(&stream->in_slot_buf, stream->slot_bytes))
    return colli_stream_fail(stream, &stream->recv_status, COLL_ERR_NO_MEMORY, "malloc", ENOMEM,
                             "out of memory for received messages; lower COLL_SLOT_BYTES");
  stream->in_slot = true;
  for (;;) {
    int status = copy_staged(stream, stream->in_slot_buf, stream->slot_bytes);
    if (status > 0)
      return status;
    if (status == COLL_T_DONE && stream->payload_done > stream->frame.bytes) {
      status = stage_excess(stream);
      if (status > 0)
        return status;
    }
    if (status == COLL_T_DONE && stream->payload_done == stream->frame.bytes) {
      *got = stream->frame.tag;
      *buf = stream->in_slot_buf;
      *bytes = stream->frame.bytes;
      return COLL_T_DONE;
    }
    /* Most messages of an operation have the same size: the last one's is a good guess. */
    status = read_once(stream, stream->in_slot_buf,
                       status == COLL_T_DONE ? stream->frame.bytes : stream->last_bytes);
    if (status != COLL_T_DONE)
      return status;
  }
}

int colli_stream_slot_release(colli_stream *stream) {
  COLLI_ASSERT(stream->in_slot);
  begin_message(stream);
  return COLL_T_DONE;
}

/*
 * Reads what has arrived into the stream's own memory, up to the slot_count messages that a
 * connection must hold. The data calls will find end of file and errors.
 */
void colli_stream_buffer_input(colli_stream *stream) {
  size_t capacity = stream->slot_count * (stream->slot_bytes + sizeof(colli_frame));
  if (stream->recv_status != COLL_OK || !grow_stage(stream, capacity))
    return;
  if (stream->stage_begin > 0) {
    memmove(stream->stage, stream->stage + stream->stage_begin,
            stream->stage_end - stream->stage_begin);
    stream->stage_end -= stream->stage_begin;
    stream->stage_begin = 0;
  }
  ssize_t n = 1;
  while (n > 0 && stream->stage_end < stream->stage_capacity) {
    struct iovec room = {stream->stage + stream->stage_end,
                         stream->stage_capacity - stream->stage_end};
    n = read_some(stream, &room, 1);
    if (n > 0) {
      stream->stage_end += (size_t)n;
      stream->moved += (uint64_t)n;
    }
  }
}
