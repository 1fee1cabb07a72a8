/* reports.c: keeps what the other ranks of a family have said of themselves. */
#include "libcoll/comm/reports.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST                                                                                       \
  16 /* communicators in which one rank is known to wait; the oldest report goes first             \
      */

colli_reports *colli_reports_create(int nranks) {
  return calloc(1, sizeof(colli_reports) + (size_t)nranks * sizeof(colli_rank_reports));
}

colli_report *colli_reports_get(colli_reports *reports, int rank, uint64_t uid) {
  colli_rank_reports *of_rank = &reports->at[rank];
  colli_report *oldest = NULL, *report = of_rank->waits;
  int count = 0;
  for (; report && report->uid != uid; report = report->next, count++)
    if (!oldest || report->heard_ns < oldest->heard_ns)
      oldest = report;
  if (report)
    return report;
  if (count >= MOST) {
    *oldest = (colli_report){.next = oldest->next, .uid = uid};
    return oldest;
  }
  report = calloc(1, sizeof(*report));
  if (!report)
    return NULL;
  report->uid = uid;
  report->next = of_rank->waits;
  of_rank->waits = report;
  return report;
}

/* Fills in a failure. */
static void fill(colli_affected *affected, int root, const char *name, const coll_error *error) {
  affected->root = root;
  affected->status = error->status;
  snprintf(affected->name, sizeof(affected->name), "%s", name);
  memcpy(affected->message, error->message, sizeof(affected->message));
}

void colli_reports_note_affected(colli_reports *reports, const colli_ctrl_msg *msg) {
  colli_rank_reports *of_rank = &reports->at[msg->origin];
  for (colli_report **at = &of_rank->waits; *at; at = &(*at)->next)
    if ((*at)->uid == msg->uid) {
      colli_report *over = *at;
      *at = over->next;
      free(over);
      break;
    }
  if (!of_rank->affected)
    of_rank->affected = calloc(1, sizeof(*of_rank->affected));
  if (of_rank->affected)
    fill(of_rank->affected, msg->root, msg->name, &msg->error);
}

void colli_reports_note_recent(colli_reports *reports, int root, const char *name,
                               const coll_error *error, uint64_t now_ns, uint64_t old_ns) {
  if (reports->recent_ns == 0 || reports->recent_ns < old_ns)
    fill(&reports->recent, root, name, error);
  if (reports->recent.root == root)
    reports->recent_ns = now_ns;
}

void colli_reports_free(colli_reports *reports, int nranks) {
  for (int rank = 0; reports && rank < nranks; rank++) {
    for (colli_report *report = reports->at[rank].waits, *next; report; report = next) {
      next = report->next;
      free(report);
    }
    free(reports->at[rank].affected);
  }
  free(reports);
}
