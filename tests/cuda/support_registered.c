/* support_registered.c: registered memory for tests. */
#include "support_registered.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/comm/comm.h"
#include "tests/proc/support_ranks.h"

static _Thread_local arena *current;
static _Thread_local size_t shift;

coll_status arena_make(coll_comm *comm, arena *it, size_t each, bool by_coll) {
  const size_t bytes = each * ARENA_PLACES;
  void *base = NULL;
  coll_status status = COLL_OK;
  const bool can = comm->direct || comm->levels;
  *it = (arena){.each = each, .owned = by_coll && can};
  if (it->owned)
    status = coll_mem_alloc_gpu(comm, bytes, &base);
  else
    base = device_memory.take(bytes);
  if (can && !it->owned)
    status = coll_comm_register(comm, base, bytes, &it->registration);
  it->base = base;
  return status;
}

coll_status arena_free(coll_comm *comm, arena *it) {
  coll_status status = COLL_OK;
  if (it->owned)
    return coll_mem_free(comm, it->base);
  if (it->registration)
    status = coll_comm_deregister(comm, &it->registration);
  device_memory.give(it->base);
  return status;
}

void *arena_take(arena *it) {
  for (int i = 0; i < ARENA_PLACES; i++)
    if (!it->used[i]) {
      it->used[i] = true;
      return it->base + (size_t)i * it->each;
    }
  return NULL;
}

void arena_give(arena *it, void *place) {
  it->used[(size_t)((char *)place - it->base) / it->each] = false;
}

static void *take(size_t bytes) {
  if (bytes + shift > current->each) {
    fprintf(stderr, "an arena's places are shorter than %zu bytes\n", bytes);
    abort();
  }
  return (char *)arena_take(current) + shift;
}

static void give(void *memory) {
  arena_give(current, memory);
}

static void write_to(void *memory, const void *from, size_t bytes) {
  device_memory.write(memory, from, bytes);
}

static void read_from(void *to, const void *memory, size_t bytes) {
  device_memory.read(to, memory, bytes);
}

static void await(void *stream) {
  device_await(stream);
}

void arena_use(arena *it, size_t offset) {
  current = it;
  shift = offset;
}

void arena_spoil(const coll_comm *comm, colli_cu_stream stream, void *at, size_t bytes) {
  coll_error error = COLL_ERROR_INIT;
  const colli_direct *direct = comm->direct;
  /* From memory of this rank that nothing else writes. */
  const uint64_t from = colli_gpu_peers_state(direct->peers) + 1024;
  for (size_t done = 0; done < bytes; done += 4096) {
    const size_t some = bytes - done < 4096 ? bytes - done : 4096;
    const struct coll_gpu_piece piece = {(uint64_t)at + done, from, some};
    const colli_gpu_copy_call copy = {.pieces = &piece, .count = 1};
    if (colli_gpu_launch_copy(&comm->gpu->cuda, direct->programs, stream, &copy, &error) !=
        COLL_OK) {
      fprintf(stderr, "%s\n", error.message);
      abort();
    }
  }
}

const case_device arena_memory = {take, give, write_to, read_from, await};
