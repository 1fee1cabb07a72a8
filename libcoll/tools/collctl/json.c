/* json.c: prints all that is known as one JSON object. docs/collctl.md describes it. */
#include "libcoll/tools/json/json.h"
#include "collctl.h"

/* An operation: {"operation": ..., "number": 3, "begun_s_ago": 1.5, ...} */
static void print_op(const colli_status_head *page, ctl_op op, const char *name, colli_json *out) {
  char text[CTL_OP_TEXT];
  const colli_flight *flight = op.flight;
  if (!flight) {
    colli_json_text(out, name, NULL);
    return;
  }
  colli_json_open(out, name, '{');
  colli_json_text(out, "operation", ctl_op_text(op, text));
  colli_json_bool(out, "collective", !op.name);
  colli_json_count(out, "number", flight->number);
  colli_json_number(out, "begun_s_ago", colli_status_age_s(page, flight->begun));
  if (flight->ended) {
    colli_json_number(out, "ended_s_ago", colli_status_age_s(page, flight->ended));
    colli_json_text(out, "status", coll_status_name((coll_status)flight->status));
  }
  if (op.name && flight->peer >= 0)
    colli_json_int(out, "peer", flight->peer);
  colli_json_close(out, '}');
}

/* The operations of a record, or only those in flight. */
static void print_ops(const ctl_comm *comm, int rank, bool all, const char *name, colli_json *out) {
  int place = 0;
  colli_json_open(out, name, '[');
  for (ctl_op op = ctl_next_op(comm->members[rank], &place); op.flight;
       op = ctl_next_op(comm->members[rank], &place))
    if (all || !op.flight->ended)
      print_op(comm->pages[rank], op, NULL, out);
  colli_json_close(out, ']');
}

/* What one process shows of a communicator. */
static void print_member(const ctl_comm *comm, int rank, bool all, colli_json *out) {
  const colli_status_comm *member = comm->members[rank];
  char late[CTL_LATE_TEXT];
  colli_json_count(out, "collectives", member->flights.last);
  colli_json_count(out, "messages", member->flights.nmessages);
  if (member->failed)
    colli_json_text(out, "revoked", coll_status_name((coll_status)member->failed));
  print_ops(comm, rank, false, "pending", out);
  print_op(comm->pages[rank], ctl_last_ended(member), "last", out);
  if (ctl_is_late(comm, rank, late))
    colli_json_text(out, "late", late);
  colli_json_open(out, "sent_bytes", '[');
  for (int peer = 0; peer < comm->nranks; peer++)
    colli_json_count(out, NULL, member->peers[peer].sent_bytes);
  colli_json_close(out, ']');
  if (all)
    print_ops(comm, rank, true, "operations", out);
}

/* A number as hexadecimal digits. */
static void print_id(const char *name, uint64_t id, int digits, colli_json *out) {
  char text[24];
  snprintf(text, sizeof(text), "%0*llx", digits, (unsigned long long)id);
  colli_json_text(out, name, text);
}

static void print_comm(const ctl_comm *comm, bool all, colli_json *out) {
  colli_json_open(out, NULL, '{');
  colli_json_text(out, "name", comm->name);
  print_id("id", comm->uid, 1, out);
  colli_json_open(out, "ranks", '[');
  for (int rank = 0; rank < comm->nranks; rank++) {
    const colli_status_head *page = comm->pages[rank];
    colli_json_open(out, NULL, '{');
    colli_json_int(out, "rank", rank);
    colli_json_text(out, "host", comm->info[rank]->host);
    colli_json_int(out, "pid", page ? page->seen_pid : comm->info[rank]->pid);
    colli_json_bool(out, "seen", page);
    if (page)
      print_member(comm, rank, all, out);
    colli_json_close(out, '}');
  }
  colli_json_close(out, ']');
  colli_json_close(out, '}');
}

/* A process, and how it reaches the others. */
static void print_process(colli_status_head *page, colli_json *out) {
  colli_json_open(out, NULL, '{');
  colli_json_int(out, "rank", page->rank);
  colli_json_int(out, "pid", page->seen_pid);
  colli_json_text(out, "host", page->host);
  colli_json_text(out, "state", ctl_state_name(page->state));
  colli_json_count(out, "communicators", page->ncomms + page->unshown);
  colli_json_open(out, "links", '[');
  for (int rank = 0; rank < page->nranks; rank++) {
    const colli_status_rank *link = &colli_status_ranks(page)[rank];
    colli_json_open(out, NULL, '{');
    colli_json_int(out, "rank", rank);
    colli_json_text(out, "transport", link->transport);
    colli_json_text(out, "why", link->link);
    colli_json_count(out, "rails", link->rails);
    colli_json_count(out, "lost_rails", link->lost_rails);
    colli_json_close(out, '}');
  }
  colli_json_close(out, ']');
  colli_json_close(out, '}');
}

static void print_family(const ctl_family *family, bool all, colli_json *out) {
  colli_json_open(out, NULL, '{');
  print_id("job", family->comm_id, 16, out);
  colli_json_int(out, "nranks", family->nranks);
  colli_json_open(out, "processes", '[');
  for (int rank = 0; rank < family->nranks; rank++)
    if (family->pages[rank])
      print_process(family->pages[rank], out);
  colli_json_close(out, ']');
  colli_json_open(out, "communicators", '[');
  for (int i = 0; i < family->ncomms; i++)
    print_comm(&family->comms[i], all, out);
  colli_json_close(out, ']');
  colli_json_close(out, '}');
}

void ctl_print_json(const ctl_view *view, ctl_command command, FILE *out) {
  colli_json json = {.out = out};
  colli_json_open(&json, NULL, '{');
  colli_json_int(&json, "version", 1);
  colli_json_open(&json, "jobs", '[');
  for (int i = 0; i < view->nfamilies; i++)
    print_family(&view->families[i], command == CTL_DUMP, &json);
  colli_json_close(&json, ']');
  colli_json_close(&json, '}');
}
