/* text.c: prints tables for people. */
#include "collctl.h"

/* "1.5 MiB" */
static const char *bytes_text(uint64_t bytes, char text[32]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double size = (double)bytes;
  int unit = 0;
  for (; size >= 1024 && unit < 4; unit++)
    size /= 1024;
  snprintf(text, 32, "%.4g %s", size, units[unit]);
  return text;
}

/* What a rank does on a communicator, in one line. */
static void print_doing(const colli_status_head *page, const colli_status_comm *member, FILE *out) {
  char text[CTL_OP_TEXT];
  ctl_op op = ctl_oldest_pending(member), last = ctl_last_ended(member);
  int more = ctl_count_pending(member) - 1;
  if (member->failed)
    fprintf(out, "revoked (%s); ", coll_status_name((coll_status)member->failed));
  if (op.flight)
    fprintf(out, "%s for %.1f s", ctl_op_text(op, text),
            colli_status_age_s(page, op.flight->begun));
  if (op.flight && more > 0)
    fprintf(out, " (and %d more)", more);
  if (!op.flight && last.flight)
    fprintf(out, "none; last was %s, finished %.1f s ago", ctl_op_text(last, text),
            colli_status_age_s(page, last.flight->ended));
  if (!op.flight && !last.flight)
    fprintf(out, "none; none before");
  fputc('\n', out);
}

/* ---- list ------------------------------------------------------------------------------------ */

/* The communicator of a process whose operation has taken longest; the base if it is in none. */
static const colli_status_comm *busiest(colli_status_head *page) {
  const colli_status_comm *found = NULL;
  double longest = -1;
  for (unsigned i = 0; i < page->ncomms; i++) {
    const colli_status_comm *member = colli_status_comm_at(page, i);
    ctl_op op = ctl_oldest_pending(member);
    double age = op.flight ? colli_status_age_s(page, op.flight->begun) : -0.5;
    if (age > longest) {
      found = member;
      longest = age;
    }
  }
  return found;
}

static void print_list(const ctl_view *view, FILE *out) {
  fprintf(out, "%8s %6s %6s  %-16s %-10s %6s  %s\n", "pid", "rank", "of", "job", "state", "comms",
          "operation");
  for (int f = 0; f < view->nfamilies; f++)
    for (int rank = 0; rank < view->families[f].nranks; rank++) {
      colli_status_head *page = view->families[f].pages[rank];
      const colli_status_comm *member = page ? busiest(page) : NULL;
      if (!member)
        continue;
      fprintf(out, "%8d %6d %6d  %016llx %-10s %6llu  \"%s\": ", page->seen_pid, rank, page->nranks,
              (unsigned long long)page->comm_id, ctl_state_name(page->state),
              (unsigned long long)(page->ncomms + page->unshown), member->name);
      print_doing(page, member, out);
    }
}

/* ---- show ------------------------------------------------------------------------------------ */

/* What each rank of a communicator does. */
static void print_comm(const ctl_comm *comm, FILE *out) {
  fprintf(out, "communicator \"%s\", %d rank%s\n", comm->name, comm->nranks,
          comm->nranks > 1 ? "s" : "");
  fprintf(out, "%6s  %-16s %8s %-10s %12s  %s\n", "rank", "host", "pid", "state", "collectives",
          "operation");
  for (int rank = 0; rank < comm->nranks; rank++) {
    const colli_status_rank *info = comm->info[rank];
    const colli_status_head *page = comm->pages[rank];
    fprintf(out, "%6d  %-16s %8d ", rank, info->host, page ? page->seen_pid : info->pid);
    if (!page) {
      fprintf(out, "not seen: it is on another host, belongs to another user, or is gone\n");
      continue;
    }
    fprintf(out, "%-10s %12llu  ", ctl_state_name(page->state),
            (unsigned long long)comm->members[rank]->flights.last);
    print_doing(page, comm->members[rank], out);
  }
  char late[CTL_LATE_TEXT];
  for (int rank = 0; rank < comm->nranks; rank++)
    if (ctl_is_late(comm, rank, late))
      fprintf(out, "%s\n", late);
  fputc('\n', out);
}

/* ---- dump ------------------------------------------------------------------------------------ */

/* The flight record of one rank, and what it has sent. */
static void print_member(const ctl_comm *comm, int rank, FILE *out) {
  const colli_status_head *page = comm->pages[rank];
  const colli_status_comm *member = comm->members[rank];
  char text[CTL_OP_TEXT], size[32];
  int place = 0;
  fprintf(out, "rank %d of \"%s\" (host %s, pid %d): %llu collectives, %llu messages\n", rank,
          comm->name, page->host, page->seen_pid, (unsigned long long)member->flights.last,
          (unsigned long long)member->flights.nmessages);
  for (int peer = 0; peer < comm->nranks; peer++) {
    const colli_status_rank *link =
        &colli_status_ranks((colli_status_head *)page)[colli_status_base_rank(member, peer)];
    if (peer == rank)
      continue;
    fprintf(out, "  to rank %d over %s (%s): %s sent", peer, link->transport, link->link,
            bytes_text(member->peers[peer].sent_bytes, size));
    if (link->rails > 0)
      fprintf(out, ", %u rails, %u of them lost", link->rails, link->lost_rails);
    fputc('\n', out);
  }
  for (ctl_op op = ctl_next_op(member, &place); op.flight; op = ctl_next_op(member, &place)) {
    double begun = colli_status_age_s(page, op.flight->begun);
    fprintf(out, "  %s: begun %.6f s ago, ", ctl_op_text(op, text), begun);
    if (op.flight->ended)
      fprintf(out, "took %.6f s, %s\n", begun - colli_status_age_s(page, op.flight->ended),
              coll_status_name((coll_status)op.flight->status));
    else
      fprintf(out, "in flight\n");
  }
  fputc('\n', out);
}

/* Which rails a rank of a job has lost, in one line, if there are any. */
static void print_lost_rails(colli_status_head *page, FILE *out) {
  const colli_status_rank *ranks = colli_status_ranks(page);
  const char *between = "";
  for (int peer = 0; peer < page->nranks; peer++) {
    const colli_status_rank *link = &ranks[peer];
    if (link->lost_rails == 0)
      continue;
    if (!*between)
      fprintf(out, "rank %d of the job (host %s, pid %d) has lost rails: ", page->rank, page->host,
              page->seen_pid);
    fprintf(out, "%s%u of %u to rank %d (host %s)", between, link->lost_rails, link->rails, peer,
            link->host);
    between = ", ";
  }
  if (*between)
    fputs("; look at the network interfaces and cables that these hosts share\n\n", out);
}

void ctl_print_text(const ctl_view *view, ctl_command command, FILE *out) {
  if (command == CTL_LIST)
    print_list(view, out);
  for (int f = 0; command != CTL_LIST && f < view->nfamilies; f++) {
    const ctl_family *family = &view->families[f];
    fprintf(out, "job %016llx, %d rank%s\n\n", (unsigned long long)family->comm_id, family->nranks,
            family->nranks > 1 ? "s" : "");
    for (int rank = 0; rank < family->nranks; rank++)
      if (family->pages[rank])
        print_lost_rails(family->pages[rank], out);
    for (int c = 0; c < family->ncomms; c++)
      print_comm(&family->comms[c], out);
    for (int c = 0; command == CTL_DUMP && c < family->ncomms; c++)
      for (int rank = 0; rank < family->comms[c].nranks; rank++)
        if (family->comms[c].pages[rank])
          print_member(&family->comms[c], rank, out);
  }
}
