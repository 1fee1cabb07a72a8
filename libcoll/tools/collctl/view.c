/* view.c: combines the pages of processes into communicators. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "collctl.h"
#include "libcoll/status/service.h"

/* Ends the program: out of memory for its own tables. */
static void *checked(void *memory) {
  if (memory)
    return memory;
  fputs("collctl: out of memory\n", stderr);
  exit(CTL_FAILED);
}

static void *zeroed(int count, size_t bytes) {
  return checked(calloc((size_t)count, bytes));
}

/* ---- pages ----------------------------------------------------------------------------------- */

/* Keeps a page. */
static void keep(void *ctx, colli_status_head *copy) {
  ctl_view *view = ctx;
  size_t count = (size_t)view->ncopies + 1;
  view->copies = checked(realloc(view->copies, count * sizeof(*view->copies)));
  view->copies[view->ncopies++] = copy;
}

/* Whether a process has this family. */
static bool has_family(const ctl_view *of_process, const colli_status_head *copy) {
  for (int i = 0; i < of_process->ncopies; i++)
    if (of_process->copies[i]->comm_id == copy->comm_id)
      return true;
  return false;
}

static void free_copies(ctl_view *view) {
  for (int i = 0; i < view->ncopies; i++)
    free(view->copies[i]);
  free(view->copies);
  view->copies = NULL;
  view->ncopies = 0;
}

/* Whether a page of this rank is there. */
static bool has_rank(const ctl_view *view, uint64_t comm_id, int rank) {
  for (int i = 0; i < view->ncopies; i++)
    if (view->copies[i]->comm_id == comm_id && view->copies[i]->rank == rank)
      return true;
  return false;
}

/* Keeps a page that came from another host, unless it is that of a process here. */
static void keep_remote(void *ctx, colli_status_head *copy) {
  if (has_rank(ctx, copy->comm_id, copy->rank))
    free(copy);
  else
    keep(ctx, copy);
}

/* Adds the pages of other hosts: for each job asks its processes here, until one knows some. */
static void ask_other_hosts(ctl_view *view) {
  const int local = view->ncopies;
  for (int i = 0; i < local; i++) {
    const uint64_t comm_id = view->copies[i]->comm_id;
    bool answered = false;
    for (int before = 0; before < i && !answered; before++)
      answered = view->copies[before]->comm_id == comm_id; /* it was asked below */
    for (int at = i; at < local && !answered; at++)        /* stopped ones do not answer */
      answered = view->copies[at]->comm_id == comm_id && *view->copies[at]->desk &&
                 view->copies[at]->state != 'T' && view->copies[at]->state != 't' &&
                 colli_status_ask(view->copies[at]->desk, comm_id, keep_remote, view) > 0;
  }
}

/* Drops the pages of jobs that the process is not in. */
static int select_job(ctl_view *view, int pid) {
  ctl_view of_process = {0};
  if (colli_status_scan_process(pid, keep, &of_process) < 0) {
    fprintf(stderr, "collctl: cannot look into process %d: %s\n", pid, strerror(errno));
    return CTL_FAILED;
  }
  int kept = 0;
  for (int i = 0; i < view->ncopies; i++) {
    if (has_family(&of_process, view->copies[i]))
      view->copies[kept++] = view->copies[i];
    else
      free(view->copies[i]);
  }
  view->ncopies = kept;
  free_copies(&of_process);
  return 0;
}

/* By job, and then by rank. */
static int by_rank(const void *a, const void *b) {
  const colli_status_head *left = *(colli_status_head *const *)a,
                          *right = *(colli_status_head *const *)b;
  if (left->comm_id != right->comm_id)
    return left->comm_id < right->comm_id ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* ---- communicators --------------------------------------------------------------------------- */

/* Finds a communicator, or makes it as one of its ranks sees it. */
static ctl_comm *find_comm(ctl_family *family, const colli_status_comm *member) {
  for (int i = 0; i < family->ncomms; i++)
    if (family->comms[i].uid == member->uid)
      return &family->comms[i];
  size_t count = (size_t)family->ncomms + 1;
  family->comms = checked(realloc(family->comms, count * sizeof(*family->comms)));
  ctl_comm *comm = &family->comms[family->ncomms++];
  *comm = (ctl_comm){.uid = member->uid,
                     .name = member->name,
                     .nranks = member->nranks,
                     .info = zeroed(member->nranks, sizeof(*comm->info)),
                     .pages = zeroed(member->nranks, sizeof(colli_status_head *)),
                     .members = zeroed(member->nranks, sizeof(colli_status_comm *))};
  for (int rank = 0; rank < comm->nranks; rank++)
    comm->info[rank] = &family->ranks[colli_status_base_rank(member, rank)];
  return comm;
}

/* Adds what one process shows. Pages that contradict the first one are left out. */
static void add_page(ctl_family *family, colli_status_head *page) {
  if (page->nranks != family->nranks || family->pages[page->rank])
    return;
  family->pages[page->rank] = page;
  for (unsigned i = 0; i < page->ncomms; i++) {
    colli_status_comm *member = colli_status_comm_at(page, i);
    ctl_comm *comm = find_comm(family, member);
    if (comm->nranks != member->nranks || comm->members[member->rank])
      continue;
    comm->pages[member->rank] = page;
    comm->members[member->rank] = member;
  }
}

static void free_comm(ctl_comm *comm) {
  free(comm->info);
  free(comm->pages);
  free(comm->members);
}

/* Whether a communicator has this name on one of its ranks. */
static bool is_named(const ctl_comm *comm, const char *name) {
  bool so = false;
  for (int rank = 0; rank < comm->nranks; rank++)
    so |= comm->members[rank] && strcmp(comm->members[rank]->name, name) == 0;
  return so;
}

/* Drops the communicators of other names. Returns how many are left. */
static int select_name(ctl_family *family, const char *name) {
  int kept = 0;
  for (int i = 0; i < family->ncomms; i++) {
    if (!name || is_named(&family->comms[i], name))
      family->comms[kept++] = family->comms[i];
    else
      free_comm(&family->comms[i]);
  }
  return family->ncomms = kept;
}

int ctl_view_put_together(ctl_view *view, const char *name) {
  int ncomms = 0;
  if (view->ncopies > 0)
    qsort(view->copies, (size_t)view->ncopies, sizeof(*view->copies), by_rank);
  view->families = zeroed(view->ncopies + 1, sizeof(*view->families));
  for (int i = 0; i < view->ncopies; i++) {
    colli_status_head *page = view->copies[i];
    if (i == 0 || view->copies[i - 1]->comm_id != page->comm_id)
      view->families[view->nfamilies++] =
          (ctl_family){.comm_id = page->comm_id,
                       .nranks = page->nranks,
                       .ranks = colli_status_ranks(page),
                       .pages = zeroed(page->nranks, sizeof(colli_status_head *))};
    add_page(&view->families[view->nfamilies - 1], page);
  }
  for (int i = 0; i < view->nfamilies; i++)
    ncomms += select_name(&view->families[i], name);
  return ncomms;
}

int ctl_view_make(ctl_view *view, const ctl_options *options) {
  *view = (ctl_view){0};
  int sys_errno = colli_status_scan(keep, view);
  int status = 0;
  if (sys_errno != 0) {
    fprintf(stderr, "collctl: cannot read /proc: %s\n", strerror(sys_errno));
    status = CTL_FAILED;
  } else if (options->pid) {
    status = select_job(view, options->pid);
  }
  if (status == 0)
    ask_other_hosts(view);
  if (ctl_view_put_together(view, options->name) == 0 && status == 0) {
    fprintf(stderr, "collctl: %s\n",
            options->name  ? "no communicator of this name is shown by a process of this user"
            : options->pid ? "this process has no communicator"
                           : "no process of this user has a communicator");
    status = CTL_FAILED;
  }
  if (status != 0)
    ctl_view_free(view);
  return status;
}

void ctl_view_free(ctl_view *view) {
  for (int i = 0; i < view->nfamilies; i++) {
    ctl_family *family = &view->families[i];
    for (int c = 0; c < family->ncomms; c++)
      free_comm(&family->comms[c]);
    free(family->comms);
    free(family->pages);
  }
  free(view->families);
  free_copies(view);
}
