/* fuzz_frames.c: what a member of the job sends over a TCP connection: frames and payloads. */
#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "fuzz.h"
#include "transports/stream/stream.h"

#define SLOT_BYTES 4096

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  int fds[2];
  colli_stream stream;
  uint8_t ways = bytes > 0 ? data[0] : 0;
  char buf[300];
  coll_tag got, expect = {{1, 2, 3}};
  size_t got_bytes;
  const void *slot;
  if (bytes > 60000 || socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, fds) != 0)
    return 0;
  if (!colli_stream_init(&stream, fds[0], SLOT_BYTES, 4))
    abort();
  if (bytes > 1 && send(fds[1], data + 1, bytes - 1, MSG_NOSIGNAL) < 0)
    abort();
  close(fds[1]);
  for (int i = 0, result = 0; i < 100 && result <= 0; i++) {
    int way = ways >> (i % 4) * 2 & 3;
    if (way == 0) {
      colli_stream_buffer_input(&stream);
    } else if (way == 1) {
      result = colli_stream_recv(&stream, &expect, buf, sizeof(buf), &got, &got_bytes);
    } else if ((result = colli_stream_slot_peek(&stream, &got, &slot, &got_bytes)) == COLL_T_DONE) {
      uint8_t sum = 0; /* reads all that it claims to have */
      for (size_t k = 0; k < got_bytes; k++)
        sum ^= ((const uint8_t *)slot)[k];
      if (got_bytes > SLOT_BYTES)
        abort();
      buf[0] = (char)sum;
      colli_stream_slot_release(&stream);
    }
  }
  close(fds[0]);
  colli_stream_destroy(&stream);
  return 0;
}
