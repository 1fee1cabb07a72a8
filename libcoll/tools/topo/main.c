/*
 * main.c: coll_topo shows the machine, and which core each of n ranks would get on it. Under a
 * launcher (collrun -n 4 coll_topo) it also shows where the ranks are, and which transport each
 * pair of them uses and why. It prints that, or writes it as XML or as a picture. Of this machine
 * it also shows the GPUs, and how calls in streams would run between them.
 */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/param.h"
#include "libcoll/comm/inspect.h"
#include "libcoll/tools/topo/gpus.h"
#include "libcoll/tools/topo/topo.h"
#include "transports/registry.h"

#define KINDS     8  /* kinds of links that one rank can report */
#define MAX_TABLE 32 /* ranks; a larger table would not be readable */

/* What the command line asks for. */
typedef struct request {
  const char *source; /* a machine; NULL: COLL_TOPO_FILE or this one, and the ranks on it */
  int nranks;         /* to place; 0: not given */
  const char *xml;    /* file to write, or NULL */
  const char *svg;
} request;

/* A kind of link: transport, and why it was chosen. */
typedef struct kind {
  char transport[16];
  char reason[COLLI_LINK_REASON];
} kind;

/* A rank's report about itself, followed by nranks bytes: the kind of its link to each rank. */
typedef struct report {
  int32_t core;
  int32_t numa_node;
  int32_t nkinds;
  kind kinds[KINDS];
} report;

/* All ranks' reports, as the all-gather leaves them. */
typedef struct gathered {
  int nranks;
  size_t bytes; /* of one report with its links */
  unsigned char *all;
} gathered;

static const char usage_text[] =
    "usage: coll_topo [--input MACHINE] [-n RANKS] [--xml FILE] [--svg FILE]\n"
    "       collrun -n N coll_topo [--xml FILE] [--svg FILE]\n"
    "Shows this machine, and on which core each of RANKS ranks would run. Under collrun it also\n"
    "shows where the ranks are, and which transport each pair of them uses and why. If CUDA's\n"
    "driver is here: this machine's GPUs, their links, and how calls in streams run between them.\n"
    "  --input MACHINE  show another machine: an hwloc XML file, or \"numa:2 core:4 pu:1\"\n"
    "  -n RANKS         number of ranks to place (default: one for each core, or 8)\n"
    "  --xml FILE       write the machine as hwloc XML, for --input and COLL_TOPO_FILE\n"
    "  --svg FILE       write a picture of the machine, with the ranks if -n or collrun places "
    "them\n"
    "With --xml or --svg nothing is printed. The FILE - is standard output.\n";

/* ---- files ----------------------------------------------------------------------------------- */

/* Opens a file to write. NULL once it has printed why. */
static FILE *open_file(const char *path) {
  FILE *out = strcmp(path, "-") == 0 ? stdout : fopen(path, "we");
  if (out == NULL)
    fprintf(stderr, "coll_topo: %s: %s\n", path, strerror(errno));
  return out;
}

/* Closes it; the exit status. */
static int close_file(FILE *out, const char *path) {
  const bool bad = ferror(out) != 0;
  if ((out == stdout ? fflush(out) : fclose(out)) == 0 && !bad)
    return 0;
  fprintf(stderr, "coll_topo: %s: cannot be written: %s\n", path, strerror(errno));
  return 1;
}

/* Writes the files that are asked for; returns the exit status. */
static int write_files(const request *asked, const topo_scene *scene) {
  coll_error error = COLL_ERROR_INIT;
  const char *source = asked->source != NULL ? asked->source : "";
  FILE *out;
  if (asked->xml != NULL) {
    if ((out = open_file(asked->xml)) == NULL)
      return 1;
    const coll_status status = colli_topo_export(source, out, &error);
    if (close_file(out, asked->xml) != 0)
      return 1;
    if (status != COLL_OK) {
      fprintf(stderr, "coll_topo: %s\n", error.message);
      return 1;
    }
  }
  if (asked->svg == NULL)
    return 0;
  if ((out = open_file(asked->svg)) == NULL)
    return 1;
  const bool drawn = *source ? topo_svg(scene, out) : topo_draw_here(scene, out);
  if (!drawn)
    fputs("coll_topo: out of memory\n", stderr);
  return close_file(out, asked->svg) != 0 || !drawn;
}

/* ---- the machine ----------------------------------------------------------------------------- */

/* Prints the places of n ranks. */
static int print_places(const colli_topo *topo, int nranks) {
  int *cores = malloc((size_t)nranks * sizeof(*cores));
  if (cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
    return 1;
  }
  colli_topo_place(topo, nranks, cores);
  printf("\n%d rank%s would be placed as follows\n", nranks, nranks == 1 ? "" : "s");
  if (cores[0] < 0)
    printf("  not bound to cores: this process may use only %d\n", colli_topo_allowed_cores(topo));
  for (int r = 0; r < nranks && cores[0] >= 0; r++) {
    const colli_topo_core *core = &topo->cores[cores[r]];
    printf("  rank %d: core %d", r, cores[r]);
    if (core->l3 >= 0)
      printf(", L3 cache %d", core->l3);
    if (core->numa_node >= 0)
      printf(", NUMA node %d", core->numa_node);
    if (core->package >= 0)
      printf(", package %d", core->package);
    putchar('\n');
  }
  free(cores);
  return 0;
}

/* A setting of the environment. */
static const char *setting(void *ctx, const char *name) {
  const char *text = colli_params_text(ctx, name);
  return text ? text : "";
}

/* Prints the network devices that a rank would use, and the GPUs. */
static void print_devices(const colli_topo *topo) {
  colli_params params;
  coll_error error = COLL_ERROR_INIT;
  topo_gpus gpus;
  if (colli_params_load(&params, &error) != COLL_OK) {
    printf("\nnetwork devices: %s\n", error.message);
    return;
  }
  coll_transport_env env = {.size = sizeof(env), .ctx = &params, .param = setting};
  colli_devices_print(&env, stdout);
  if (!topo_gpus_find(topo, &gpus)) {
    puts("\nGPUs\n  out of memory");
    return;
  }
  topo_gpus_print(&gpus, stdout);
  topo_gpus_free(&gpus);
}

/* ---- the ranks ------------------------------------------------------------------------------- */

/* The index of a kind in a rank's list. Adds a new kind if there is room. */
static unsigned char kind_number(report *mine, const char *transport, const char *reason) {
  int k = 0;
  while (k < mine->nkinds && (strcmp(mine->kinds[k].transport, transport) != 0 ||
                              strcmp(mine->kinds[k].reason, reason) != 0))
    k++;
  if (k == KINDS)
    return KINDS - 1;
  if (k == mine->nkinds) {
    mine->nkinds++;
    snprintf(mine->kinds[k].transport, sizeof(mine->kinds[k].transport), "%s", transport);
    snprintf(mine->kinds[k].reason, sizeof(mine->kinds[k].reason), "%s", reason);
  }
  return (unsigned char)k;
}

/* Fills in this rank's report and links. */
static coll_status make_report(const coll_comm *comm, const colli_topo *topo, int nranks,
                               report *mine, unsigned char *links) {
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
static const report *report_of(const gathered *from, int rank) {
  return (const report *)(const void *)(from->all + from->bytes * (size_t)rank);
}

/* The link from one rank to another. */
static const kind *link_of(const gathered *from, int rank, int peer) {
  const report *one = report_of(from, rank);
  return &one->kinds[((const unsigned char *)(one + 1))[peer]];
}

/* Prints where each rank is. */
static void print_ranks(const coll_comm *comm, const gathered *from) {
  printf("\n%-6s %-24s %8s %6s %10s\n", "rank", "host", "pid", "core", "NUMA node");
  for (int r = 0; r < from->nranks; r++) {
    const colli_rank_info *info = colli_comm_info(comm, r);
    const report *one = report_of(from, r);
    printf("%-6d %-24s %8d ", r, info->host, (int)info->pid);
    if (one->core >= 0)
      printf("%6d %10d\n", (int)one->core, (int)one->numa_node);
    else
      printf("%6s %10s\n", "any", "-");
  }
}

/* Prints each pair's transport. */
static void print_table(const gathered *from) {
  printf("\ntransport from rank (line) to rank (column)\n%6s", "");
  for (int peer = 0; peer < from->nranks; peer++)
    printf(" %5d", peer);
  for (int r = 0; r < from->nranks; r++) {
    printf("\n%6d", r);
    for (int peer = 0; peer < from->nranks; peer++)
      printf(" %5s", peer == r ? "-" : link_of(from, r, peer)->transport);
  }
  putchar('\n');
}

/* Whether a pair is the first one with its kind of link; *count receives their number. */
static bool is_first(const gathered *from, int rank, int peer, int *count) {
  const kind *this_one = link_of(from, rank, peer);
  *count = 0;
  for (int r = 0; r < from->nranks; r++)
    for (int p = 0; p < from->nranks; p++) {
      if (r == p || memcmp(link_of(from, r, p), this_one, sizeof(kind)) != 0)
        continue;
      if (*count == 0 && (r != rank || p != peer))
        return false;
      (*count)++;
    }
  return true;
}

/* Prints the reasons for the links, each once. */
static void print_reasons(const gathered *from, const char *indent, FILE *out) {
  for (int r = 0; r < from->nranks; r++)
    for (int peer = 0; peer < from->nranks; peer++) {
      int count;
      if (r == peer || !is_first(from, r, peer, &count))
        continue;
      const kind *link = link_of(from, r, peer);
      fprintf(out, "%s%s, %d link%s (the first from %d to %d): %s\n", indent, link->transport,
              count, count == 1 ? "" : "s", r, peer, link->reason);
    }
}

/* Prints what went wrong with the communicator. */
static int failed(const coll_comm *comm) {
  coll_error error = COLL_ERROR_INIT;
  (void)coll_last_error(comm, &error);
  fprintf(stderr, "coll_topo: %s\n", error.message);
  return 1;
}

/* Prints ranks that have no core in the picture. */
static void print_elsewhere(const coll_comm *comm, const gathered *from, FILE *out) {
  for (int r = 0, end; r < from->nranks; r = end) {
    const colli_rank_info *info = colli_comm_info(comm, r);
    const bool here = info->host_id == colli_comm_info(comm, 0)->host_id;
    const bool placed = here && report_of(from, r)->core >= 0;
    for (end = r + 1; end < from->nranks; end++)
      if (colli_comm_info(comm, end)->host_id != info->host_id ||
          (here && (report_of(from, end)->core >= 0) != placed))
        break;
    if (placed)
      continue;
    fprintf(out, end > r + 1 ? "ranks %d-%d: " : "rank %d: ", r, end - 1);
    if (here)
      fputs("not bound to a core\n", out);
    else
      fprintf(out, "on another host, %s\n", info->host);
  }
}

/* Writes the files with all ranks; returns the exit status. */
static int write_ranks(const request *asked, const coll_comm *comm, const colli_topo *topo,
                       const gathered *from) {
  char *notes = NULL;
  size_t bytes;
  int *cores = calloc((size_t)from->nranks, sizeof(*cores)), status = 1;
  FILE *out = open_memstream(&notes, &bytes);
  if (out != NULL)
    print_elsewhere(comm, from, out);
  if (out != NULL)
    print_reasons(from, "", out);
  if (out == NULL || fclose(out) != 0 || cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
  } else {
    for (int r = 0; r < from->nranks; r++)
      cores[r] = colli_comm_info(comm, r)->host_id == colli_comm_info(comm, 0)->host_id
                     ? report_of(from, r)->core
                     : -1;
    status = write_files(asked, &(topo_scene){topo, from->nranks, cores, notes, true});
  }
  free(notes);
  free(cores);
  return status;
}

/* Gathers all ranks' reports; rank 0 prints or writes them. */
static int show_ranks(const request *asked, coll_comm *comm, const colli_topo *topo, int rank,
                      int nranks) {
  gathered from = {nranks, (sizeof(report) + (size_t)nranks + 7) / 8 * 8, NULL};
  unsigned char *mine = calloc(1, from.bytes);
  int status = 0;
  from.all = malloc(from.bytes * (size_t)nranks);
  if (mine == NULL || from.all == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
    status = 1;
  } else if (make_report(comm, topo, nranks, (report *)(void *)mine, mine + sizeof(report)) !=
                 COLL_OK ||
             coll_allgather(mine, from.all, from.bytes, COLL_UINT8, comm) != COLL_OK) {
    status = failed(comm);
  } else if (rank == 0 && (asked->xml != NULL || asked->svg != NULL)) {
    status = write_ranks(asked, comm, topo, &from);
  } else if (rank == 0) {
    print_ranks(comm, &from);
    if (nranks > 1 && nranks <= MAX_TABLE)
      print_table(&from);
    if (nranks > 1) {
      puts("\nwhy");
      print_reasons(&from, "  ", stdout);
    }
  }
  free(mine);
  free(from.all);
  return status;
}

/* ---- start ----------------------------------------------------------------------------------- */

/* Writes the files for a machine and the places of n ranks (0: of none). */
static int write_machine(const request *asked, const colli_topo *topo) {
  int *cores = calloc((size_t)asked->nranks + 1, sizeof(*cores));
  if (cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
    return 1;
  }
  if (asked->nranks > 0)
    colli_topo_place(topo, asked->nranks, cores);
  const bool bound = asked->nranks == 0 || cores[0] >= 0;
  const int status =
      write_files(asked, &(topo_scene){topo, asked->nranks, cores,
                                       bound ? "" : "ranks would not be bound to cores", false});
  free(cores);
  return status;
}

/* Shows a machine without ranks: another one, or this one before a run. */
static int show_machine(const request *wish) {
  request asked = *wish;
  coll_error error = COLL_ERROR_INIT;
  colli_params params;
  colli_topo *topo = NULL;
  coll_status status = COLL_OK;
  if (asked.source == NULL) {
    status = colli_params_load(&params, &error);
    asked.source = status == COLL_OK ? params.text[COLLI_PARAM_TOPO_FILE] : "";
  }
  if (status != COLL_OK || colli_topo_load(asked.source, &topo, &error) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
    return 1;
  }
  int exit_status;
  if (asked.xml != NULL || asked.svg != NULL) {
    exit_status = write_machine(&asked, topo);
  } else {
    const int allowed = colli_topo_allowed_cores(topo), most = allowed < 8 ? allowed : 8;
    colli_topo_print(topo, stdout);
    if (!*asked.source)
      print_devices(topo);
    exit_status = print_places(topo, asked.nranks > 0 ? asked.nranks : most);
  }
  colli_topo_free(topo);
  return exit_status;
}

/* Shows this machine and the ranks of the run that this process is part of. */
static int show_run(const request *asked) {
  coll_comm *comm;
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  if (coll_init_from_env(&comm, &config) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
    return 1;
  }
  int rank = 0, nranks = 1, status = 1;
  colli_topo *topo = NULL;
  (void)coll_comm_rank(comm, &rank);
  (void)coll_comm_nranks(comm, &nranks);
  if (nranks == 1) {
    status = show_machine(asked);
  } else if (colli_topo_load("", &topo, &error) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
  } else {
    if (rank == 0 && asked->xml == NULL && asked->svg == NULL) {
      colli_topo_print(topo, stdout);
      print_devices(topo);
    }
    status = show_ranks(asked, comm, topo, rank, nranks);
  }
  colli_topo_free(topo);
  (void)coll_comm_destroy(&comm);
  return status;
}

/* Reads the number after -n; 0 if it is invalid. */
static int read_ranks(const char *text) {
  char *end;
  long number = strtol(text, &end, 10);
  return end == text || *end != '\0' || number < 1 || number > 65536 ? 0 : (int)number;
}

int main(int argc, char **argv) {
  static const struct option names[] = {{"input", required_argument, NULL, 'i'},
                                        {"xml", required_argument, NULL, 'x'},
                                        {"svg", required_argument, NULL, 's'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  request asked = {.source = NULL};
  for (int letter; (letter = getopt_long(argc, argv, "n:h", names, NULL)) != -1;) {
    if (letter == 'h') {
      fputs(usage_text, stdout);
      return 0;
    }
    if (letter == 'i') {
      asked.source = optarg;
    } else if (letter == 'x' || letter == 's') {
      *(letter == 'x' ? &asked.xml : &asked.svg) = optarg;
    } else if (letter != 'n') {
      return 2;
    } else if ((asked.nranks = read_ranks(optarg)) == 0) {
      fprintf(stderr, "coll_topo: -n takes a number of ranks from 1 to 65536: %s\n", optarg);
      return 2;
    }
  }
  if (optind < argc) {
    fprintf(stderr, "coll_topo: unknown argument \"%s\" (see coll_topo --help)\n", argv[optind]);
    return 2;
  }
  return asked.source != NULL || asked.nranks > 0 ? show_machine(&asked) : show_run(&asked);
}
