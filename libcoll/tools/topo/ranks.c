/* ranks.c: gathers what the ranks of a run know of themselves and of their links, and prints it. */
#include "libcoll/tools/topo/ranks.h"

#include <stdlib.h>
#include <string.h>

#include "libcoll/tuning/units.h"

/* The index of a kind in a rank's list. Adds a new kind if there is room. */
static unsigned char kind_number(topo_report *mine, const char *transport, const char *reason) {
  int k = 0;
  while (k < mine->nkinds && (strcmp(mine->kinds[k].transport, transport) != 0 ||
                              strcmp(mine->kinds[k].reason, reason) != 0))
    k++;
  if (k == TOPO_KINDS)
    return TOPO_KINDS - 1;
  if (k == mine->nkinds) {
    mine->nkinds++;
    snprintf(mine->kinds[k].transport, sizeof(mine->kinds[k].transport), "%s", transport);
    snprintf(mine->kinds[k].reason, sizeof(mine->kinds[k].reason), "%s", reason);
  }
  return (unsigned char)k;
}

/* Fills in this rank's report and links. */
static coll_status make_report(const coll_comm *comm, const colli_topo *topo, int nranks,
                               topo_report *mine, unsigned char *links) {
  mine->core = colli_topo_bound_core(topo);
  mine->numa_node = mine->core >= 0 ? topo->cores[mine->core].numa_node : -1;
  for (int peer = 0; peer < nranks; peer++) {
    const char *transport;
    char reason[COLLI_LINK_REASON];
    coll_status status = colli_comm_link(comm, peer, &transport, reason, sizeof(reason));
    if (status != COLL_OK)
      return status;
    links[peer] = kind_number(mine, transport, reason);
  }
  return COLL_OK;
}

/* One rank's report. */
static const topo_report *report_of(const topo_ranks *from, int rank) {
  return (const topo_report *)(const void *)(from->all + from->bytes * (size_t)rank);
}

const topo_kind *topo_ranks_link(const topo_ranks *from, int rank, int peer) {
  const topo_report *one = report_of(from, rank);
  return &one->kinds[((const unsigned char *)(one + 1))[peer]];
}

/* Prints where each rank is. */
static void print_ranks(const topo_ranks *from, FILE *out) {
  fprintf(out, "\n%-6s %-24s %8s %6s %10s%s\n", "rank", "host", "pid", "core", "NUMA node",
          *colli_comm_info(from->comm, 0).levels ? "  levels" : "");
  for (int r = 0; r < from->nranks; r++) {
    const colli_rank_info info = colli_comm_info(from->comm, r);
    const topo_report *one = report_of(from, r);
    fprintf(out, "%-6d %-24s %8d ", r, info.host, (int)info.pid);
    if (one->core >= 0)
      fprintf(out, "%6d %10d", (int)one->core, (int)one->numa_node);
    else
      fprintf(out, "%6s %10s", "any", "-");
    fprintf(out, "%s%s\n", *info.levels ? "  " : "", info.levels);
  }
}

/* Prints each pair's transport. */
static void print_table(const topo_ranks *from, FILE *out) {
  fprintf(out, "\ntransport from rank (line) to rank (column)\n%6s", "");
  for (int peer = 0; peer < from->nranks; peer++)
    fprintf(out, " %5d", peer);
  for (int r = 0; r < from->nranks; r++) {
    fprintf(out, "\n%6d", r);
    for (int peer = 0; peer < from->nranks; peer++)
      fprintf(out, " %5s", peer == r ? "-" : topo_ranks_link(from, r, peer)->transport);
  }
  fputc('\n', out);
}

bool topo_ranks_is_first(const topo_ranks *from, int rank, int peer, int *count) {
  const topo_kind *this_one = topo_ranks_link(from, rank, peer);
  *count = 0;
  for (int r = 0; r < from->nranks; r++)
    for (int p = 0; p < from->nranks; p++) {
      if (r == p || memcmp(topo_ranks_link(from, r, p), this_one, sizeof(topo_kind)) != 0)
        continue;
      if (*count == 0 && (r != rank || p != peer))
        return false;
      (*count)++;
    }
  return true;
}

void topo_ranks_print_reasons(const topo_ranks *from, const char *indent, FILE *out) {
  for (int r = 0; r < from->nranks; r++)
    for (int peer = 0; peer < from->nranks; peer++) {
      int count;
      if (r == peer || !topo_ranks_is_first(from, r, peer, &count))
        continue;
      const topo_kind *link = topo_ranks_link(from, r, peer);
      fprintf(out, "%s%s, %d link%s (the first from %d to %d): %s\n", indent, link->transport,
              count, count == 1 ? "" : "s", r, peer, link->reason);
    }
}

void topo_ranks_print_elsewhere(const topo_ranks *from, FILE *out) {
  for (int r = 0, end; r < from->nranks; r = end) {
    const colli_rank_info info = colli_comm_info(from->comm, r);
    const bool here = colli_comm_host(from->comm, r) == 0;
    const bool placed = here && report_of(from, r)->core >= 0;
    for (end = r + 1; end < from->nranks; end++)
      if (colli_comm_host(from->comm, end) != colli_comm_host(from->comm, r) ||
          (here && (report_of(from, end)->core >= 0) != placed))
        break;
    if (placed)
      continue;
    fprintf(out, end > r + 1 ? "ranks %d-%d: " : "rank %d: ", r, end - 1);
    if (here)
      fputs("not bound to a core\n", out);
    else
      fprintf(out, "on another host, %s\n", info.host);
  }
}

coll_status topo_ranks_gather(coll_comm *comm, const colli_topo *topo, topo_ranks *out) {
  int nranks = 0;
  (void)coll_comm_nranks(comm, &nranks);
  const size_t n = (size_t)nranks;
  *out =
      (topo_ranks){.comm = comm, .nranks = nranks, .bytes = (sizeof(topo_report) + n + 7) / 8 * 8};
  unsigned char *mine = calloc(1, out->bytes);
  out->all = malloc(out->bytes * n);
  coll_status status = mine && out->all ? COLL_OK : COLL_ERR_NO_MEMORY;
  if (status == COLL_OK)
    status =
        make_report(comm, topo, nranks, (topo_report *)(void *)mine, mine + sizeof(topo_report));
  if (status == COLL_OK)
    status = coll_allgather(mine, out->all, out->bytes, COLL_UINT8, comm);
  free(mine);
  return status;
}

void topo_ranks_free(topo_ranks *ranks) {
  free(ranks->all);
  ranks->all = NULL;
}

void topo_ranks_print(const topo_ranks *from, const topo_paths *paths, FILE *out) {
  print_ranks(from, out);
  if (from->nranks > 1 && from->nranks <= TOPO_TABLE)
    print_table(from, out);
  if (from->nranks > 1) {
    fputs("\nwhy\n", out);
    topo_ranks_print_reasons(from, "  ", out);
    topo_paths_print(paths, out);
  }
}

int topo_ranks_core(const topo_ranks *from, int rank) {
  return report_of(from, rank)->core;
}

int topo_ranks_numa_node(const topo_ranks *from, int rank) {
  return report_of(from, rank)->numa_node;
}

const char *topo_ranks_speed_source(uint64_t source) {
  return source == COLLI_SPEED_MEASURED ? "measured"
         : source == COLLI_SPEED_CARDS  ? "as its cards can do"
                                        : "COLL_LINK_SPEED";
}

/* The number before " rail" in a transport's reason; 0: there is none. */
static int rails_in(const char *reason) {
  const char *end = strstr(reason, " rail"), *at = end;
  while (at && at > reason && at[-1] >= '0' && at[-1] <= '9')
    at--;
  return at && at < end ? atoi(at) : 0;
}

void topo_ranks_rails(const topo_ranks *from, const topo_paths *paths, int rank, int peer,
                      int *rails, int *lost) {
  const char *ways = topo_paths_of(paths, rank, peer);
  *lost = 0;
  *rails = rank == peer ? 0 : rails_in(topo_ranks_link(from, rank, peer)->reason);
  if (*rails == 0 && *ways)
    *rails = 1;
  for (const char *at = ways; *lost < *rails && (at = strstr(at, TOPO_PATHS_LOST)) != NULL; at++)
    (*lost)++;
}

void topo_ranks_cores(const topo_ranks *from, int *cores) {
  for (int r = 0; r < from->nranks; r++)
    cores[r] = colli_comm_host(from->comm, r) == 0 ? report_of(from, r)->core : -1;
}

/* ---- one pair -------------------------------------------------------------------------------- */

/* Prints where a rank is. */
static void print_place(const topo_ranks *from, int rank, FILE *out) {
  const colli_rank_info info = colli_comm_info(from->comm, rank);
  fprintf(out, "rank %d: host %s, ", rank, info.host);
  if (report_of(from, rank)->core >= 0)
    fprintf(out, "core %d", (int)report_of(from, rank)->core);
  else
    fputs("any core", out);
  if (*info.levels)
    fprintf(out, ", in %s", info.levels);
  if (info.link_mbit > 0)
    fprintf(out, ", a link of %.4g Mbit/s (%s)", info.link_mbit,
            topo_ranks_speed_source(info.link_source));
  fputc('\n', out);
}

void topo_print_nearest(bool one_host, const char *left, const char *right, FILE *out) {
  size_t common = 0; /* bytes of names that both have */
  for (size_t at = 0;; at++) {
    const bool ends = left[at] == '\0' || left[at] == '/',
               other_ends = right[at] == '\0' || right[at] == '/';
    if (ends && other_ends)
      common = at;
    if (left[at] != right[at] || left[at] == '\0')
      break;
  }
  if (one_host)
    fputs("they are on one host\n", out);
  else if (common > 0)
    fprintf(out, "they are on two hosts, both in %.*s\n", (int)common, left);
  else
    fprintf(out, "they are on two hosts%s\n", *left ? " that are in no group together" : "");
}

/* Prints how messages go from one rank to another. */
static void print_link(const topo_ranks *from, const topo_paths *paths, int rank, int peer,
                       FILE *out) {
  const topo_kind *link = topo_ranks_link(from, rank, peer);
  const char *ways = topo_paths_of(paths, rank, peer);
  fprintf(out, "from %d to %d: %s: %s%s%s\n", rank, peer, link->transport, link->reason,
          *ways ? ": " : "", ways);
}

void topo_print_cost(colli_pair_cost cost, FILE *out) {
  fprintf(out,
          "the choice of algorithms assumes that a message between them takes %.3f ms and %.4g ns "
          "a byte (%.0f Mbit/s)\n",
          cost.alpha_ns * 1e-6, cost.beta_ns_per_byte,
          COLLI_NS_PER_BYTE_AT_1_MBIT / cost.beta_ns_per_byte);
}

void topo_ranks_explain(const topo_ranks *from, const topo_paths *paths, FILE *out) {
  const int a = paths->pair[0], b = paths->pair[1];
  print_place(from, a, out);
  print_place(from, b, out);
  topo_print_nearest(colli_comm_host(from->comm, a) == colli_comm_host(from->comm, b),
                     colli_comm_info(from->comm, a).levels, colli_comm_info(from->comm, b).levels,
                     out);
  print_link(from, paths, a, b, out);
  print_link(from, paths, b, a, out);
  topo_print_cost(colli_comm_pair_cost(from->comm, a, b), out);
}
