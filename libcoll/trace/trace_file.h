/* trace_file.h: the file of a trace: allocated at once, mapped, cut to its used length at the end.
 */
#ifndef COLLI_TRACE_TRACE_FILE_H
#define COLLI_TRACE_TRACE_FILE_H

#include <stdatomic.h>
#include <stdbool.h>

#include "coll/coll.h"
#include "libcoll/trace/packet.h"

#define COLLI_ITEM_SPARE 32
#define COLLI_ITEM_ROOM  64 /* for padding and spare bytes */

typedef struct colli_trace_file {
  int fd;
  uint8_t *at; /* NULL: not open */
  size_t bytes, used;
} colli_trace_file;

/* Creates the file of a rank; see colli_trace_open(). */
coll_status colli_trace_file_open(colli_trace_file *file, const char *path, int rank, size_t bytes,
                                  coll_error *error);

/* What changes in an item that is written again and again. */
typedef struct colli_trace_values {
  uint64_t time_ns; /* 0: the item has none; else these are its last COLLI_LONG_BYTES bytes */
  uint64_t number;  /* of an operation; the COLLI_LONG_BYTES bytes before the time's field */
  bool numbered;
} colli_trace_values;

/*
 * Appends an item of a trace of 16 bytes or more, with COLLI_ITEM_SPARE bytes behind it that can be
 * read; none of the first 16 change. False if that would leave less than `reserve` bytes, at least
 * COLLI_ITEM_ROOM.
 *
 * If the process is killed meanwhile, the file has the whole item or nothing of it: what follows it
 * is written first, and its first 16 bytes last, by one store.
 */
__attribute__((always_inline)) static inline bool
colli_trace_file_put(colli_trace_file *file, const uint8_t *item, size_t bytes,
                     colli_trace_values values, size_t reserve) {
  typedef uint8_t first __attribute__((vector_size(16)));
  uint8_t *at = file->at + file->used;
  const size_t left = file->bytes - file->used;
  if (__builtin_expect(bytes + reserve > left, 0))
    return false;
  for (size_t i = sizeof(first); i < bytes; i += 32)
    memcpy(at + i, item + i, 32);
  if (values.numbered)
    colli_packet_set_long(at + bytes - 2 * COLLI_LONG_BYTES - 1, values.number);
  if (values.time_ns)
    colli_packet_set_long(at + bytes - COLLI_LONG_BYTES, values.time_ns);
  colli_packet_pad(at + bytes, left - bytes);
  atomic_signal_fence(memory_order_seq_cst);
  first head;
  memcpy(&head, item, sizeof(head));
  memcpy(at, &head, sizeof(head));
  file->used += bytes;
  for (size_t line = 0; line < 3; line++) /* what comes next; it may lie behind the mapping */
    __builtin_prefetch(at + bytes + 64 * line, 1);
  return true;
}

/* Cuts the file to its used length and closes it. */
void colli_trace_file_close(colli_trace_file *file);

#endif
