/* levels_file.c: reads a file that says of many hosts where they are. */
#include "libcoll/tuning/levels_file.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/base/error.h"
#include "libcoll/base/file.h"
#include "libcoll/tuning/hierarchy.h"
#include "libcoll/tuning/units.h"

#define MOST_BYTES ((size_t)256 << 20)
#define MOST_LINE  1024 /* bytes, with the end of the line */

/* What is read. */
typedef struct reading {
  const char *path;
  const char *host;
  int line;  /* the last one that was read, from 1 */
  int first; /* the first one that is of a host, ... */
  int depth; /* ... and how many levels it has */
  int own;   /* this host's; 0: not found */
  char levels[MOST_LINE], speed[MOST_LINE];
} reading;

/* Fails with the file, the line, and what is wrong with it. */
__attribute__((format(printf, 3, 4))) static coll_status fail(const reading *r, coll_error *error,
                                                              const char *format, ...) {
  char what[160];
  va_list args;
  va_start(args, format);
  vsnprintf(what, sizeof(what), format, args);
  va_end(args);
  return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                         "COLL_LEVELS=" COLLI_LEVELS_FILE "%s: line %d: %s", r->path, r->line,
                         what);
}

/* The next word at *text, of which *text then is what follows; "" if there is none. */
static char *next_word(char **text) {
  char *word = *text + strspn(*text, " \t\r\n");
  char *end = word + strcspn(word, " \t\r\n");
  *text = *end ? end + 1 : end;
  *end = 0;
  return word;
}

bool colli_levels_file_names(const char *name, const char *host) {
  const size_t first = strcspn(host, ".");
  return strcmp(name, host) == 0 || (strncmp(name, host, first) == 0 && !name[first]);
}

/* Checks the levels of a line by themselves, and against those of the first one. */
static coll_status check_levels(reading *r, const char *levels, coll_error *error) {
  colli_rank_info info;
  const char *what = colli_hierarchy_read(levels, &info);
  if (what)
    return fail(r, error, "%s", what);
  const int depth = colli_hierarchy_depth(&info);
  r->depth = r->first ? r->depth : depth;
  r->first = r->first ? r->first : r->line;
  if (depth != r->depth)
    return fail(r, error, "levels: %d, but line %d has %d; all hosts need as many", depth, r->first,
                r->depth);
  return COLL_OK;
}

/* Reads a line without its comment. */
static coll_status read_line(reading *r, char *line, coll_error *error) {
  double mbit;
  const char *name = next_word(&line), *levels = next_word(&line), *speed = next_word(&line);
  const char *at = speed;
  if (!*name)
    return COLL_OK;
  if (!*levels || *next_word(&line))
    return fail(r, error, "it takes HOST LEVELS [SPEED], as in: node1 paris/rack7 10gbit");
  if (*speed && (!colli_read_speed(&at, &mbit) || *at))
    return fail(r, error, "the speed of a link is like 100mbit or 2.5gbit");
  const coll_status status = check_levels(r, levels, error);
  if (status != COLL_OK || !colli_levels_file_names(name, r->host))
    return status;
  if (r->own)
    return fail(r, error, "host %s is on line %d, too", r->host, r->own);
  r->own = r->line;
  memcpy(r->levels, levels, strlen(levels) + 1);
  memcpy(r->speed, speed, strlen(speed) + 1);
  return COLL_OK;
}

/* Reads all lines. */
static coll_status read_lines(reading *r, FILE *file, coll_error *error) {
  char line[MOST_LINE];
  coll_status status = COLL_OK;
  bool whole = true; /* the line before */
  while (status == COLL_OK && fgets(line, sizeof(line), file)) {
    if (!whole)
      return fail(r, error, "it is longer than %d bytes, or has a byte 0", MOST_LINE - 2);
    r->line++;
    whole = strchr(line, '\n') != NULL;
    line[strcspn(line, "#")] = 0;
    status = read_line(r, line, error);
  }
  if (status == COLL_OK && ferror(file))
    status = fail(r, error, "it cannot be read");
  return status;
}

coll_status colli_levels_file_find(colli_params *params, const char *host, coll_error *error) {
  const char *setting = params->text[COLLI_PARAM_LEVELS];
  reading r = {.path = setting + strlen(COLLI_LEVELS_FILE), .host = host};
  char why[160];
  FILE *file = colli_file_stream(r.path, MOST_BYTES, why, sizeof(why));
  if (!file)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                           "COLL_LEVELS=%s: the file cannot be used: %s", setting, why);
  coll_status status = read_lines(&r, file, error);
  fclose(file);
  if (status == COLL_OK && !r.own)
    status = colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "COLL_LEVELS=%s: after line %d, no line is of this host, %s", setting,
                             r.line, host);
  if (status == COLL_OK && (!colli_params_set_text(params, COLLI_PARAM_LEVELS, r.levels) ||
                            (!*params->text[COLLI_PARAM_LINK_SPEED] &&
                             !colli_params_set_text(params, COLLI_PARAM_LINK_SPEED, r.speed))))
    status = colli_error_set(error, COLL_ERR_INVALID_USAGE, "create",
                             "the COLL_ variables are too long to add what COLL_LEVELS=%s says",
                             setting);
  return status;
}

coll_status colli_levels_file_use(colli_params *params, coll_error *error) {
  const char *setting = params->text[COLLI_PARAM_LEVELS];
  char host[sizeof(((colli_rank_info *)0)->host)] = "";
  if (strncmp(setting, COLLI_LEVELS_FILE, strlen(COLLI_LEVELS_FILE)) != 0)
    return COLL_OK;
  gethostname(host, sizeof(host) - 1);
  return colli_levels_file_find(params, host, error);
}
