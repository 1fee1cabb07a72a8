/* support_levels.c: groups of ranks. */
#include "support_levels.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/comm/comm.h"

void levels_peers(void) {
  char text[MOST_DEVICES * MOST_DEVICES + 1];
  for (int i = 0; i < MOST_DEVICES * MOST_DEVICES; i++)
    text[i] = i / MOST_DEVICES / LEVELS_GPUS == i % MOST_DEVICES / LEVELS_GPUS ? '1' : '0';
  text[sizeof(text) - 1] = 0;
  setenv("GPU_DEVICES", "16", 1);
  setenv("GPU_PEERS", text, 1);
}

int levels_group(const levels_shape *shape, int rank) {
  return shape->take_turns ? rank % shape->ngroups : rank / shape->size;
}

int levels_place(const levels_shape *shape, int rank) {
  return shape->take_turns ? rank / shape->ngroups : rank % shape->size;
}

int levels_device(const levels_shape *shape, int rank, int mode) {
  const int used = mode == MODE_SPIN ? LEVELS_GPUS : mode == MODE_ORDERED ? 2 : 1;
  return levels_group(shape, rank) * LEVELS_GPUS + levels_place(shape, rank) % used;
}

void levels_move(const levels_shape *shape, int rank) {
  char name[24];
  snprintf(name, sizeof(name), "host %d", levels_group(shape, rank));
  setenv("COLL_HOST_ID", name, 1);
}

static _Thread_local uint64_t copied; /* by this thread's rank */
static _Thread_local bool counts;
static __typeof__(((colli_cuda *)0)->memcpy_htod_async) to_device;
static __typeof__(((colli_cuda *)0)->memcpy_dtoh_async) to_host;
static __typeof__(((colli_cuda *)0)->memcpy_2d_async) rows;

static colli_cu_result count_to_device(colli_cu_deviceptr to, const void *from, size_t bytes,
                                       colli_cu_stream stream) {
  copied += bytes;
  return to_device(to, from, bytes, stream);
}

static colli_cu_result count_to_host(void *to, colli_cu_deviceptr from, size_t bytes,
                                     colli_cu_stream stream) {
  copied += bytes;
  return to_host(to, from, bytes, stream);
}

static colli_cu_result count_rows(const colli_cu_memcpy_2d *it, colli_cu_stream stream) {
  copied += it->row_bytes * it->rows;
  return rows(it, stream);
}

uint64_t levels_take_copied(coll_comm *comm) {
  colli_cuda *cuda = &comm->family->gpu->cuda;
  const uint64_t bytes = copied;
  if (!counts) {
    to_device = cuda->memcpy_htod_async;
    to_host = cuda->memcpy_dtoh_async;
    rows = cuda->memcpy_2d_async;
    cuda->memcpy_htod_async = count_to_device;
    cuda->memcpy_dtoh_async = count_to_host;
    cuda->memcpy_2d_async = count_rows;
  }
  counts = true;
  copied = 0;
  return bytes;
}
