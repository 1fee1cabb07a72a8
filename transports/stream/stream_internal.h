/* stream_internal.h: what the files of a message stream share. */
#ifndef COLLI_TRANSPORTS_STREAM_INTERNAL_H
#define COLLI_TRANSPORTS_STREAM_INTERNAL_H

#include "transports/stream/stream.h"

#define COLLI_SLOT_ALIGN 64ul

/* What one read of small messages asks for, and the largest message that is read this way. */
#define COLLI_STAGE_BYTES 16384u
#define COLLI_SMALL_BYTES 2048u

/* Records why a direction failed. The first reason is the one to report. */
int colli_stream_fail(colli_stream *stream, coll_status *direction, coll_status status,
                      const char *syscall, int sys_errno, const char *detail);

/* Like colli_stream_fail(), because TLS found that bytes had been altered. */
int colli_stream_fail_altered(colli_stream *stream, coll_status *direction);

/* Allocates `bytes` bytes, aligned as slots are, unless *buffer is allocated already. False: out of
 * memory. */
bool colli_stream_alloc(char **buffer, size_t bytes);

#endif
