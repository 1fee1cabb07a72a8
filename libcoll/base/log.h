/*
 * log.h: what libcoll prints on standard error. COLL_LOG=none|error|warn|info|debug; the default,
 * "warn", prints a line for each communicator that cannot be created or is revoked by a failure,
 * and for each feature that the machine lacks.
 */
#ifndef COLLI_BASE_LOG_H
#define COLLI_BASE_LOG_H

typedef enum colli_log_level {
  COLLI_LOG_NONE,
  COLLI_LOG_ERROR,
  COLLI_LOG_WARN,
  COLLI_LOG_INFO,
  COLLI_LOG_DEBUG
} colli_log_level;

typedef struct colli_log {
  colli_log_level level;
  int rank; /* -1: not known yet */
} colli_log;

/* "info" to COLLI_LOG_INFO; -1 for an unknown word. */
int colli_log_level_parse(const char *word);

/* The log of a rank whose COLL_LOG is `word`; of an unknown word: none. */
colli_log colli_log_of(const char *word, int rank);

/* Prints "libcoll [rank] level: message" with one write, if the level is enabled. */
void colli_log_write(const colli_log *log, colli_log_level level, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

#endif
