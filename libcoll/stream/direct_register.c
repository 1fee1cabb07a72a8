/* direct_register.c: ranks register memory of the program, all of them or none. */
#include "libcoll/stream/direct_register.h"

#include <stdio.h>
#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/wait.h"
#include "libcoll/run/run.h"
#include "libcoll/stream/direct_agree.h"
#include "libcoll/stream/direct_share.h"
#include "libcoll/stream/stream_batch.h"

/* How long the end of a graph may be unknown: drivers tell of it later, from a thread of their own.
 */
#define RELEASE_NS (2000 * COLLI_NS_PER_MS)

static const colli_direct_matter registering = {"comm_register", COLLI_MAKES_REGISTRATION,
                                                "no memory is registered"};
static const colli_direct_matter allocating = {"mem_alloc_gpu", COLLI_MAKES_REGISTRATION,
                                               "no memory is allocated"};
static const colli_direct_matter ending = {"comm_deregister", COLLI_MAKES_NO_REGISTRATION,
                                           "the memory remains registered"};
static const colli_direct_matter freeing = {"mem_free", COLLI_MAKES_NO_REGISTRATION,
                                            "the memory is not freed"};

/* The communicator whose ranks read each other's memory: all ranks, or this one's group. All ranks
 * of all groups agree, though. */
static coll_comm *reading(coll_comm *comm) {
  return comm->levels ? comm->levels->within : comm;
}

/* ---- the beginning --------------------------------------------------------------------------- */

/* Whether calls can be made, after those in streams. */
static coll_status get_ready(coll_comm *comm, const char *name) {
  const coll_status status = colli_call_check_usable(comm);
  if (status != COLL_OK)
    return status;
  if (!reading(comm)->direct)
    return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, name,
                             "calls in streams of this communicator are staged through host "
                             "memory; coll_comm_use_gpu() changes that, or says why not");
  if (comm->levels && comm->levels->size == 1)
    return colli_comm_refuse(comm, COLL_ERR_UNSUPPORTED, name,
                             "no rank reads another one's GPU memory: each is alone in its group, "
                             "and memory is lent to the network call by call");
  return colli_streams_unstarted(comm) ? colli_comm_await_streams(comm, name) : COLL_OK;
}

/* Whether all ranks have described memory, of one length. */
static coll_status check_offers(coll_comm *comm, const colli_direct_matter *matter,
                                colli_gpu_memory_offer *offers) {
  for (int rank = 0; rank < comm->nranks; rank++) {
    colli_gpu_memory_offer *it = &offers[rank];
    it->reason[sizeof(it->reason) - 1] = 0;
    if (it->failed != COLL_OK)
      return colli_direct_refuse(comm, matter, (coll_status)it->failed, rank, it->reason);
  }
  for (int rank = 1; rank < comm->nranks; rank++)
    if (offers[rank].bytes != offers[0].bytes)
      return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, matter->name,
                               "%s: rank %d has %llu bytes, but rank 0 %llu; all ranks must pass "
                               "the same",
                               matter->otherwise, rank, (unsigned long long)offers[rank].bytes,
                               (unsigned long long)offers[0].bytes);
  return COLL_OK;
}

/* Unmaps the others' memory. The driver may wait for kernels meanwhile. */
static void unmap(coll_comm *comm, coll_registration *it) {
  colli_call_pause(comm);
  colli_gpu_memory_unmap(reading(comm)->direct->peers, &it->memory);
  colli_call_resume(comm);
}

/* Maps virtual memory of the ranks of this group, which say so to each other. */
static coll_status share_in_group(coll_comm *comm, const colli_direct_matter *matter,
                                  const colli_gpu_memory_offer *offers, coll_registration *it,
                                  coll_error *error) {
  coll_comm *within = comm->levels->within;
  colli_call_pause(comm);
  coll_status status = colli_call_enter(within);
  if (status == COLL_OK) {
    status = colli_direct_share(within, matter, it->number, offers, &it->memory, error);
    *error = within->failure.error;
    colli_call_leave(within);
  }
  colli_call_resume(comm);
  return status;
}

/* Maps the memory of the others of this rank's group. */
static coll_status map_group(coll_comm *comm, const colli_direct_matter *matter,
                             colli_gpu_memory_offer *offers, coll_registration *it) {
  const colli_levels *levels = comm->levels;
  coll_error error = COLL_ERROR_INIT;
  for (int place = 0; place < levels->size; place++) /* these are in the order of ranks */
    offers[place] = offers[colli_levels_member(levels, levels->group, place)];
  colli_call_pause(comm);
  coll_status status =
      colli_gpu_memory_map(levels->within->direct->peers, offers, &it->memory, &error);
  colli_call_resume(comm);
  if (colli_direct_shares(levels->within, offers))
    status = share_in_group(comm, matter, offers, it, &error);
  if (status != COLL_OK) {
    const coll_error in_group = error;
    snprintf(error.message, sizeof(error.message), "among the ranks of its group: %.480s",
             in_group.message);
  }
  return colli_direct_agree(comm, matter, status, &error, COLL_OK);
}

/* Maps the memory of all others. */
static coll_status map_all(coll_comm *comm, const colli_direct_matter *matter,
                           const colli_gpu_memory_offer *offers, coll_registration *it) {
  coll_error error = COLL_ERROR_INIT;
  colli_call_pause(comm);
  const coll_status status = colli_gpu_memory_map(comm->direct->peers, offers, &it->memory, &error);
  colli_call_resume(comm);
  return colli_direct_shares(comm, offers)
             ? colli_direct_share(comm, matter, it->number, offers, &it->memory, &error)
             : colli_direct_agree(comm, matter, status, &error, COLL_OK);
}

/* Exchanges how to reach the memory of each rank, and maps it. `mine`, or why there is none. */
static coll_status exchange(coll_comm *comm, const colli_direct_matter *matter,
                            const colli_gpu_memory_offer *mine, colli_gpu_memory_offer *offers,
                            coll_registration *it) {
  coll_status status = colli_direct_gather(comm, matter, mine, offers, sizeof(*mine));
  if (status == COLL_OK)
    status = check_offers(comm, matter, offers);
  if (status != COLL_OK)
    return status;
  status = comm->levels ? map_group(comm, matter, offers, it) : map_all(comm, matter, offers, it);
  if (status == COLL_OK)
    return COLL_OK;
  unmap(comm, it);
  (void)colli_direct_await(comm, matter, UINT64_MAX / 2); /* owners may free it then */
  return status;
}

/* Registers memory, or tells the others that this rank has none, and why. */
static coll_status begin(coll_comm *comm, const colli_direct_matter *matter, void *at, size_t bytes,
                         coll_error *error, coll_registration **out) {
  colli_direct *direct = reading(comm)->direct;
  colli_gpu_memory_offer mine = {.bytes = bytes};
  coll_registration *it = calloc(1, sizeof(*it));
  colli_gpu_memory_offer *offers = malloc((size_t)comm->nranks * sizeof(*offers));
  *out = NULL;
  if (!it || !offers) {
    free(it);
    free(offers);
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, matter->name, "out of memory");
  }
  if (error->status == COLL_OK) {
    colli_call_pause(comm);
    (void)colli_gpu_memory_describe(direct->peers, at, bytes, &mine, error);
    colli_call_resume(comm);
  }
  it->number = direct->registrations + 1;
  mine.failed = (int32_t)error->status;
  snprintf(mine.reason, sizeof(mine.reason), "%.149s", error->status ? error->message : "");
  const coll_status status = exchange(comm, matter, &mine, offers, it);
  free(offers);
  if (status != COLL_OK) {
    free(it);
    return status;
  }
  it->own = (uint64_t)at;
  it->bytes = bytes;
  direct->registrations++;
  it->next = direct->registered;
  direct->registered = *out = it;
  return COLL_OK;
}

coll_status coll_comm_register(coll_comm *comm, void *ptr, size_t bytes,
                               coll_registration **registration) {
  coll_error error = COLL_ERROR_INIT;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (!registration)
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, registering.name,
                               "registration is NULL");
  else
    *registration = NULL;
  if (status == COLL_OK)
    status = get_ready(comm, registering.name);
  if (status == COLL_OK)
    status = begin(comm, &registering, ptr, bytes, &error, registration);
  colli_call_leave(comm);
  return status;
}

/* Allocates memory on all ranks and registers it. */
static coll_status allocate(coll_comm *comm, size_t bytes, void **ptr) {
  coll_error error = COLL_ERROR_INIT;
  coll_registration *it;
  void *at = NULL;
  coll_status status = get_ready(comm, allocating.name);
  if (status != COLL_OK)
    return status;
  colli_call_pause(comm); /* the driver may wait for kernels that wait for other ranks */
  (void)colli_gpu_memory_take(reading(comm)->direct->peers, bytes, &at, &error);
  colli_call_resume(comm);
  status = begin(comm, &allocating, at, bytes, &error, &it);
  if (status == COLL_OK) {
    it->owned = true;
    *ptr = at;
  } else if (comm->failure.status == COLL_OK) { /* else others may have mapped it */
    colli_call_pause(comm);
    colli_gpu_memory_give(reading(comm)->direct->peers, at);
    colli_call_resume(comm);
  }
  return status;
}

coll_status coll_mem_alloc_gpu(coll_comm *comm, size_t bytes, void **ptr) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (ptr) {
    *ptr = NULL;
    status = allocate(comm, bytes, ptr);
  } else {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, allocating.name, "ptr is NULL");
  }
  colli_call_leave(comm);
  return status;
}

/* ---- the end --------------------------------------------------------------------------------- */

/* Waits until this rank's streams have ended the calls that use some memory; not so long that the
 * other ranks give it up. */
static coll_status await_calls(coll_comm *comm, const coll_registration *it, coll_error *error) {
  const uint64_t now_ns = colli_now_ns();
  const uint64_t wait_ns = comm->watch.timeout_ns / 2, until_ns = now_ns + wait_ns;
  const uint64_t graphs_ns = now_ns + (wait_ns < RELEASE_NS ? wait_ns : RELEASE_NS);
  colli_comm_wait_begin(comm);
  while (comm->failure.status == COLL_OK && (it->eager > 0 || it->graphs > 0)) {
    colli_batches_free_released(reading(comm)->streams);
    const uint64_t limit_ns = it->eager > 0 ? until_ns : graphs_ns;
    if ((it->eager > 0 || it->graphs > 0) && colli_now_ns() >= limit_ns)
      break;
    colli_comm_wait_a_bit(comm, limit_ns);
  }
  if (it->eager > 0)
    return colli_error_set(error, COLL_ERR_TIMEOUT, NULL,
                           "a stream has not ended a call that uses the memory");
  if (it->graphs > 0)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, NULL,
                           "a graph has a call that uses the memory; destroy it first");
  return COLL_OK;
}

/* Takes a registration out of the list, and frees it if no stream uses it. */
static void forget(coll_comm *comm, coll_registration *it) {
  coll_registration **at = &reading(comm)->direct->registered;
  while (*at != it)
    at = &(*at)->next;
  *at = it->next;
  unmap(comm, it);
  free(it);
}

/* Ends a registration on all ranks. *gone: nobody has the memory mapped any more. */
static coll_status end(coll_comm *comm, const colli_direct_matter *matter, coll_registration *it,
                       bool *gone) {
  coll_error error = COLL_ERROR_INIT;
  coll_status status = get_ready(comm, matter->name);
  *gone = false;
  if (status == COLL_OK) {
    const coll_status mine = await_calls(comm, it, &error);
    status = colli_direct_agree(comm, matter, mine, &error, COLL_OK);
  }
  if (status != COLL_OK && comm->failure.status == COLL_OK)
    return status;
  if (comm->failure.status != COLL_OK) /* it ends with the communicator */
    return comm->failure.status;
  forget(comm, it);
  *gone = colli_direct_await(comm, matter, UINT64_MAX / 2); /* it ends by its own deadline */
  return comm->failure.status;
}

/* The entry of the list with this address, or NULL. */
static coll_registration *find_entry(coll_comm *comm, const coll_registration *it) {
  coll_registration *at = reading(comm)->direct ? reading(comm)->direct->registered : NULL;
  while (at && at != it)
    at = at->next;
  return at;
}

coll_status coll_comm_deregister(coll_comm *comm, coll_registration **registration) {
  bool gone;
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  coll_registration *it = registration ? find_entry(comm, *registration) : NULL;
  if (!it || it->owned) {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, ending.name,
                               "not a registration of this communicator");
  } else {
    status = end(comm, &ending, it, &gone);
    if (status == COLL_OK || comm->failure.status != COLL_OK)
      *registration = NULL;
  }
  colli_call_leave(comm);
  return status;
}

/* The registration of memory that coll_mem_alloc_gpu() gave, or NULL. */
static coll_registration *find_owned(coll_comm *comm, const void *at) {
  coll_registration *it = reading(comm)->direct ? reading(comm)->direct->registered : NULL;
  while (it && !(it->owned && it->own == (uint64_t)at))
    it = it->next;
  return it;
}

bool colli_direct_owns(coll_comm *comm, const void *at) {
  return at && find_owned(comm, at) != NULL;
}

coll_status colli_direct_mem_free(coll_comm *comm, const void *at) {
  bool gone;
  const coll_status status = end(comm, &freeing, find_owned(comm, at), &gone);
  if (gone) {
    colli_call_pause(comm);
    colli_gpu_memory_give(reading(comm)->direct->peers, (void *)at);
    colli_call_resume(comm);
  }
  return status;
}

void colli_direct_unmap_registered(colli_direct *direct) {
  for (coll_registration *it = direct->registered; it; it = it->next)
    colli_gpu_memory_unmap(direct->peers, &it->memory);
}

void colli_direct_free_registered(colli_direct *direct, bool keep) {
  for (coll_registration *it = direct->registered, *next; it; it = next) {
    next = it->next;
    if (it->owned && !keep)
      colli_gpu_memory_give(direct->peers, (void *)it->own);
    free(it);
  }
  direct->registered = NULL;
}
