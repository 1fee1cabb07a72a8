/* mux.c: the shared connections of a family, and the communicators that use them. */
#include "libcoll/comm/mux/mux.h"

#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/comm/mux/mux_internal.h"

/* ---- the whole ------------------------------------------------------------------------------- */

colli_mux *colli_mux_create(colli_family *family, size_t slot_bytes, unsigned slot_count) {
  colli_mux *mux = calloc(1, sizeof(*mux));
  if (!mux)
    return NULL;
  mux->family = family;
  mux->slot_bytes = slot_bytes;
  mux->batch = slot_count / 2 + 1;
  mux->window = slot_count + mux->batch - 1; /* slot_count, whatever is not told yet */
  mux->nbuckets = 64;
  mux->link_to = calloc((size_t)family->nranks, sizeof(*mux->link_to));
  mux->buckets = calloc(mux->nbuckets, sizeof(*mux->buckets));
  if (mux->link_to && mux->buckets)
    return mux;
  colli_mux_destroy(mux);
  return NULL;
}

void colli_mux_destroy(colli_mux *mux) {
  if (!mux)
    return;
  while (mux->links) {
    mux_link *link = mux->links;
    mux->links = link->next;
    mux_link_free(link);
  }
  for (int i = 0; i < 2; i++)
    while (mux->spare[i]) {
      mux_msg *msg = mux->spare[i];
      mux->spare[i] = msg->next;
      free(msg);
    }
  free(mux->link_to);
  free(mux->buckets);
  free(mux);
}

/* Takes in arrived messages, and sends delayed ones. */
int colli_mux_progress(colli_mux *mux) {
  for (mux_link *link = mux->links; link; link = link->next) {
    link->filling = false; /* whoever acquired the slot has given up */
    mux_link_drain(link);
    mux_link_flush(link);
  }
  bool moved = mux->moved;
  mux->moved = false;
  return moved;
}

/* ---- communicators --------------------------------------------------------------------------- */

/* Begins a communicator. Numbers are assigned cyclically, so that none is reused soon. */
colli_mux_child *colli_mux_begin(colli_mux *mux) {
  colli_mux_child *child = calloc(1, sizeof(*child));
  for (int tries = 1; child && tries < MUX_NUMBERS; tries++) {
    int number = (mux->last_number + tries) % MUX_NUMBERS;
    if (number == 0 || mux->children[number])
      continue;
    COLLI_ASSERT_RANK(number > 0 && number < MUX_NUMBERS, mux->family->rank);
    child->mux = mux;
    child->number = mux->last_number = number;
    mux->children[number] = child;
    return child;
  }
  free(child);
  return NULL;
}

int colli_mux_number(const colli_mux_child *child) {
  return child->number;
}

coll_status colli_mux_complete(colli_mux_child *child, int nranks, const int32_t *base_ranks,
                               const int32_t *ranks_of, const uint16_t *numbers) {
  child->gone = calloc((size_t)nranks, sizeof(*child->gone));
  if (!child->gone)
    return COLL_ERR_NO_MEMORY;
  child->nranks = nranks;
  child->base_ranks = base_ranks;
  child->ranks_of = ranks_of;
  child->numbers = numbers;
  child->next = child->mux->complete;
  child->mux->complete = child;
  return COLL_OK;
}

/* Tells all connected peers that this rank has closed the communicator. */
static void tell_peers(const colli_mux_child *child) {
  for (int rank = 0; rank < child->nranks; rank++) {
    mux_link *link = child->mux->link_to[child->base_ranks[rank]];
    if (link && !child->gone[rank])
      mux_link_note(link, MUX_GONE, child->number, 0, 0);
  }
}

/* Ends a communicator, complete or not. */
void colli_mux_close(colli_mux_child *child) {
  if (!child)
    return;
  if (!child->mute)
    tell_peers(child);
  while (child->vcs) {
    mux_vc *vc = child->vcs;
    child->vcs = vc->next_of_child;
    mux_vc_free(vc);
  }
  colli_mux_child **at = &child->mux->complete;
  while (*at && *at != child)
    at = &(*at)->next;
  if (*at)
    *at = child->next;
  COLLI_ASSERT(child->mux->children[child->number] == child);
  child->mux->children[child->number] = NULL;
  free(child->gone);
  free(child);
}

/* The communicator failed: drops what arrives for it, and tells the peers. */
void colli_mux_mute(colli_mux_child *child) {
  if (!child)
    return;
  child->mute = true;
  tell_peers(child);
  for (mux_vc *vc = child->vcs; vc; vc = vc->next_of_child)
    mux_vc_empty(vc);
}
