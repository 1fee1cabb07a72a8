/* stream.c: setting up and destroying a message stream. */
#include "transports/stream/stream.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "transports/stream/stream_internal.h"

/* Sets up a stream on a connected nonblocking descriptor; false: out of memory. */
bool colli_stream_init(colli_stream *stream, int fd, size_t slot_bytes, unsigned slot_count) {
  *stream = (colli_stream){
      .fd = fd, .slot_bytes = slot_bytes, .slot_count = slot_count, .out_magic = COLLI_FRAME_MAGIC};
  stream->out = calloc(slot_count, sizeof(*stream->out));
  stream->stage_capacity = COLLI_STAGE_BYTES;
  stream->stage = malloc(stream->stage_capacity);
  if (stream->out && stream->stage)
    return true;
  colli_stream_destroy(stream);
  return false;
}

/* Frees all buffers; the descriptor stays open. */
void colli_stream_destroy(colli_stream *stream) {
  free(stream->out);
  free(stream->slots);
  free(stream->adopted);
  free(stream->in_slot_buf);
  free(stream->stage);
  *stream = (colli_stream){.fd = -1};
}

/* Records why a direction failed. The first reason is the one to report. */
int colli_stream_fail(colli_stream *stream, coll_status *direction, coll_status status,
                      const char *syscall, int sys_errno, const char *detail) {
  *direction = status;
  if (!stream->detail) {
    stream->syscall = syscall;
    stream->sys_errno = sys_errno;
    stream->detail = detail;
  }
  return (int)status;
}

int colli_stream_fail_altered(colli_stream *stream, coll_status *direction) {
  return colli_stream_fail(
      stream, direction, COLL_ERR_AUTH, NULL, EBADMSG,
      "TLS: what came from the peer was altered, repeated, reflected or made "
      "up; somebody changes packets, or a device damages them: see the network "
      "between the hosts");
}

void colli_stream_give_up(colli_stream *stream) {
  static const char detail[] =
      "the peer's host does not answer; look whether it is down or the network between is cut";
  if (stream->recv_status == COLL_OK)
    colli_stream_fail(stream, &stream->recv_status, COLL_ERR_PEER_LOST, "getsockopt", ETIMEDOUT,
                      detail);
  if (stream->send_status == COLL_OK)
    colli_stream_fail(stream, &stream->send_status, COLL_ERR_PEER_LOST, "getsockopt", ETIMEDOUT,
                      detail);
}

/* Allocates `bytes` bytes, aligned as slots are, unless *buffer is allocated already. */
bool colli_stream_alloc(char **buffer, size_t bytes) {
  if (!*buffer)
    *buffer =
        aligned_alloc(COLLI_SLOT_ALIGN, (bytes + COLLI_SLOT_ALIGN - 1) & ~(COLLI_SLOT_ALIGN - 1));
  return *buffer != NULL;
}
