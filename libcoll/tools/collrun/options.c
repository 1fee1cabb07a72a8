/* options.c: collrun's command line. */
#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/tools/collrun/run.h"

static const char usage_text[] =
    "usage: collrun -n N [options] [--] program [arguments]\n"
    "       collrun --hosts H1:2,H2:2 | --hostfile FILE [options] [--] program [arguments]\n"
    "Starts N ranks of a program that uses libcoll, on this host or over ssh on others.\n"
    "  -n N, -np N      number of ranks\n"
    "  --hosts LIST     host:ranks, separated by commas; ranks are numbered in that order\n"
    "  --hostfile FILE  a host in each line: name, name:ranks or name slots=ranks; # comments\n"
    "  -x NAME[=VALUE]  pass a variable to ranks on other hosts, too; may be repeated\n"
    "  --logs FOLDER    write each rank's output to FOLDER/rank.N.log\n"
    "  -l, --tag        begin each line of output with [rank]\n"
    "  --keep-going     when a rank fails, let the others continue (coll_comm_shrink)\n"
    "  --restarts N     when a rank fails, end all and start all again, at most N times\n"
    "  --respawn N      when a rank fails, start it again; the others continue, and it has to "
    "join\n"
    "                   them (coll_comm_join); at most N times in all\n"
    "  --map slot|node  which ranks go to which host: fill one after the other (slot, the "
    "default),\n"
    "                   or one rank to each host in turn (node)\n"
    "  --bind core|numa|none  bind each rank to a core (the default), to the NUMA node of that "
    "core,\n"
    "                   or not at all\n"
    "  --no-bind        the same as --bind none\n"
    "  -v, --verbose    say where ranks run and to which processors they are bound\n"
    "  --timeout S      end all ranks after S seconds; the exit status is then 124\n"
    "  -h, --help       this text\n"
    "The exit status is that of the first rank that failed (128 + signal number), or 0.\n";

/* Prints what is wrong with the command line. */
static int usage(const char *what, const char *value) {
  fprintf(stderr, "collrun: %s%s%s\n(see collrun --help)\n", what, value ? ": " : "",
          value ? value : "");
  return RUN_USAGE;
}

/* Reads a number of ranks; 0 if it is invalid. */
static int read_count(const char *text) {
  char *end;
  errno = 0;
  long count = strtol(text, &end, 10);
  return end == text || *end || errno || count < 1 || count > RUN_MAX_RANKS ? 0 : (int)count;
}

/* Reads how often something may be started again; 0 or an exit status. */
static int read_starts(const char *text, int *count) {
  *count = read_count(text);
  return *count > 0 ? 0 : usage("--restarts and --respawn take a number from 1 to 4096", text);
}

/* Reads --bind; 0 or an exit status. */
static int read_bind(const char *text, run_options *options) {
  static const char *const words[] = {
      [RUN_BIND_CORE] = "core", [RUN_BIND_NUMA] = "numa", [RUN_BIND_NONE] = "none"};
  for (run_bind bind = RUN_BIND_CORE; bind <= RUN_BIND_NONE; bind++)
    if (strcmp(text, words[bind]) == 0) {
      options->bind = bind;
      return 0;
    }
  return usage("--bind takes core, numa or none", text);
}

/* Reads --timeout; 0 or an exit status. */
static int read_timeout(const char *text, run_options *options) {
  char *end;
  options->timeout_s = strtod(text, &end);
  return end != text && !*end && options->timeout_s > 0 && options->timeout_s <= 1e7
             ? 0
             : usage("--timeout takes a number of seconds above 0", text);
}

/* Reads --map; 0 or an exit status. */
static int read_map(const char *text, run_options *options) {
  options->by_node = strcmp(text, "node") == 0;
  return options->by_node || strcmp(text, "slot") == 0 ? 0
                                                       : usage("--map takes slot or node", text);
}

/* Reads one option; 0 or an exit status. next: the argument behind it and its value, or NULL. */
static int read_option(int letter, char *next, run_options *options) {
  switch (letter) {
  case 'n':
    if (strcmp(optarg, "p") == 0 && next != NULL) { /* -np N, as other launchers write it */
      optarg = next;
      optind++;
    }
    options->nranks = read_count(optarg);
    return options->nranks > 0 ? 0 : usage("-n takes a number of ranks from 1 to 4096", optarg);
  case 'H':
    options->hosts = optarg;
    return 0;
  case 'F':
    free(options->hostfile);
    options->hosts = options->hostfile = run_hostfile_read(optarg);
    return options->hosts != NULL ? 0 : RUN_USAGE;
  case 'x':
    return run_export(options, optarg) ? 0
                                       : usage("-x takes NAME or NAME=VALUE, at most 64 of them; "
                                               "not",
                                               optarg);
  case 'L':
    options->logs = optarg;
    return 0;
  case 'l':
    options->tag = true;
    return 0;
  case 'K':
    options->keep_going = true;
    return 0;
  case 'R':
  case 'S':
    return read_starts(optarg, letter == 'R' ? &options->restarts : &options->respawns);
  case 'B':
    return read_bind(optarg != NULL ? optarg : "none", options);
  case 'M':
    return read_map(optarg, options);
  case 'v':
    options->verbose = true;
    return 0;
  case 'T':
    return read_timeout(optarg, options);
  case 'h':
    fputs(usage_text, stdout);
    return -1;
  default:
    fputs("(see collrun --help)\n", stderr);
    return RUN_USAGE;
  }
}

int run_options_read(int argc, char **argv, run_options *options) {
  static const struct option names[] = {
      {"hosts", required_argument, NULL, 'H'},   {"hostfile", required_argument, NULL, 'F'},
      {"logs", required_argument, NULL, 'L'},    {"tag", no_argument, NULL, 'l'},
      {"keep-going", no_argument, NULL, 'K'},    {"bind", required_argument, NULL, 'B'},
      {"no-bind", no_argument, NULL, 'B'},       {"map", required_argument, NULL, 'M'},
      {"verbose", no_argument, NULL, 'v'},       {"restarts", required_argument, NULL, 'R'},
      {"respawn", required_argument, NULL, 'S'}, {"timeout", required_argument, NULL, 'T'},
      {"help", no_argument, NULL, 'h'},          {NULL, 0, NULL, 0}};
  *options = (run_options){.bind = RUN_BIND_DEFAULT};
  for (int letter; (letter = getopt_long(argc, argv, "+n:x:lvh", names, NULL)) != -1;) {
    int status = read_option(letter, argv[optind], options);
    if (status != 0)
      return status;
  }
  options->program = argv + optind;
  if (options->nranks == 0 && options->hosts == NULL)
    return usage("the number of ranks is missing: use -n N or --hosts", NULL);
  if (options->restarts > 0 && (options->keep_going || options->respawns > 0))
    return usage("--restarts excludes --keep-going and --respawn", NULL);
  const char *join_file = getenv("COLL_JOIN_FILE");
  if (options->respawns > 0 && options->hosts != NULL && (join_file == NULL || !*join_file))
    return usage("--respawn on several hosts needs COLL_JOIN_FILE, a file that all of them see",
                 NULL);
  if (options->hosts != NULL && (options->bind == RUN_BIND_CORE || options->bind == RUN_BIND_NUMA))
    return usage("--bind is for ranks on this host: those on others are not bound", NULL);
  options->keep_going = options->keep_going || options->respawns > 0;
  if (options->logs != NULL && options->tag)
    return usage("--logs and --tag exclude each other", NULL);
  if (optind == argc)
    return usage("the program is missing", NULL);
  return 0;
}

/* Reads "host", "host:3" or "[v6]:3"; the name stays in `text`. False if it is malformed. */
static bool read_host(char *text, const char **name, int *count) {
  char *colon = strrchr(text, ':');
  *count = 1;
  if (text[0] == '[') {
    char *bracket = strchr(text, ']');
    if (bracket == NULL || (bracket[1] != ':' && bracket[1] != '\0'))
      return false;
    colon = bracket[1] == ':' ? bracket + 1 : NULL;
    *bracket = '\0';
    text++;
  }
  if (colon != NULL) {
    *colon = '\0';
    *count = read_count(colon + 1);
  }
  *name = text;
  return *count > 0 && text[0] != '\0' && text[0] != '-' && strpbrk(text, " \t'\"\\") == NULL;
}

/* Numbers the ranks of each host. A host may be in the list more than once. */
static void number_locally(run_rank *ranks, int nranks) {
  for (int r = 0; r < nranks; r++) {
    run_rank *rank = &ranks[r];
    for (int other = 0; other < nranks; other++) {
      const char *host = ranks[other].host;
      if (host != rank->host && strcmp(host, rank->host) != 0)
        continue;
      rank->local_nranks++;
      rank->local_rank += other < r;
    }
  }
}

/* --map node: orders the ranks anew: first one of each host, then a second of each, and so on. */
static int map_by_node(run_job *job, int room) {
  run_rank *sorted = calloc(RUN_MAX_RANKS, sizeof(*sorted));
  if (sorted == NULL) {
    fputs("collrun: out of memory\n", stderr);
    return RUN_FAILED;
  }
  number_locally(job->ranks, room);
  for (int r = 0, round = 0; r < room; round++)
    for (int other = 0; other < room; other++)
      if (job->ranks[other].local_rank == round)
        sorted[r++].host = job->ranks[other].host;
  for (int r = 0; r < room; r++)
    job->ranks[r] = (run_rank){.host = sorted[r].host, .control_fd = -1};
  free(sorted);
  return 0;
}

/* Makes the table for --hosts. */
static int make_remote(run_job *job) {
  int room = 0;
  for (char *save = NULL, *text = strtok_r(job->options.hosts, ",", &save); text != NULL;
       text = strtok_r(NULL, ",", &save)) {
    const char *name;
    int count;
    if (!read_host(text, &name, &count))
      return usage("--hosts takes host:ranks, separated by commas; not", text);
    for (int i = 0; i < count && room < RUN_MAX_RANKS; i++)
      job->ranks[room++].host = name;
  }
  job->nranks = job->options.nranks > 0 ? job->options.nranks : room;
  if (job->nranks < 1 || job->nranks > room)
    return usage("-n is more than all ranks of --hosts (write host:ranks)", NULL);
  int status = job->options.by_node ? map_by_node(job, room) : 0;
  number_locally(job->ranks, job->nranks);
  for (int r = 0; job->options.verbose && r < job->nranks; r++)
    fprintf(stderr, "collrun: rank %d runs on %s\n", r, job->ranks[r].host);
  return status;
}

int run_ranks_make(run_job *job) {
  job->ranks = calloc(RUN_MAX_RANKS, sizeof(*job->ranks));
  if (job->ranks == NULL) {
    fputs("collrun: out of memory\n", stderr);
    return RUN_FAILED;
  }
  for (int r = 0; r < RUN_MAX_RANKS; r++)
    job->ranks[r].control_fd = -1;
  if (job->options.hosts != NULL)
    return make_remote(job);
  job->nranks = job->options.nranks;
  for (int r = 0; r < job->nranks; r++) {
    job->ranks[r].local_rank = r;
    job->ranks[r].local_nranks = job->nranks;
  }
  return 0;
}

void run_ranks_free(run_job *job) {
  for (int r = 0; job->ranks != NULL && r < job->nranks; r++)
    free(job->ranks[r].cpus);
  free(job->ranks);
}
