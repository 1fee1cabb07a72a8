/* options.c: collctl's command line. */
#include <getopt.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "collctl.h"

static const char help[] =
    "Usage: collctl [list|show|dump] [PID|NAME] [options]\n"
    "\n"
    "Shows what running libcoll processes of this host do, also those that are stopped, or stuck "
    "in\n"
    "the program's own code. It reads their status pages through /proc, so it sees the processes "
    "of\n"
    "the same user (root: of all users), and does not disturb them.\n"
    "\n"
    "  list         one line for each process (default)\n"
    "  show         for each communicator: what each rank does, and who has not entered what\n"
    "  dump         the same, with links, counters and the flight record of each rank\n"
    "  PID          only the job of that process: all its ranks\n"
    "  NAME         only communicators of that name\n"
    "\n"
    "      --json         as JSON\n"
    "      --prometheus   counters in Prometheus' text format\n"
    "  -h, --help         this text\n"
    "\n"
    "The exit status is 1 if no process was found.\n";

/* Reports bad usage. */
static int refuse(const char *what, const char *word) {
  fprintf(stderr, "collctl: %s '%s' (see collctl --help)\n", what, word);
  return CTL_USAGE;
}

/* Reads a process or a communicator's name. */
static int read_subject(const char *word, ctl_options *options) {
  char *end;
  long pid = strtol(word, &end, 10);
  if (*word < '0' || *word > '9' || *end) {
    options->name = word;
    return 0;
  }
  if (pid < 1 || pid > INT_MAX)
    return refuse("no process has the number", word);
  options->pid = (int)pid;
  return 0;
}

int ctl_options_read(int argc, char **argv, ctl_options *options) {
  static const struct option names[] = {{"json", no_argument, NULL, 'j'},
                                        {"prometheus", no_argument, NULL, 'p'},
                                        {"help", no_argument, NULL, 'h'},
                                        {NULL, 0, NULL, 0}};
  static const char *const commands[] = {"list", "show", "dump"};
  *options = (ctl_options){.command = CTL_LIST};
  for (int option; (option = getopt_long(argc, argv, "h", names, NULL)) != -1;) {
    if (option == 'h') {
      fputs(help, stdout);
      return -1;
    }
    if (option == '?')
      return CTL_USAGE;
    options->format = option == 'j' ? CTL_JSON : CTL_PROMETHEUS;
  }
  int at = optind;
  for (int i = 0; i < 3; i++)
    if (at == optind && at < argc && strcmp(argv[at], commands[i]) == 0) {
      options->command = (ctl_command)i;
      at++;
    }
  int status = at < argc ? read_subject(argv[at++], options) : 0;
  return status != 0 || at >= argc ? status : refuse("surplus argument", argv[at]);
}
