/*
 * witness.c: looks at ranks that do not answer, and tells all others what it sees. All ranks of
 * their host that are in a call do so, because nobody knows which of them are; but not if another
 * one was faster. The kernel decides whose page may be read (libcoll/status). If none is in a call,
 * the first ranks of other hosts that wait ask the service of that host, which is quick enough if
 * the network is: the deadline does not wait for it.
 */
#include "libcoll/failure/witness.h"

#include <string.h>

#include "libcoll/comm/notice_send.h"
#include "libcoll/status/look.h"
#include "libcoll/status/service.h"

#define FRESH_NS (1000 * COLLI_NS_PER_MS) /* reports so long after a question are answers to it */
#define AGAIN_NS (50 * COLLI_NS_PER_MS)   /* what was seen just now is not looked at again */
#define MOST     8                        /* pages that are read for one question */
#define ASKERS   2                        /* so many lower ranks that wait are enough to ask */

/* ---- who is silent ------------------------------------------------------------------------- */

/* Whether a report is one of a rank that waits, and that is not late in repeating it. */
static bool is_current(const colli_report *report, uint64_t now_ns) {
  return report->heard_ns && !report->idle && now_ns - report->heard_ns < 5 * report->again_ns / 2;
}

/* The first rank on a rank's host. */
static int host_of(const colli_family *family, int rank) {
  return colli_rank_host(family->table, rank);
}

/* The process of a rank. */
static int pid_of(const colli_family *family, int rank) {
  return colli_rank_at(family->table, rank).pid;
}

static bool is_far(const colli_family *family, int rank) {
  return host_of(family, rank) != host_of(family, family->rank);
}

/* Whether this rank can look at another one, or have somebody look. */
static bool can_see(const colli_family *family, int rank) {
  if (is_far(family, rank))
    return family->service != NULL;
  return pid_of(family, rank) != pid_of(family, family->rank);
}

/* Whether a rank, for which others wait in communicator `uid`, is another process that has not said
 * what holds it up. */
static bool is_silent(const colli_family *family, int rank, uint64_t uid, uint64_t now_ns) {
  if (!can_see(family, rank) || family->lost[rank] || family->left[rank])
    return false;
  for (const colli_report *r = family->reports->at[rank].waits; r; r = r->next)
    if (is_current(r, now_ns) && (r->inside || r->uid == uid))
      return false;
  return true;
}

/* Whether a rank waits in a call, as far as is known. */
static bool waits_inside(const colli_family *family, int rank, uint64_t now_ns) {
  for (const colli_report *r = family->reports->at[rank].waits; r; r = r->next)
    if (is_current(r, now_ns) && r->inside)
      return true;
  return false;
}

/* Whether this rank is to ask about a rank of another host: no rank there can look at it, and few
 * are before this one, so that a host need not answer all others. */
static bool is_to_ask(const colli_family *family, int rank, uint64_t now_ns) {
  const colli_status_post *posts;
  const int nposts = colli_status_service_posts(family->service, &posts);
  int before = 0;
  for (int i = 0; i < nposts && before < ASKERS; i++)
    before += posts[i].rank < family->rank && waits_inside(family, posts[i].rank, now_ns);
  for (int r = 0; r < family->nranks && before < ASKERS; r++)
    if (host_of(family, r) == host_of(family, rank) && waits_inside(family, r, now_ns))
      return false;
  return before < ASKERS;
}

/* ---- what is seen -------------------------------------------------------------------------- */

/* Keeps what was seen of rank msg->peer. */
static void keep(colli_report *report, const colli_ctrl_msg *msg, uint64_t now_ns) {
  colli_seen *seen = &report->seen;
  seen->at_ns = seen->looked_ns = now_ns;
  seen->entered = msg->sequence;
  seen->ended = msg->ended;
  seen->since_ms = msg->since_ms;
  seen->pending = msg->pending;
  seen->state = (uint8_t)msg->state;
  memcpy(seen->tag.word, msg->signature, sizeof(msg->signature));
}

/* Tells all others what was seen of a rank, and keeps it. */
static void tell(colli_family *family, int rank, uint64_t uid, const colli_status_sight *sight,
                 uint64_t now_ns) {
  colli_report *report = colli_reports_get(family->reports, rank, uid);
  const uint64_t age_ms = sight->since_ns / COLLI_NS_PER_MS;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_ANSWER,
                        .peer = rank,
                        .sequence = sight->entered,
                        .since_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX,
                        .ended = sight->ended,
                        .state = sight->state,
                        .pending = sight->pending};
  memcpy(msg.signature, sight->tag.word, sizeof(msg.signature));
  colli_notice_send(family, uid, &msg);
  if (report)
    keep(report, &msg, now_ns);
}

/* Looks at a rank, or asks its host, unless somebody has just done so; returns whether it took the
 * time. */
static bool look(colli_family *family, int rank, uint64_t uid, uint64_t now_ns) {
  colli_report *report = colli_reports_get(family->reports, rank, uid);
  colli_status_sight sight;
  if (!report || (report->seen.looked_ns && now_ns - report->seen.looked_ns < AGAIN_NS))
    return false;
  report->seen.looked_ns = now_ns;
  if (is_far(family, rank)) {
    const colli_status_far wanted = {.host_id = colli_rank_at(family->table, rank).host_id,
                                     .uid = uid,
                                     .rank = rank,
                                     .asked_ns = now_ns};
    if (is_to_ask(family, rank, now_ns))
      (void)colli_status_service_look(family->service, &wanted);
  } else if (colli_status_look(pid_of(family, rank), family->comm_id, rank, uid, &sight)) {
    tell(family, rank, uid, &sight, now_ns);
  }
  return true;
}

/* Looks at the silent ranks for which another one says that it waits; returns at how many. */
static int look_for(colli_family *family, const colli_report *report, uint64_t now_ns) {
  int looks = 0;
  for (int i = 0; i < report->nwaits; i++)
    if (is_silent(family, report->waits[i], report->uid, now_ns))
      looks += look(family, report->waits[i], report->uid, now_ns);
  return looks;
}

void colli_witness_asked(colli_family *family) {
  const uint64_t now_ns = family->world.now_ns(family->world.ctx);
  const uint64_t before_ns = family->reports->asked_ns;
  int looks = 0;
  family->reports->asked_ns = now_ns;
  if (!colli_world_is_real(&family->world) || (before_ns && now_ns - before_ns < AGAIN_NS))
    return;
  for (int rank = 0; rank < family->nranks && looks < MOST; rank++)
    for (colli_report *r = family->reports->at[rank].waits; r && looks < MOST; r = r->next)
      if (is_current(r, now_ns))
        looks += look_for(family, r, now_ns);
}

void colli_witness_told(colli_family *family, const colli_ctrl_msg *waiting) {
  const uint64_t now_ns = family->world.now_ns(family->world.ctx);
  const uint64_t asked_ns = family->reports->asked_ns;
  if (!colli_world_is_real(&family->world) || !asked_ns || now_ns - asked_ns >= FRESH_NS)
    return;
  for (colli_report *r = family->reports->at[waiting->origin].waits; r; r = r->next)
    if (r->uid == waiting->uid && is_current(r, now_ns))
      look_for(family, r, now_ns);
}

void colli_witness_take(colli_family *family) {
  colli_status_far far;
  while (family->service && colli_status_service_seen(family->service, &far)) {
    const uint64_t now_ns = family->world.now_ns(family->world.ctx);
    if (far.found && now_ns - far.asked_ns < FRESH_NS)
      tell(family, far.rank, far.uid, &far.sight, now_ns);
  }
}

void colli_witness_heard(colli_family *family, const colli_ctrl_msg *msg) {
  colli_report *report = colli_reports_get(family->reports, msg->peer, msg->uid);
  if (report)
    keep(report, msg, family->world.now_ns(family->world.ctx));
}

/* ---- what is said of it -------------------------------------------------------------------- */

const colli_seen *colli_witness_of(const coll_comm *comm, int base_rank, uint64_t uid) {
  for (const colli_report *r = comm->family->reports->at[base_rank].waits; r; r = r->next)
    if (r->uid == uid && r->seen.at_ns && r->seen.at_ns + FRESH_NS >= comm->watch.asked_ns)
      return &r->seen;
  return NULL;
}

const char *colli_witness_state_text(const colli_seen *seen) {
  switch (seen->state) {
  case 'R':
    return seen->pending ? "it is running" : "it runs its own code";
  case 'S':
    return seen->pending ? "its main thread sleeps"
                         : "it is in its own code, where its main thread sleeps";
  case 'D':
    return "it waits in the kernel, perhaps for a disk";
  case 'T':
    return "it is stopped by a signal (SIGCONT continues it)";
  case 't':
    return "it is stopped by a debugger";
  default:
    return NULL;
  }
}
