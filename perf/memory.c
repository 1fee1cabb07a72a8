/* memory.c: buffers in memory of the host or of a GPU, and what is in them. */
#include <stdlib.h>
#include <string.h>

#include "calls.h"

#define SPARE 64 /* one more cache line */

/* Fills a buffer with the same byte. */
static coll_status fill(const perf_bench *b, char *buf, int byte, size_t bytes) {
  if (!b->image) {
    memset(buf, byte, bytes);
    return COLL_OK;
  }
  memset(b->image, byte, bytes);
  return perf_device_write(b->options->device, buf, b->image, bytes);
}

/* Allocates a buffer, and fills it with data: memory can be faster for zeros. */
static coll_status take_buffer(const perf_bench *b, char **buf) {
  void *got = NULL;
  coll_status status = COLL_OK;
  if (b->options->device)
    status = perf_device_alloc(b->options->device, b->room + SPARE, &got);
  else if (b->options->registered)
    status = coll_mem_alloc(b->owner, b->room + SPARE, &got);
  else if (posix_memalign(&got, 4096, b->room + SPARE) != 0)
    status = COLL_ERR_NO_MEMORY;
  *buf = got;
  return status == COLL_OK ? fill(b, *buf, 0x3f, b->room) : status;
}

static void give_buffer(const perf_bench *b, char *buf) {
  if (b->options->device)
    perf_device_free(b->options->device, buf);
  else if (b->options->registered)
    coll_mem_free(b->owner, buf);
  else
    free(buf);
}

coll_status perf_memory_open(perf_bench *b) {
  if (b->options->device && !(b->image = malloc(b->room + SPARE)))
    return COLL_ERR_NO_MEMORY;
  coll_status status = take_buffer(b, &b->send);
  return status == COLL_OK ? take_buffer(b, &b->recv) : status;
}

void perf_memory_close(perf_bench *b) {
  if (b->options->device)
    perf_device_wait(b->options->device); /* after a failure, calls may still use the buffers */
  give_buffer(b, b->send);
  give_buffer(b, b->recv);
  free(b->image);
}

coll_status perf_put_input(const perf_bench *b, char *send) {
  char *input = b->image ? b->image : send;
  coll_status status = fill(b, b->recv, 0xff, b->room);
  perf_fill(input, b->nsend, b->line->type, b->traits->reduces ? b->line->op : COLL_SUM, b->rank,
            b->nranks);
  if (status == COLL_OK && b->image)
    status = perf_device_write(b->options->device, send, input, b->nsend * b->bytes);
  return status;
}

coll_status perf_get_result(const perf_bench *b, const char *recv, const char **result) {
  *result = b->image ? b->image : recv;
  if (!b->image)
    return COLL_OK;
  return perf_device_read(b->options->device, b->image, recv, b->nrecv * b->bytes);
}
