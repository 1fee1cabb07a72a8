/* prometheus.c: prints counters in Prometheus' text format. */
#include <string.h>

#include "collctl.h"
#include "libcoll/tools/json/json.h"

#define TRANSPORTS 8 /* more than a rank uses */

/* A value of one rank of a communicator. */
typedef double (*metric_value)(const colli_status_head *page, const colli_status_comm *member);

static double collectives(const colli_status_head *page, const colli_status_comm *member) {
  (void)page;
  return (double)member->flights.last;
}

static double messages(const colli_status_head *page, const colli_status_comm *member) {
  (void)page;
  return (double)member->flights.nmessages;
}

static double pending(const colli_status_head *page, const colli_status_comm *member) {
  (void)page;
  return ctl_count_pending(member);
}

static double oldest(const colli_status_head *page, const colli_status_comm *member) {
  ctl_op op = ctl_oldest_pending(member);
  return op.flight ? colli_status_age_s(page, op.flight->begun) : 0;
}

static double revoked(const colli_status_head *page, const colli_status_comm *member) {
  (void)page;
  return member->failed != 0;
}

static const struct metric {
  const char *name, *type, *help;
  metric_value value;
} metrics[] = {
    {"libcoll_collectives_total", "counter", "Collectives that began.", collectives},
    {"libcoll_messages_total", "counter", "Point-to-point and one-sided operations that began.",
     messages},
    {"libcoll_pending_operations", "gauge", "Operations in flight.", pending},
    {"libcoll_oldest_operation_seconds", "gauge", "Age of the oldest operation in flight.", oldest},
    {"libcoll_revoked", "gauge", "1 if the communicator has failed.", revoked},
};

/* {job="...",communicator="...",rank="0",host="...",pid="77" */
static void print_labels(const ctl_family *family, const ctl_comm *comm, int rank, FILE *out) {
  fprintf(out, "{job=\"%016llx\",communicator=", (unsigned long long)family->comm_id);
  colli_json_quote(comm->name, out);
  fprintf(out, ",id=\"%llx\",rank=\"%d\",host=", (unsigned long long)comm->uid, rank);
  colli_json_quote(comm->pages[rank]->host, out);
  fprintf(out, ",pid=\"%d\"", comm->pages[rank]->seen_pid);
}

/* Calls print() for each rank that is seen. */
static void each_member(const ctl_view *view, const void *what,
                        void (*print)(const ctl_family *, const ctl_comm *, int rank,
                                      const void *what, FILE *out),
                        FILE *out) {
  for (int f = 0; f < view->nfamilies; f++)
    for (int c = 0; c < view->families[f].ncomms; c++)
      for (int rank = 0; rank < view->families[f].comms[c].nranks; rank++)
        if (view->families[f].comms[c].pages[rank])
          print(&view->families[f], &view->families[f].comms[c], rank, what, out);
}

static void print_value(const ctl_family *family, const ctl_comm *comm, int rank, const void *what,
                        FILE *out) {
  const struct metric *metric = what;
  fputs(metric->name, out);
  print_labels(family, comm, rank, out);
  fprintf(out, "} %.17g\n", metric->value(comm->pages[rank], comm->members[rank]));
}

/* The bytes that a rank has sent over each transport. */
static void print_sent(const ctl_family *family, const ctl_comm *comm, int rank, const void *what,
                       FILE *out) {
  colli_status_head *page = comm->pages[rank];
  const colli_status_comm *member = comm->members[rank];
  const char *names[TRANSPORTS];
  uint64_t sent[TRANSPORTS];
  int count = 0;
  for (int peer = 0; peer < comm->nranks; peer++) {
    const char *name = colli_status_ranks(page)[colli_status_base_rank(member, peer)].transport;
    int at = 0;
    while (at < count && strcmp(names[at], name) != 0)
      at++;
    if (peer == rank || at == TRANSPORTS)
      continue;
    if (at == count) {
      names[count] = name;
      sent[count++] = 0;
    }
    sent[at] += member->peers[peer].sent_bytes;
  }
  for (int i = 0; i < count; i++) {
    fputs(what, out);
    print_labels(family, comm, rank, out);
    fputs(",transport=", out);
    colli_json_quote(names[i], out);
    fprintf(out, "} %llu\n", (unsigned long long)sent[i]);
  }
}

/* How many rails a rank of a job has to each other one, or has lost. */
static void print_rails_of(const ctl_family *family, int rank, bool lost, FILE *out) {
  colli_status_head *page = family->pages[rank];
  for (int peer = 0; page && peer < family->nranks; peer++) {
    const colli_status_rank *link = colli_status_ranks(page) + peer;
    if (link->rails == 0)
      continue;
    fprintf(out, "libcoll_%srails{job=\"%016llx\",rank=\"%d\",host=", lost ? "lost_" : "",
            (unsigned long long)family->comm_id, rank);
    colli_json_quote(page->host, out);
    fprintf(out, ",pid=\"%d\",peer=\"%d\"} %u\n", page->seen_pid, peer,
            lost ? link->lost_rails : link->rails);
  }
}

/* The same of all ranks. */
static void print_rails(const ctl_view *view, bool lost, FILE *out) {
  const char *name = lost ? "libcoll_lost_rails" : "libcoll_rails";
  fprintf(out, "# HELP %s Rails to another rank%s.\n# TYPE %s gauge\n", name,
          lost ? " that do not work now" : ", lost ones too", name);
  for (int f = 0; f < view->nfamilies; f++)
    for (int rank = 0; rank < view->families[f].nranks; rank++)
      print_rails_of(&view->families[f], rank, lost, out);
}

void ctl_print_prometheus(const ctl_view *view, FILE *out) {
  for (size_t i = 0; i < sizeof(metrics) / sizeof(metrics[0]); i++) {
    fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", metrics[i].name, metrics[i].help, metrics[i].name,
            metrics[i].type);
    each_member(view, &metrics[i], print_value, out);
  }
  static const char sent[] = "libcoll_sent_bytes_total";
  fprintf(out, "# HELP %s Payload sent to other ranks.\n# TYPE %s counter\n", sent, sent);
  each_member(view, sent, print_sent, out);
  print_rails(view, false, out);
  print_rails(view, true, out);
}
