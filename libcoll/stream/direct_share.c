/*
 * direct_share.c: ranks of several processes map memory of each other that is virtual or of a pool.
 * It has no handles that a message could carry, but descriptors, which go over a Unix socket
 * (libcoll/net/exchange.h) from each rank to all others at the same time. Who has all of them, or
 * cannot go on, says so in a collective, and still gives until that ends.
 */
#include "libcoll/stream/direct_share.h"

#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/base/secret.h"
#include "libcoll/net/exchange.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/gpu_stage.h"

#define EVERY_NS COLLI_NS_PER_MS /* sockets are not among the doorbells for which a wait sleeps */

#define TURNS 64 /* bounds what is given before the collective moves again */

/* What is going on. */
typedef struct sharing {
  coll_comm *comm;
  const colli_gpu_memory_offer *offers;
  colli_gpu_memory *memory;
  coll_error *error;
  colli_exchange exchange;
} sharing;

bool colli_direct_shares(const coll_comm *comm, const colli_gpu_memory_offer *offers) {
  for (int rank = 0; rank < comm->nranks; rank++)
    if (colli_gpu_memory_by_descriptor(&offers[rank]))
      return true;
  return false;
}

/* colli_exchange_calls.give */
static int give(void *context, uint64_t given, uint64_t *bytes) {
  sharing *it = context;
  const coll_comm *comm = it->comm;
  int fd = -1;
  coll_error error = COLL_ERROR_INIT;
  colli_call_pause(it->comm); /* the driver may wait for kernels that wait for other ranks */
  const coll_status status = colli_gpu_memory_export(comm->direct->peers, &it->offers[comm->rank],
                                                     given, &fd, bytes, &error);
  colli_call_resume(it->comm);
  if (status == COLL_OK)
    return fd;
  if (it->error->status == COLL_OK)
    *it->error = error;
  return -1;
}

/* colli_exchange_calls.take */
static bool take(void *context, int peer, int fd, uint64_t bytes) {
  sharing *it = context;
  colli_call_pause(it->comm);
  const coll_status status = colli_gpu_memory_import(
      it->comm->direct->peers, peer, &it->offers[peer], fd, bytes, it->memory, it->error);
  colli_call_resume(it->comm);
  return status == COLL_OK;
}

/* Whether another process could take this rank's memory. */
static bool is_wanted(const sharing *it) {
  const coll_comm *comm = it->comm;
  const colli_gpu_memory_offer *own = &it->offers[comm->rank];
  bool others = false;
  for (int rank = 0; rank < comm->nranks; rank++)
    others = others || comm->direct->peers->opened[rank];
  return others && colli_gpu_memory_by_descriptor(own);
}

/* Opens the exchange; if that fails, this rank neither gives nor takes. */
static void open_exchange(sharing *it, uint32_t number, colli_exchange_place *place) {
  coll_comm *comm = it->comm;
  const colli_exchange_party party = {.secret = comm->family->secret->bytes,
                                      .comm_id = comm->comm_id,
                                      .word = number,
                                      .rank = comm->rank,
                                      .nranks = comm->nranks};
  const colli_exchange_calls calls = {it, give, take};
  coll_error error = COLL_ERROR_INIT;
  const uint64_t own = is_wanted(it) ? it->offers[comm->rank].extent : 0;
  if (colli_exchange_open(&it->exchange, &party, &calls, own, place, &error) == COLL_OK) {
    it->exchange.error = it->error;
    return;
  }
  colli_exchange_close(&it->exchange);
  if (it->error->status == COLL_OK)
    *it->error = error;
}

/* Takes from all until there is nothing more to take, or this rank cannot go on. */
static void take_all(sharing *it, const colli_exchange_place *places) {
  coll_comm *comm = it->comm;
  const colli_gpu_peers *peers = comm->direct->peers;
  /* Those who have all wait no longer than the whole for this rank. */
  const uint64_t until_ns = colli_now_ns() + comm->watch.timeout_ns / 2;
  int peer;
  for (int rank = 0; rank < comm->nranks && it->error->status == COLL_OK; rank++)
    if (colli_gpu_memory_needs(peers, rank, &it->offers[rank]))
      colli_exchange_take(&it->exchange, rank, &places[rank], it->offers[rank].extent);
  colli_comm_wait_begin(comm);
  while (it->error->status == COLL_OK && comm->failure.status == COLL_OK &&
         (peer = colli_exchange_lacks(&it->exchange)) >= 0) {
    const uint64_t now_ns = colli_now_ns();
    if (now_ns >= until_ns)
      (void)colli_error_set(it->error, COLL_ERR_TIMEOUT, NULL,
                            "rank %d has not given its memory within %llu ms", peer,
                            (unsigned long long)(comm->watch.timeout_ns / 2 / COLLI_NS_PER_MS));
    else if (!colli_exchange_poll(&it->exchange))
      colli_comm_wait_a_bit(comm, now_ns + EVERY_NS);
  }
}

/* colli_direct_service.work */
static void serve(void *context) {
  sharing *it = context;
  for (int i = 0; i < TURNS && colli_exchange_poll(&it->exchange); i++)
    continue;
}

coll_status colli_direct_share(coll_comm *comm, const colli_direct_matter *matter, uint32_t number,
                               const colli_gpu_memory_offer *offers, colli_gpu_memory *memory,
                               coll_error *error) {
  sharing it = {
      .comm = comm, .offers = offers, .memory = memory, .error = error, .exchange.listen_fd = -1};
  colli_exchange_place own = {.name_bytes = 0};
  colli_exchange_place *places = malloc((size_t)comm->nranks * sizeof(*places));
  if (!places) { /* the others go on, so this must be more than a refusal */
    (void)colli_error_set(error, COLL_ERR_NO_MEMORY, NULL, "out of memory for %d places",
                          comm->nranks);
    return colli_gpu_fail_comm(comm, matter->name, error);
  }
  if (comm->family->secret) /* else all are threads */
    open_exchange(&it, number, &own);
  coll_status status = colli_direct_gather(comm, matter, &own, places, sizeof(own));
  if (status == COLL_OK) {
    const colli_direct_service service = {serve, &it, EVERY_NS};
    take_all(&it, places);
    status = colli_direct_agree_serving(comm, matter, error->status, error, COLL_OK, &service);
  }
  colli_exchange_close(&it.exchange);
  free(places);
  return status;
}
