/* hostfile.c: what ranks on other hosts need from this one: which hosts, and which variables. */
#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/file.h"
#include "libcoll/tools/collrun/run.h"

#define MOST_BYTES (1 << 20)

/* Adds a line's host to the list. False if it is malformed. */
static bool add_line(FILE *list, char *line, bool *empty) {
  char *save = NULL;
  line[strcspn(line, "#\r\n")] = '\0';
  const char *host = strtok_r(line, " \t", &save), *slots = strtok_r(NULL, " \t", &save);
  if (host == NULL)
    return true;
  if (strchr(host, ',') != NULL || strtok_r(NULL, " \t", &save) != NULL ||
      (slots != NULL && strncmp(slots, "slots=", 6) != 0))
    return false;
  fprintf(list, "%s%s", *empty ? "" : ",", host);
  if (slots != NULL)
    fprintf(list, ":%s", slots + 6);
  *empty = false;
  return true;
}

char *run_hostfile_read(const char *path) {
  char why[160], *text = NULL, *line = NULL;
  size_t bytes = 0, room = 0;
  FILE *file = colli_file_stream(path, MOST_BYTES, why, sizeof(why));
  FILE *list = file != NULL ? open_memstream(&text, &bytes) : NULL;
  bool sound = true, empty = true;
  int number = 0;
  if (list == NULL) {
    fprintf(stderr, "collrun: --hostfile %s: %s\n", path, file == NULL ? why : "out of memory");
    if (file != NULL)
      fclose(file);
    return NULL;
  }
  while (sound && getline(&line, &room, file) >= 0) {
    number++;
    sound = add_line(list, line, &empty);
  }
  free(line);
  fclose(file);
  if (fclose(list) == 0 && sound && !empty)
    return text;
  if (!sound)
    fprintf(stderr, "collrun: --hostfile %s, line %d: it takes \"name slots=ranks\"\n", path,
            number);
  else
    fprintf(stderr, "collrun: --hostfile %s: it names no host\n", path);
  free(text);
  return NULL;
}

bool run_export(run_options *options, const char *text) {
  size_t length = strcspn(text, "=");
  bool sound = length > 0 && !isdigit((unsigned char)*text);
  for (size_t i = 0; i < length; i++)
    sound = sound && (isalnum((unsigned char)text[i]) || text[i] == '_');
  char *name = sound && options->nexports < RUN_MAX_EXPORTS ? strndup(text, length) : NULL;
  if (name == NULL)
    return false;
  if (text[length] == '=')
    setenv(name, text + length + 1, 1);
  options->exports[options->nexports++] = name;
  return true;
}
