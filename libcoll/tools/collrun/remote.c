/*
 * remote.c: a rank on another host, over ssh. All users of a host can read the arguments of its
 * processes, so private data goes through ssh's standard input: first a script, then, while the
 * rank runs, the names of signals for it, one per line. When that input ends (ssh or collrun died),
 * the rank is killed.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/tools/collrun/run.h"

#define MAX_SSH_WORDS 32

/*
 * The beginning of the script; a line with the secret comes in between. The program can read the
 * secret from a file that has no name any more, as on collrun's host. With the braces, an
 * incomplete script is a syntax error.
 */
static const char before_secret[] =
    "{\n"
    "unset COLL_SECRET COLL_SECRET_FILE\n"
    "export COLL_SECRET_FD=9\n"
    "file=$(mktemp /dev/shm/libcoll.XXXXXXXX 2>/dev/null || mktemp) || exit 125\n"
    "cat >\"$file\" <<'END' && exec 9<\"$file\" && rm \"$file\" || exit 125\n";
static const char after_secret[] = "END\nunset file\n";
#define BEGINNING_BYTES (sizeof(before_secret) + RUN_SECRET_LINE + sizeof(after_secret) - 3)

/*
 * A shell runs beside the program, sends it the signals and, when its input ends, kills it. It
 * reads descriptor 3, because background commands get an empty standard input. ssh's server puts
 * everything into one process group, to which 0 refers. The program must be a foreground command,
 * because background ones ignore SIGINT. Its shell lives on to report its status, so it catches the
 * signals that are meant for the program.
 */
static const char watcher[] = "exec 3<&0 </dev/null\n"
                              "(exec 9<&-\n"
                              "trap '' INT TERM HUP USR1 USR2\n"
                              "while read -r name; do kill -s \"$name\" 0; done\n"
                              "kill -s KILL 0) <&3 >/dev/null 2>&1 &\n"
                              "exec 3<&-\n"
                              "trap : INT TERM HUP USR1 USR2\n";

/* Processes that the program leaves behind would keep ssh waiting, so they are killed once the
 * status is reported. */
static const char last_rites[] = "\nstatus=$?\n"
                                 "(sleep 1; kill -s KILL 0) >/dev/null 2>&1 &\n"
                                 "exit $status\n}\n";

/* Quotes a text as one shell word. */
static void put_quoted(FILE *script, const char *text) {
  fputc('\'', script);
  for (; *text != '\0'; text++)
    if (*text == '\'')
      fputs("'\\''", script);
    else
      fputc(*text, script);
  fputc('\'', script);
}

/* Writes one exported variable. */
static void put_variable(void *script, const char *name, const char *value) {
  fprintf(script, "export %s=", name);
  put_quoted(script, value);
  fputc('\n', script);
}

/* Whether to pass a variable of ours to the other hosts. COLL_SSH is only for collrun, the
 * secret is another one, and so are the processors. */
static bool travels(const char *entry) {
  return (strncmp(entry, "COLL_", 5) == 0 && strncmp(entry, "COLL_SSH=", 9) != 0 &&
          strncmp(entry, "COLL_ROOT_FD=", 13) != 0 && strncmp(entry, "COLL_RESPAWN=", 13) != 0 &&
          strncmp(entry, "COLL_CPUS=", 10) != 0 && strncmp(entry, "COLL_SECRET", 11) != 0) ||
         strncmp(entry, "LD_LIBRARY_PATH=", 16) == 0;
}

/* Whether -x names a variable. */
static bool is_exported(const run_job *job, const char *name) {
  int i = 0;
  while (i < job->options.nexports && strcmp(job->options.exports[i], name) != 0)
    i++;
  return i < job->options.nexports;
}

/* Writes the variables: ours, then those that identify the rank. */
static void put_environment(FILE *script, const run_job *job, int rank) {
  extern char **environ;
  for (char **entry = environ; *entry != NULL; entry++) {
    const char *equals = strchr(*entry, '=');
    char name[128];
    if (equals == NULL || equals - *entry >= (ptrdiff_t)sizeof(name))
      continue;
    snprintf(name, sizeof(name), "%.*s", (int)(equals - *entry), *entry);
    if (is_exported(job, name) ||
        (travels(*entry) && name[strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZ_0123456789")] == '\0'))
      put_variable(script, name, equals + 1);
  }
  run_settings(job, rank, put_variable, script);
}

/* Makes the script of one rank. */
int run_remote_make(const run_job *job, int rank, run_remote *remote) {
  char *folder = getcwd(NULL, 0);
  if (folder == NULL)
    return errno;
  *remote = (run_remote){NULL, 0, ""};
  FILE *script = open_memstream(&remote->script, &remote->bytes);
  if (script == NULL) {
    free(folder);
    return ENOMEM;
  }
  fputs("cd ", script);
  put_quoted(script, folder);
  fputs(" || exit 125\n", script);
  put_environment(script, job, rank);
  fputs(watcher, script);
  for (char **word = job->options.program; *word != NULL; word++) {
    fputc(' ', script);
    put_quoted(script, *word);
  }
  fputs(last_rites, script);
  free(folder);
  if (fclose(script) != 0) {
    free(remote->script);
    return ENOMEM;
  }
  /* dd reads exactly the given number of bytes; what follows is for the script. */
  snprintf(remote->command, sizeof(remote->command),
           "exec /bin/sh -c 'eval \"$(dd bs=1 count=%zu 2>/dev/null)\"'",
           BEGINNING_BYTES + remote->bytes);
  return 0;
}

/* Writes the whole script into a pipe. */
int run_remote_send(const run_job *job, const run_remote *remote, int fd) {
  char beginning[BEGINNING_BYTES + 1], line[RUN_SECRET_LINE];
  run_secret_line(job, line);
  snprintf(beginning, sizeof(beginning), "%s%s%s", before_secret, line, after_secret);
  explicit_bzero(line, sizeof(line));
  /* collrun does not wait for ssh here, so everything must fit into the pipe. */
  (void)fcntl(fd, F_SETFL, O_NONBLOCK);
  if (remote->bytes > 32768)
    (void)fcntl(fd, F_SETPIPE_SZ, 1 << 20);
  bool sent = write(fd, beginning, BEGINNING_BYTES) == (ssize_t)BEGINNING_BYTES &&
              write(fd, remote->script, remote->bytes) == (ssize_t)remote->bytes;
  explicit_bzero(beginning, sizeof(beginning));
  return sent ? 0 : E2BIG;
}

/* Replaces this process by ssh. */
int run_remote_exec(const run_rank *rank, const run_remote *remote) {
  const char *ssh = getenv("COLL_SSH");
  char *text = strdup(ssh != NULL && ssh[0] != '\0' ? ssh : "ssh");
  char *words[MAX_SSH_WORDS + 8];
  char *save = NULL;
  int count = 0;
  if (text == NULL)
    return ENOMEM;
  for (char *word = strtok_r(text, " ", &save); word != NULL && count < MAX_SSH_WORDS;
       word = strtok_r(NULL, " ", &save))
    words[count++] = word;
  words[count++] = "-T";
  words[count++] = "-o";
  words[count++] = "BatchMode=yes";
  words[count++] = (char *)rank->host;
  words[count++] = (char *)remote->command;
  words[count] = NULL;
  execvp(words[0], words);
  int reason = errno;
  free(text);
  return reason;
}
