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
#include "libcoll/tools/topo/gpus.h"
#include "libcoll/tools/topo/network.h"
#include "libcoll/tools/topo/ranks.h"
#include "libcoll/tools/topo/topo.h"
#include "transports/registry.h"

/* What the command line asks for. */
typedef struct request {
  const char *source; /* a machine; NULL: COLL_TOPO_FILE or this one, and the ranks on it */
  int nranks;         /* to place; 0: not given */
  const char *xml;    /* file to write, or NULL */
  const char *svg;
  int pair[2];         /* of ranks to explain; -1: not given */
  const char *network; /* file to write, or NULL */
  colli_coll coll;     /* what it shows */
  size_t bytes;
  bool messages; /* these were given */
} request;

static const char usage_text[] =
    "usage: coll_topo [--input MACHINE] [-n RANKS] [--xml FILE] [--svg FILE]\n"
    "       collrun -n N coll_topo [--xml FILE] [--svg FILE] [--explain A,B]\n"
    "       collrun -n N coll_topo --network FILE [--messages COLLECTIVE:BYTES]\n"
    "Shows this machine, and on which core each of RANKS ranks would run. Under collrun it also\n"
    "shows where the ranks are, and which transport each pair of them uses and why. If CUDA's\n"
    "driver is here: this machine's GPUs, their links, and how calls in streams run between them.\n"
    "  --input MACHINE  show another machine: an hwloc XML file, or \"numa:2 core:4 pu:1\"\n"
    "  -n RANKS         number of ranks to place (default: one for each core, or 8)\n"
    "  --xml FILE       write the machine as hwloc XML, for --input and COLL_TOPO_FILE\n"
    "  --svg FILE       write a picture of the machine, with the ranks if -n or collrun places "
    "them\n"
    "  --explain A,B    only say why these two ranks talk as they do, and how far they are apart\n"
    "  --network FILE   write a picture of the hosts, in their racks and sites, with the ranks "
    "and\n"
    "                   what they send each other\n"
    "  --messages COLLECTIVE:BYTES  in this collective (default: allreduce:1048576)\n"
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

/* Prints what went wrong with the communicator. */
static int failed(const coll_comm *comm) {
  coll_error error = COLL_ERROR_INIT;
  (void)coll_last_error(comm, &error);
  fprintf(stderr, "coll_topo: %s\n", error.message);
  return 1;
}

/* Writes the files with all ranks; returns the exit status. */
static int write_ranks(const request *asked, const colli_topo *topo, const topo_ranks *from) {
  char *notes = NULL;
  size_t bytes;
  int *cores = calloc((size_t)from->nranks, sizeof(*cores)), status = 1;
  FILE *out = open_memstream(&notes, &bytes);
  if (out != NULL) {
    topo_ranks_print_elsewhere(from, out);
    topo_ranks_print_reasons(from, "", out);
  }
  if (out == NULL || fclose(out) != 0 || cores == NULL) {
    fputs("coll_topo: out of memory\n", stderr);
  } else {
    topo_ranks_cores(from, cores);
    status = write_files(asked, &(topo_scene){topo, from->nranks, cores, notes, true});
  }
  free(notes);
  free(cores);
  return status;
}

/* Writes the picture of the network; returns the exit status. */
static int write_network(const request *asked, coll_comm *comm) {
  topo_network network;
  coll_error error = COLL_ERROR_INIT;
  FILE *out = NULL;
  int status = 1;
  if (topo_network_make(comm, asked->coll, asked->bytes, &network, &error) != COLL_OK)
    fprintf(stderr, "coll_topo: %s\n", error.message);
  else if ((out = open_file(asked->network)) != NULL && topo_network_svg(&network, out))
    status = 0;
  else if (out != NULL)
    fputs("coll_topo: out of memory\n", stderr);
  if (out != NULL && close_file(out, asked->network) != 0)
    status = 1;
  topo_network_free(&network);
  return status;
}

/* Gathers what all ranks say of themselves and, if it is printed, of their ways to each other; rank
 * 0 prints or writes it. */
static int show_ranks(const request *asked, coll_comm *comm, const colli_topo *topo, int rank) {
  topo_ranks from;
  topo_paths paths = {0};
  const bool prints = asked->network == NULL && asked->xml == NULL && asked->svg == NULL;
  coll_status gathered = topo_ranks_gather(comm, topo, &from);
  int status = 0;
  if (gathered == COLL_OK && prints)
    gathered = topo_paths_gather(comm, asked->pair, &paths);
  if (gathered != COLL_OK)
    status = failed(comm);
  else if (rank == 0 && asked->pair[0] >= 0)
    topo_ranks_explain(&from, &paths, stdout);
  else if (rank == 0 && asked->network != NULL)
    status = write_network(asked, comm);
  else if (rank == 0 && !prints)
    status = write_ranks(asked, topo, &from);
  else if (rank == 0)
    topo_ranks_print(&from, &paths, stdout);
  topo_paths_free(&paths);
  topo_ranks_free(&from);
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
  if (nranks == 1 && (asked->pair[0] >= 0 || asked->network != NULL)) {
    fputs("coll_topo: --explain and --network are for several ranks, as under collrun -n 4\n",
          stderr);
    status = 2;
  } else if (nranks == 1) {
    status = show_machine(asked);
  } else if (asked->pair[0] >= nranks || asked->pair[1] >= nranks) {
    if (rank == 0)
      fprintf(stderr, "coll_topo: --explain %d,%d: there are ranks 0 to %d\n", asked->pair[0],
              asked->pair[1], nranks - 1);
    status = 2;
  } else if (colli_topo_load("", &topo, &error) != COLL_OK) {
    fprintf(stderr, "coll_topo: %s\n", error.message);
  } else {
    if (rank == 0 && asked->xml == NULL && asked->svg == NULL && asked->pair[0] < 0 &&
        asked->network == NULL) {
      colli_topo_print(topo, stdout);
      print_devices(topo);
    }
    status = show_ranks(asked, comm, topo, rank);
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

/* Reads "A,B", two numbers of ranks that differ. */
static bool read_pair(const char *text, int pair[2]) {
  int end = 0;
  return sscanf(text, "%6d,%6d%n", &pair[0], &pair[1], &end) == 2 && text[end] == '\0' &&
         pair[0] >= 0 && pair[1] >= 0 && pair[0] != pair[1];
}

/* Reads "COLLECTIVE:BYTES". */
static bool read_messages(const char *text, request *asked) {
  char name[32], more;
  bool varying;
  return sscanf(text, "%31[a-z_]:%zu%c", name, &asked->bytes, &more) == 2 &&
         colli_coll_find(name, &asked->coll, &varying) && !varying &&
         asked->coll != COLLI_BARRIER && asked->bytes <= (size_t)1 << 40;
}

/* What is wrong with options that do not go together; NULL if nothing. */
static const char *find_clash(const request *asked, bool machine) {
  const bool pair = asked->pair[0] >= 0, network = asked->network != NULL;
  const bool files = asked->svg != NULL || asked->xml != NULL;
  if ((pair && network) || ((pair || network) && (files || machine)))
    return "--explain and --network stand alone";
  return asked->messages && !network ? "--messages is for --network" : NULL;
}

int main(int argc, char **argv) {
  static const struct option names[] = {
      {"input", required_argument, NULL, 'i'},   {"xml", required_argument, NULL, 'x'},
      {"svg", required_argument, NULL, 's'},     {"explain", required_argument, NULL, 'e'},
      {"network", required_argument, NULL, 'w'}, {"messages", required_argument, NULL, 'm'},
      {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
  request asked = {.pair = {-1, -1}, .coll = COLLI_ALLREDUCE, .bytes = 1 << 20};
  for (int letter; (letter = getopt_long(argc, argv, "n:h", names, NULL)) != -1;) {
    if (letter == 'h') {
      fputs(usage_text, stdout);
      return 0;
    }
    if (letter == 'i') {
      asked.source = optarg;
    } else if (letter == 'x' || letter == 's') {
      *(letter == 'x' ? &asked.xml : &asked.svg) = optarg;
    } else if (letter == 'e') {
      if (!read_pair(optarg, asked.pair)) {
        fprintf(stderr, "coll_topo: --explain takes two ranks, as 0,5: %s\n", optarg);
        return 2;
      }
    } else if (letter == 'w') {
      asked.network = optarg;
    } else if (letter == 'm') {
      asked.messages = true;
      if (!read_messages(optarg, &asked)) {
        fprintf(stderr,
                "coll_topo: --messages takes a collective and bytes, as allreduce:1048576: "
                "%s\n",
                optarg);
        return 2;
      }
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
  const bool machine = asked.source != NULL || asked.nranks > 0;
  const char *wrong = find_clash(&asked, machine);
  if (wrong != NULL) {
    fprintf(stderr, "coll_topo: %s\n", wrong);
    return 2;
  }
  return machine ? show_machine(&asked) : show_run(&asked);
}
