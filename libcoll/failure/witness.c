/*
 * witness.c: looks at ranks of this host that do not answer, and tells all others what it sees.
 * All ranks of a host that are in a call do so, because nobody knows which of them are; but not if
 * another one was faster. The kernel decides whose page may be read (libcoll/status).
 */
#include "libcoll/failure/witness.h"

#include <string.h>

#include "libcoll/comm/notice_send.h"
#include "libcoll/status/look.h"

#define FRESH_NS (1000 * COLLI_NS_PER_MS) /* reports so long after a question are answers to it */
#define AGAIN_NS (50 * COLLI_NS_PER_MS)   /* what was seen just now is not looked at again */
#define MOST     8                        /* pages that are read for one question */

/* ---- who is silent ------------------------------------------------------------------------- */

/* Whether a report is one of a rank that waits, and that is not late in repeating it. */
static bool is_current(const colli_report *report, uint64_t now_ns) {
  return report->heard_ns && !report->idle && now_ns - report->heard_ns < 5 * report->again_ns / 2;
}

/* Whether a rank, for which others wait in communicator `uid`, is another process of this host that
 * has not said what holds it up. */
static bool is_silent(const colli_family *family, int rank, uint64_t uid, uint64_t now_ns) {
  const colli_rank_info *here = &family->table[family->rank], *there = &family->table[rank];
  if (there->host_id != here->host_id || there->pid == here->pid || family->lost[rank] ||
      family->left[rank])
    return false;
  for (const colli_report *r = family->reports->at[rank].waits; r; r = r->next)
    if (is_current(r, now_ns) && (r->inside || r->uid == uid))
      return false;
  return true;
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

/* Looks at a rank, unless somebody has just done so; returns whether it took the time. */
static bool look(colli_family *family, int rank, uint64_t uid, uint64_t now_ns) {
  colli_report *report = colli_reports_get(family->reports, rank, uid);
  colli_status_sight sight;
  if (!report || (report->seen.looked_ns && now_ns - report->seen.looked_ns < AGAIN_NS))
    return false;
  report->seen.looked_ns = now_ns;
  if (!colli_status_look(family->table[rank].pid, family->comm_id, rank, uid, &sight))
    return true;
  const uint64_t age_ms = sight.since_ns / COLLI_NS_PER_MS;
  colli_ctrl_msg msg = {.kind = COLLI_CTRL_ANSWER,
                        .peer = rank,
                        .sequence = sight.entered,
                        .since_ms = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX,
                        .ended = sight.ended,
                        .state = sight.state,
                        .pending = sight.pending};
  memcpy(msg.signature, sight.tag.word, sizeof(msg.signature));
  colli_notice_send(family, uid, &msg);
  keep(report, &msg, now_ns);
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
