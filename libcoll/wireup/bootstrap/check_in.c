/* check_in.c: runs one rank's part in a bootstrap: at the root, below it, or in between. */
#include "libcoll/base/assert.h"
#include "libcoll/base/clock.h"
#include "libcoll/base/error.h"
#include "libcoll/wireup/bootstrap/join.h"
#include "libcoll/wireup/bootstrap/late.h"

/* A rank's parts. */
typedef struct boot_parts {
  boot *b;
  boot_links *links;
  boot_server *server; /* of those that check in here; NULL: nobody does */
  boot_joiner *joiner; /* it checks in at another rank; NULL: it serves all */
} boot_parts;

/* Hands on what has come from below, and makes the table at the root. */
static coll_status pass_up(boot_parts *p) {
  boot_server *server = p->server;
  boot_joiner *joiner = p->joiner;
  if (server && !boot_server_is_full(server))
    return COLL_OK;
  if (!joiner)
    return p->links->have_table ? COLL_OK : boot_server_give_table(server);
  if (!joiner->records && server)
    boot_joiner_set_records(joiner, server->all, server->give_up_ns);
  if (joiner->linked && joiner->timed && !joiner->ready &&
      (!server || boot_server_is_ready(server)))
    boot_joiner_set_ready(joiner, server ? server->ahead : NULL, server ? server->told : NULL);
  return COLL_OK;
}

/* Serves those below. A rank that has said that all of them are ready cannot take that back: if one
 * of them fails then, it says so, and waits for the outcome as before. */
static coll_status step_server(boot_parts *p) {
  boot_joiner *joiner = p->joiner;
  if (!p->server || (joiner && joiner->fails))
    return COLL_OK;
  const coll_status status = boot_server_step(p->server);
  if (status == COLL_OK || !joiner || !joiner->ready)
    return status;
  boot_joiner_set_failure(joiner, status);
  colli_error_clear(p->b->error);
  return COLL_OK;
}

/* Whether this rank says for whom it waits when it is late: only in a tree. */
static bool may_say_wait(const boot_parts *p) {
  return p->b->place.fan_out > 0 && p->joiner && p->joiner->records && !p->joiner->ready;
}

/* Says for whom this rank waits, if it is late. */
static void say_wait(boot_parts *p) {
  if (!may_say_wait(p) || colli_now_ns() < boot_wait_ns(p->b, p->links))
    return;
  const int rank = boot_waits_for(p->b, p->links, p->server);
  if (rank >= 0)
    boot_joiner_set_wait(p->joiner, rank);
}

/* Does what can be done now. *over: all ranks are joined, or the outcome must be guessed. */
static coll_status step(boot_parts *p, bool *over) {
  boot *b = p->b;
  *over = false;
  coll_status status = step_server(p);
  if (status == COLL_OK)
    status = pass_up(p);
  if (status == COLL_OK && p->joiner)
    status = boot_joiner_step(p->joiner, over);
  if (status == COLL_OK && !*over)
    status = boot_lifelines_check(b);
  if (status != COLL_OK || *over)
    return status;
  const int result = boot_links_step(b, p->links);
  if (result > 0)
    return (coll_status)result;
  if (result == COLL_T_DONE && p->joiner && !p->joiner->linked)
    boot_joiner_set_linked(p->joiner);
  *over = result == COLL_T_DONE && !p->joiner && boot_server_is_ready(p->server);
  say_wait(p);
  if (!*over && p->server)
    status = boot_server_check_late(p->server);
  return status == COLL_OK && p->joiner ? boot_joiner_check_late(p->joiner, over) : status;
}

/* Waits until something happens. */
static void wait_for_events(boot_parts *p) {
  boot *b = p->b;
  boot_polls_clear(&b->polls, b->deadline_ns);
  if (p->server && !(p->joiner && p->joiner->fails))
    boot_server_watch(p->server);
  if (p->joiner)
    boot_joiner_watch(p->joiner);
  const uint64_t wait_ns = boot_wait_ns(b, p->links);
  if (may_say_wait(p) && colli_now_ns() < wait_ns)
    boot_polls_wake(&b->polls, wait_ns);
  boot_links_watch(b, p->links);
  boot_lifelines_watch(b);
  boot_note_errno(b, boot_polls_wait(&b->polls), true);
}

/* Counts what this rank has reached: after each, there may be something to send. */
static int progress(const boot_parts *p) {
  const boot_joiner *j = p->joiner;
  return j ? (j->records != NULL) + j->linked + j->timed + j->ready + j->fails : 0;
}

/* Runs until the outcome is known or something fails here. */
static coll_status await_outcome(boot_parts *p) {
  for (;;) {
    bool over;
    const int before = progress(p);
    const coll_status status = step(p, &over);
    if (status != COLL_OK || over)
      return status;
    if (progress(p) == before)
      wait_for_events(p);
  }
}

/* Tells those below the outcome, with the root's time. */
static coll_status pass_down(boot_parts *p, coll_status status, const colli_shared_time *time) {
  boot_server *server = p->server;
  boot_time told = {.zero_ns = time->zero_ns, .error_ns = time->error_ns};
  if (p->joiner)
    told = p->joiner->outcome.time;
  else if (status == COLL_OK)
    boot_time_tell(server->all, server->ranks, p->b->rank, server->ahead, server->told);
  return boot_server_tell(server, status, &told);
}

/* The outcome will not come: those below must decide, too. */
static coll_status decide(boot_parts *p) {
  if (p->server)
    boot_server_tell_doubt(p->server, p->joiner->lost);
  return boot_joiner_decide(p->joiner);
}

coll_status boot_check_in(boot *b, boot_links *links, int listen_fd, colli_shared_time *time) {
  boot_parts p = {.b = b, .links = links};
  coll_status status = COLL_OK;
  COLLI_ASSERT_RANK((listen_fd >= 0) == (boot_place_children(&b->place) > 0), b->rank);
  if (b->place.depth > 0 && !(p.joiner = boot_joiner_open(b, links)))
    status = b->error->status;
  if (status == COLL_OK && listen_fd >= 0 && !(p.server = boot_server_open(b, links, listen_fd)))
    status = b->error->status;
  if (status == COLL_OK && p.joiner && !p.server)
    boot_joiner_set_records(p.joiner, b->mine, b->deadline_ns);
  if (status == COLL_OK)
    status = await_outcome(&p);
  if (status == COLL_OK && p.joiner && p.joiner->lost >= 0) {
    status = decide(&p);
  } else {
    if (status != COLL_OK && p.joiner)
      boot_joiner_report(p.joiner, status);
    if (p.server)
      status = pass_down(&p, status, time);
  }
  if (p.joiner)
    *time = boot_time_share(&p.joiner->outcome.time);
  boot_joiner_close(p.joiner);
  boot_server_close(p.server);
  return status;
}
