/* json.c: prints all that is known as one JSON object. docs/collctl.md describes it. */
#include "collctl.h"

void ctl_print_quoted(const char *text, FILE *out) {
  fputc('"', out);
  for (; *text; text++) {
    if (*text == '"' || *text == '\\')
      fputc('\\', out);
    fputc(*text, out);
  }
  fputc('"', out);
}

/* "name": text */
static void print_text(const char *name, const char *text, FILE *out) {
  fprintf(out, "\"%s\": ", name);
  ctl_print_quoted(text, out);
}

/* An operation: {"operation": ..., "number": 3, "age_s": 1.5, ...} */
static void print_op(const colli_status_head *page, ctl_op op, FILE *out) {
  char text[CTL_OP_TEXT];
  const colli_flight *flight = op.flight;
  if (!flight) {
    fputs("null", out);
    return;
  }
  fputc('{', out);
  print_text("operation", ctl_op_text(op, text), out);
  fprintf(out, ", \"collective\": %s, \"number\": %llu, \"begun_s_ago\": %.9f",
          op.name ? "false" : "true", (unsigned long long)flight->number,
          colli_status_age_s(page, flight->begun));
  if (flight->ended) {
    fprintf(out, ", \"ended_s_ago\": %.9f, ", colli_status_age_s(page, flight->ended));
    print_text("status", coll_status_name((coll_status)flight->status), out);
  }
  if (op.name && flight->peer >= 0)
    fprintf(out, ", \"peer\": %d", flight->peer);
  fputc('}', out);
}

/* The operations of a record, or only those in flight. */
static void print_ops(const ctl_comm *comm, int rank, bool all, FILE *out) {
  const char *comma = "";
  int place = 0;
  fputc('[', out);
  for (ctl_op op = ctl_next_op(comm->members[rank], &place); op.flight;
       op = ctl_next_op(comm->members[rank], &place)) {
    if (!all && op.flight->ended)
      continue;
    fputs(comma, out);
    print_op(comm->pages[rank], op, out);
    comma = ", ";
  }
  fputc(']', out);
}

/* What one process shows of a communicator. */
static void print_member(const ctl_comm *comm, int rank, bool all, FILE *out) {
  const colli_status_comm *member = comm->members[rank];
  char late[CTL_LATE_TEXT];
  fprintf(out, ", \"collectives\": %llu, \"messages\": %llu",
          (unsigned long long)member->flights.last, (unsigned long long)member->flights.nmessages);
  if (member->failed) {
    fputs(", ", out);
    print_text("revoked", coll_status_name((coll_status)member->failed), out);
  }
  fputs(", \"pending\": ", out);
  print_ops(comm, rank, false, out);
  fputs(", \"last\": ", out);
  print_op(comm->pages[rank], ctl_last_ended(member), out);
  if (ctl_is_late(comm, rank, late)) {
    fputs(", ", out);
    print_text("late", late, out);
  }
  fputs(", \"sent_bytes\": [", out);
  for (int peer = 0; peer < comm->nranks; peer++)
    fprintf(out, "%s%llu", peer ? ", " : "", (unsigned long long)member->peers[peer].sent_bytes);
  fputc(']', out);
  if (all) {
    fputs(", \"operations\": ", out);
    print_ops(comm, rank, true, out);
  }
}

static void print_comm(const ctl_comm *comm, bool all, FILE *out) {
  fputs("{", out);
  print_text("name", comm->name, out);
  fprintf(out, ", \"id\": \"%llx\", \"ranks\": [", (unsigned long long)comm->uid);
  for (int rank = 0; rank < comm->nranks; rank++) {
    fprintf(out, "%s\n      {\"rank\": %d, ", rank ? "," : "", rank);
    print_text("host", comm->info[rank]->host, out);
    fprintf(out, ", \"pid\": %d, \"seen\": %s",
            comm->pages[rank] ? comm->pages[rank]->seen_pid : comm->info[rank]->pid,
            comm->pages[rank] ? "true" : "false");
    if (comm->pages[rank])
      print_member(comm, rank, all, out);
    fputs("}", out);
  }
  fputs("]}", out);
}

/* A process, and how it reaches the others. */
static void print_process(colli_status_head *page, FILE *out) {
  fprintf(out, "{\"rank\": %d, \"pid\": %d, ", page->rank, page->seen_pid);
  print_text("host", page->host, out);
  fputs(", ", out);
  print_text("state", ctl_state_name(page->state), out);
  fprintf(out, ", \"communicators\": %llu, \"links\": [",
          (unsigned long long)(page->ncomms + page->unshown));
  for (int rank = 0; rank < page->nranks; rank++) {
    const colli_status_rank *link = &colli_status_ranks(page)[rank];
    fprintf(out, "%s{\"rank\": %d, ", rank ? ", " : "", rank);
    print_text("transport", link->transport, out);
    fputs(", ", out);
    print_text("why", link->link, out);
    fprintf(out, ", \"rails\": %u, \"lost_rails\": %u}", link->rails, link->lost_rails);
  }
  fputs("]}", out);
}

static void print_family(const ctl_family *family, bool all, FILE *out) {
  const char *comma = "";
  fprintf(out, "{\"job\": \"%016llx\", \"nranks\": %d, \"processes\": [",
          (unsigned long long)family->comm_id, family->nranks);
  for (int rank = 0; rank < family->nranks; rank++) {
    if (!family->pages[rank])
      continue;
    fprintf(out, "%s\n    ", comma);
    print_process(family->pages[rank], out);
    comma = ",";
  }
  fputs("],\n  \"communicators\": [", out);
  for (int i = 0; i < family->ncomms; i++) {
    fprintf(out, "%s\n    ", i ? "," : "");
    print_comm(&family->comms[i], all, out);
  }
  fputs("]}", out);
}

void ctl_print_json(const ctl_view *view, ctl_command command, FILE *out) {
  fputs("{\"version\": 1, \"jobs\": [", out);
  for (int i = 0; i < view->nfamilies; i++) {
    fprintf(out, "%s\n  ", i ? "," : "");
    print_family(&view->families[i], command == CTL_DUMP, out);
  }
  fputs("]}\n", out);
}
