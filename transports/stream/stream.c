/* stream.c: life and death of a message stream. */
#include "transports/stream/stream.h"

#include <stdlib.h>
#include <string.h>

#include "transports/stream/stream_internal.h"

/* Prepares for connected nonblocking `fd`: false without memory. */
bool colli_stream_init(colli_stream *stream, int fd, size_t slot_bytes, unsigned slot_count) {
  *stream = (colli_stream){.fd = fd, .slot_bytes = slot_bytes, .slot_count = slot_count};
  stream->out = calloc(slot_count, sizeof(*stream->out));
  stream->stage_room = COLLI_STAGE_BYTES;
  stream->stage = malloc(stream->stage_room);
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

/* Latches why a direction failed. The first reason is the one to tell. */
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

/* Room for `bytes`, aligned as slots are; kept in *room from then on. */
bool colli_stream_room(char **room, size_t bytes) {
  if (!*room)
    *room =
        aligned_alloc(COLLI_SLOT_ALIGN, (bytes + COLLI_SLOT_ALIGN - 1) & ~(COLLI_SLOT_ALIGN - 1));
  return *room != NULL;
}
