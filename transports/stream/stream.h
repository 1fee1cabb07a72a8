/*
 * stream.h: messages over a connected stream descriptor. It knows nothing of addresses: TCP uses
 * it, and so could anything that has read, write and end of file.
 *
 * On the wire a message is a frame of 32 bytes and its payload. Both directions are state machines
 * that never block and resume where the kernel stopped them. Payloads are not copied here, with two
 * exceptions: small messages, of which one system call reads several; and what
 * colli_stream_buffer_input() had to read early. What the kernel does not accept at once stays
 * PENDING, even if it is small: if it were copied and reported as DONE, it could wait here while
 * the program computes.
 */
#ifndef COLLI_TRANSPORTS_STREAM_H
#define COLLI_TRANSPORTS_STREAM_H

#include <stdbool.h>

#include "coll/coll_transport.h"
#include "libcoll/net/tls.h"

#define COLLI_FRAME_MAGIC 0x314d4c43u /* "CLM1" */

/* Precedes each payload; in the byte order of the machine, which all ranks share. */
typedef struct colli_frame {
  uint32_t magic; /* of a numbered stream: plus what its owner adds */
  uint32_t bytes;
  coll_tag tag;
} colli_frame;
_Static_assert(sizeof(colli_frame) == 32, "travels as it is");

typedef enum colli_out_kind {
  COLLI_OUT_USER, /* the payload is the caller's memory */
  COLLI_OUT_SLOT  /* the payload is an outgoing slot */
} colli_out_kind;

/* A message that the kernel has not accepted completely. */
typedef struct colli_out {
  colli_frame frame;
  const char *payload;
  uint64_t ticket; /* messages accepted, this one included */
  colli_out_kind kind;
} colli_out;

typedef struct colli_stream {
  int fd;         /* belongs to whoever made the connection */
  colli_tls *tls; /* so does this: TLS over it; NULL: none */
  size_t slot_bytes;
  unsigned slot_count;
  uint64_t moved;     /* grows whenever bytes move */
  bool numbered;      /* the owner adds to out_magic, and looks at the heads of messages */
  uint32_t out_magic; /* of the next message that is sent */

  /* Why a direction failed; COLL_OK while it works. The strings are constants. */
  coll_status send_status, recv_status;
  int sys_errno;
  const char *syscall;
  const char *detail;

  /* Sending: a ring of messages. `out_done` bytes of the first are sent. */
  colli_out *out;
  unsigned out_first, out_count;
  size_t out_done;
  uint64_t accepted; /* messages, by send and slot_commit */
  char *slots;       /* slot_count of them */
  char *adopted;     /* copies that colli_stream_adopt() made */
  unsigned slot_first, slot_used;
  bool slot_acquired;
  uint64_t lacking_since_ns; /* the kernel has had no buffers since then; 0: it has */
  uint64_t patience_ns;      /* how long that may last; the owner sets it */

  /* Receiving: the current message, and bytes behind it that were read ahead. */
  colli_frame frame;
  size_t frame_done, payload_done;
  bool in_slot; /* the payload goes to in_slot_buf, not to the caller's memory */
  size_t last_bytes;
  char *in_slot_buf;
  char *stage;
  size_t stage_capacity, stage_begin, stage_end;
} colli_stream;

/* Sets up a stream on a connected nonblocking descriptor; false: out of memory. */
bool colli_stream_init(colli_stream *stream, int fd, size_t slot_bytes, unsigned slot_count);

/* Frees all buffers; the descriptor stays open. Fine on a zeroed stream. */
void colli_stream_destroy(colli_stream *stream);

/* These are the data calls of coll_transport.h, without the reporting. */
int colli_stream_send(colli_stream *stream, const coll_tag *tag, const void *buf, size_t bytes);
int colli_stream_sent(colli_stream *stream, uint64_t *count);
int colli_stream_slot_acquire(colli_stream *stream, size_t bytes, void **buf);
int colli_stream_slot_commit(colli_stream *stream, const coll_tag *tag, size_t bytes);
int colli_stream_recv(colli_stream *stream, const coll_tag *expect, void *buf, size_t bytes,
                      coll_tag *got, size_t *got_bytes);
int colli_stream_slot_peek(colli_stream *stream, coll_tag *got, const void **buf, size_t *bytes);
int colli_stream_slot_release(colli_stream *stream);

/* Whether the head of the next message is here, and its magic: COLL_T_DONE, COLL_T_AGAIN or an
 * error. */
int colli_stream_head(colli_stream *stream, uint32_t *magic);

/* Discards the message whose head is here, or what has not been received of it: COLL_T_DONE,
 * COLL_T_AGAIN or an error. */
int colli_stream_skip(colli_stream *stream);

/* How many bytes of accepted messages the kernel has not got yet. */
size_t colli_stream_unwritten(const colli_stream *stream);

/* Whether messages wait for the kernel to accept them. */
static inline bool colli_stream_blocked(const colli_stream *stream) {
  return stream->out_count > 0;
}

/* Whether the kernel lacks buffers. It does not say when it has some again. */
static inline bool colli_stream_lacks_buffers(const colli_stream *stream) {
  return stream->lacking_since_ns != 0;
}

/* Sends waiting messages: COLL_T_DONE if none is left, COLL_T_AGAIN, or an error. */
int colli_stream_flush(colli_stream *stream);

/* Makes both directions fail because the peer's host does not answer. */
void colli_stream_give_up(colli_stream *stream);

/*
 * Reads what has arrived into the stream's own memory, up to the slot_count messages that a
 * connection must hold. This helps where nothing moves because both sides wait for their sends.
 */
void colli_stream_buffer_input(colli_stream *stream);

/*
 * Copies payloads that are still in the caller's memory, for a stream that outlives the caller's
 * use of it. False: out of memory.
 */
bool colli_stream_adopt(colli_stream *stream);

#endif
