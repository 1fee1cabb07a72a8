/*
 * service_look.c: a rank that waits has its desk look at ranks of other hosts. The rank and the
 * desk's thread share a few requests; a request belongs to one of them at a time.
 */
#include <unistd.h>

#include "libcoll/status/service_internal.h"

int colli_status_service_posts(const colli_status_service *service,
                               const colli_status_post **posts) {
  *posts = service->plan.posts;
  return service->plan.nposts;
}

/* ---- the rank -------------------------------------------------------------------------------- */

/* Whether there is a request for that already. */
static bool is_wanted(const colli_status_service *service, const colli_status_far *wanted) {
  for (int i = 0; i < STATUS_LOOKS; i++) {
    const status_look *look = &service->looks[i];
    if (atomic_load(&look->stage) != STATUS_FREE && look->far.rank == wanted->rank &&
        look->far.uid == wanted->uid)
      return true;
  }
  return false;
}

bool colli_status_service_look(colli_status_service *service, const colli_status_far *wanted) {
  if (is_wanted(service, wanted))
    return true;
  for (int i = 0; i < STATUS_LOOKS; i++) {
    status_look *look = &service->looks[i];
    if (atomic_load(&look->stage) != STATUS_FREE)
      continue;
    look->far = *wanted;
    look->far.found = false;
    service->nlooks++;
    atomic_store(&look->stage, STATUS_ASKED);
    status_signal(service->look_fd);
    return true;
  }
  return false;
}

bool colli_status_service_seen(colli_status_service *service, colli_status_far *result) {
  for (int i = 0; i < STATUS_LOOKS && service->nlooks > 0; i++) {
    status_look *look = &service->looks[i];
    if (atomic_load(&look->stage) != STATUS_DONE)
      continue;
    *result = look->far;
    service->nlooks--;
    atomic_store(&look->stage, STATUS_FREE);
    return true;
  }
  return false;
}

/* ---- the desk -------------------------------------------------------------------------------- */

/* Requests about one host, and what is left of them. */
typedef struct visit {
  colli_status_service *service;
  status_look *looks[STATUS_LOOKS];
  int nlooks;
} visit;

/* Ends a request of a visit, whose place the last one takes. */
static void end_look(visit *v, int i) {
  atomic_store(&v->looks[i]->stage, STATUS_DONE);
  v->looks[i] = v->looks[--v->nlooks];
}

/* Looks for all that is wanted in a copy. */
static bool take_copy(void *ctx, void *copy, size_t bytes) {
  visit *v = ctx;
  if (colli_status_check(copy, bytes))
    return true;
  for (int i = v->nlooks - 1; i >= 0; i--) {
    colli_status_far *far = &v->looks[i]->far;
    far->found =
        colli_status_sight_in(copy, v->service->plan.comm_id, far->rank, far->uid, &far->sight);
    if (far->found)
      end_look(v, i);
  }
  return v->nlooks > 0;
}

/* Answers all requests about the host of one of them. */
static void visit_host(colli_status_service *service, const status_look *first) {
  const colli_status_far wanted = first->far;
  visit v = {.service = service};
  for (int i = 0; i < STATUS_LOOKS; i++) {
    status_look *look = &service->looks[i];
    if (atomic_load(&look->stage) == STATUS_ASKED && look->far.host_id == wanted.host_id)
      v.looks[v.nlooks++] = look;
  }
  status_fetch_host(service, wanted.host_id, wanted.rank,
                    wanted.asked_ns + STATUS_LOOK_MS * COLLI_NS_PER_MS, take_copy, &v);
  while (v.nlooks > 0)
    end_look(&v, 0);
}

void status_answer_looks(colli_status_service *service) {
  uint64_t count;
  (void)!read(service->look_fd, &count, sizeof(count)); /* before looking: no request is missed */
  for (int i = 0; i < STATUS_LOOKS; i++)
    if (atomic_load(&service->looks[i].stage) == STATUS_ASKED)
      visit_host(service, &service->looks[i]);
}
