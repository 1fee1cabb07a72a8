/* log.c: one line at a time on standard error. */
#include "libcoll/base/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const level_words[] = {"none", "error", "warn", "info", "debug"};

int colli_log_level_parse(const char *word) {
  for (int i = COLLI_LOG_NONE; i <= COLLI_LOG_DEBUG; i++)
    if (strcmp(word, level_words[i]) == 0)
      return i;
  return -1;
}

colli_log colli_log_of(const char *word, int rank) {
  const int level = colli_log_level_parse(word);
  return (colli_log){level < 0 ? COLLI_LOG_NONE : (colli_log_level)level, rank};
}

void colli_log_write(const colli_log *log, colli_log_level level, const char *format, ...) {
  if (level > log->level || level == COLLI_LOG_NONE)
    return;
  char line[1024], rank[16] = "-";
  if (log->rank >= 0)
    snprintf(rank, sizeof(rank), "%d", log->rank);
  int used = snprintf(line, sizeof(line), "libcoll [%s] %s: ", rank, level_words[level]);
  va_list args;
  va_start(args, format);
  int more = vsnprintf(line + used, sizeof(line) - (size_t)used, format, args);
  va_end(args);
  size_t length = (size_t)used + (more > 0 ? (size_t)more : 0);
  if (length > sizeof(line) - 1)
    length = sizeof(line) - 1;
  line[length++] = '\n';
  /* One write, so that lines of several ranks do not mix. If it fails, nothing can be done about
   * it. */
  ssize_t ignored = write(STDERR_FILENO, line, length);
  (void)ignored;
}
