/*
 * calibration.c: reads and writes the file of measured costs: lines of "key = value". A line
 * "correction.shm.4.allreduce.ring = 1.05 0.98 ..." has the measured over the predicted time of
 * this algorithm on 4 ranks, for growing sizes.
 */
#include "libcoll/tuning/calibration.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libcoll/algo/algo.h"
#include "libcoll/base/file.h"
#include "libcoll/cost/links.h"

#define MOST       1e9               /* no cost is larger, in ns */
#define MOST_BYTES ((size_t)4 << 20) /* of a file: ten times what all corrections need */

static const char *const fields[] = {"alpha_ns", "beta_ns_per_byte", "gamma_ns_per_byte",
                                     "step_ns"};

/* The key of number `index`. */
static void key_of(int index, char *key, size_t bytes) {
  snprintf(key, bytes, "%s.%s.%s", colli_link_name((colli_link_kind)(index / 4 % COLLI_LINK_KINDS)),
           index < COLLI_CALIBRATION_NUMBERS / 2 ? "apart" : "crowded", fields[index % 4]);
}

/*
 * Reads a decimal number, with or without a point; false if malformed. Not strtod(), because that
 * depends on the locale.
 */
static bool read_number(const char *text, double *number) {
  double value = 0, unit = 1;
  bool digits = false, point = false;
  for (; *text; text++) {
    if (*text == '.' && !point) {
      point = true;
      continue;
    }
    if (*text < '0' || *text > '9' || value > MOST)
      return false;
    digits = true;
    unit = point ? unit / 10 : 1;
    value = point ? value + unit * (*text - '0') : 10 * value + (*text - '0');
  }
  *number = value;
  return digits && value <= MOST;
}

/* What has been read of a file. */
typedef struct draft {
  colli_calibration numbers;
  colli_calibration_origin origin;
  double version;
  bool seen[COLLI_CALIBRATION_NUMBERS];
  colli_corrections *corrections;
} draft;

/* The place for the corrections of "shm.4.allreduce.ring"; NULL if the name is invalid. */
static float *find_corrections(colli_corrections *corrections, char *key) {
  char *rest, *words[4];
  words[0] = strtok_r(key, ".", &rest);
  for (int i = 1; i < 4; i++)
    words[i] = words[i - 1] ? strtok_r(NULL, ".", &rest) : NULL;
  int coll = words[3] ? colli_coll_parse(words[2]) : -1;
  const colli_algo *algo = coll >= 0 ? colli_algo_find((colli_coll)coll, words[3]) : NULL;
  for (int link = 0; algo && link < COLLI_LINK_KINDS; link++)
    for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++) {
      char nranks[16];
      snprintf(nranks, sizeof(nranks), "%d", colli_corrected_ranks[w]);
      if (strcmp(words[0], colli_link_name((colli_link_kind)link)) == 0 &&
          strcmp(words[1], nranks) == 0)
        return corrections->of[link][w][algo->id];
    }
  return NULL;
}

/* Reads the corrections of one algorithm; false if they are malformed. */
static bool take_corrections(draft *d, const char *key, const char *value) {
  char name[128], numbers[256], *rest;
  if (!d->corrections)
    d->corrections = calloc(1, sizeof(*d->corrections));
  if (!d->corrections || snprintf(name, sizeof(name), "%s", key) >= (int)sizeof(name) ||
      snprintf(numbers, sizeof(numbers), "%s", value) >= (int)sizeof(numbers))
    return false;
  float *to = find_corrections(d->corrections, name);
  char *word = strtok_r(numbers, " ", &rest);
  for (int i = 0; to && i < COLLI_CORRECTED_SIZES; i++, word = strtok_r(NULL, " ", &rest)) {
    double number;
    if (!word || !read_number(word, &number))
      return false;
    to[i] = (float)number;
  }
  return to && !word;
}

/* Completes what was read of corrections. */
static void seal_corrections(draft *d) {
  uint64_t digest = 0xcbf29ce484222325ull; /* FNV-1a */
  const uint8_t *parts[] = {(const uint8_t *)&d->numbers, (const uint8_t *)d->corrections->of};
  const size_t bytes[] = {sizeof(d->numbers), sizeof(d->corrections->of)};
  d->corrections->cores = d->origin.cores;
  for (int part = 0; part < 2; part++)
    for (size_t i = 0; i < bytes[part]; i++)
      digest = (digest ^ parts[part][i]) * 0x100000001b3ull;
  d->corrections->digest = (digest ^ (uint64_t)d->origin.cores << 1) | 1;
}

/* Reads one key; false if it is unknown or its value is invalid. */
static bool take_key(draft *d, const char *key, const char *value) {
  static const char correction[] = "correction.";
  double number;
  if (strncmp(key, correction, sizeof(correction) - 1) == 0)
    return take_corrections(d, key + sizeof(correction) - 1, value);
  if (strcmp(key, "host") == 0)
    return snprintf(d->origin.host, sizeof(d->origin.host), "%s", value) > 0;
  if (strcmp(key, "date") == 0)
    return snprintf(d->origin.date, sizeof(d->origin.date), "%s", value) > 0;
  if (!read_number(value, &number))
    return false;
  if (strcmp(key, "version") == 0) {
    d->version = number;
    return true;
  }
  if (strcmp(key, "cores") == 0) {
    d->origin.cores = number < INT_MAX ? (int)number : INT_MAX;
    return true;
  }
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++) {
    char known[64];
    key_of(i, known, sizeof(known));
    if (strcmp(key, known) != 0)
      continue;
    *colli_calibration_number(&d->numbers, i) = number;
    d->seen[i] = true;
    return true;
  }
  return false;
}

/* Cuts spaces off both ends. */
static char *trim(char *text) {
  text += strspn(text, " \t");
  size_t length = strlen(text);
  while (length > 0 && strchr(" \t\r\n", text[length - 1]))
    length--;
  text[length] = 0;
  return text;
}

/* Reads one line; false if it is malformed. */
static bool take_line(draft *d, char *line) {
  char *text = trim(line), *equals = strchr(text, '=');
  if (!*text || *text == '#')
    return true;
  if (!equals)
    return false;
  *equals = 0;
  return take_key(d, trim(text), trim(equals + 1));
}

/* Checks that everything is there. */
static bool is_complete(const draft *d, char *why, size_t why_bytes) {
  if (d->version != COLLI_CALIBRATION_VERSION) {
    snprintf(why, why_bytes, "its version is %g instead of %d", d->version,
             COLLI_CALIBRATION_VERSION);
    return false;
  }
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++) {
    char key[64];
    if (d->seen[i])
      continue;
    key_of(i, key, sizeof(key));
    snprintf(why, why_bytes, "%s is missing", key);
    return false;
  }
  return true;
}

/* Reads a file. */
bool colli_calibration_read(const char *path, colli_calibration *out,
                            colli_corrections **corrections, colli_calibration_origin *origin,
                            char *why, size_t why_bytes) {
  draft d = {0};
  FILE *file = colli_file_stream(path, MOST_BYTES, why, why_bytes);
  if (!file)
    return false;
  char line[256];
  int number = 1;
  bool fine = true;
  for (; fine && fgets(line, sizeof(line), file); number++)
    fine = take_line(&d, line);
  if (!fine)
    snprintf(why, why_bytes, "line %d is malformed", number - 1);
  fclose(file);
  fine = fine && is_complete(&d, why, why_bytes);
  if (!fine || !corrections) {
    free(d.corrections);
    d.corrections = NULL;
  }
  if (!fine)
    return false;
  if (d.corrections)
    seal_corrections(&d);
  if (corrections)
    *corrections = d.corrections;
  *out = d.numbers;
  if (origin) {
    *origin = d.origin;
    snprintf(origin->path, sizeof(origin->path), "%s", path);
  }
  return true;
}

/* The usual place. */
bool colli_calibration_path(char *path, size_t bytes) {
  const char *cache = secure_getenv("XDG_CACHE_HOME"), *home = secure_getenv("HOME");
  int length = cache && *cache ? snprintf(path, bytes, "%s/libcoll/calibration", cache)
               : home && *home ? snprintf(path, bytes, "%s/.cache/libcoll/calibration", home)
                               : -1;
  return length > 0 && (size_t)length < bytes;
}

/* Loads what COLL_CALIBRATION says. */
void colli_calibration_load(const char *setting, const colli_log *log, colli_calibration *out,
                            colli_corrections **corrections, colli_calibration_origin *origin) {
  char path[512], why[160];
  colli_calibration_default(out);
  if (corrections)
    *corrections = NULL;
  if (origin)
    *origin = (colli_calibration_origin){0};
  if (strcmp(setting, "none") == 0)
    return;
  if (!*setting && (!colli_calibration_path(path, sizeof(path)) || access(path, F_OK) != 0))
    return;
  const char *used = *setting ? setting : path;
  if (!colli_calibration_read(used, out, corrections, origin, why, sizeof(why)))
    colli_log_write(log, COLLI_LOG_WARN,
                    "calibration file %s cannot be used: %s; algorithms are chosen by "
                    "typical costs. Run coll_calibrate, or set COLL_CALIBRATION",
                    used, why);
}

/* Creates the folders of a path. Returns 0 or an errno. */
static int make_folders(const char *path) {
  char folder[512];
  snprintf(folder, sizeof(folder), "%s", path);
  for (char *slash = strchr(folder + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    if (mkdir(folder, 0777) != 0 && errno != EEXIST)
      return errno;
    *slash = '/';
  }
  return 0;
}

/* Writes the corrections of all algorithms that have any. */
static void write_corrections(FILE *file, const colli_corrections *corrections) {
  for (int link = 0; link < COLLI_LINK_KINDS; link++)
    for (int w = 0; w < COLLI_CORRECTED_WORLDS; w++)
      for (const colli_algo *const *algo = colli_algos; *algo; algo++) {
        const float *of = corrections->of[link][w][(*algo)->id];
        bool any = false;
        for (int i = 0; i < COLLI_CORRECTED_SIZES; i++)
          any |= of[i] > 0;
        if (!any)
          continue;
        fprintf(file, "correction.%s.%d.%s.%s =", colli_link_name((colli_link_kind)link),
                colli_corrected_ranks[w], colli_coll_name((*algo)->coll), (*algo)->name);
        for (int i = 0; i < COLLI_CORRECTED_SIZES; i++)
          fprintf(file, " %.3f", (double)of[i]);
        fputc('\n', file);
      }
}

/* Writes a file. */
int colli_calibration_write(const char *path, const colli_calibration *calibration,
                            const colli_corrections *corrections,
                            const colli_calibration_origin *origin) {
  char draft_path[544];
  int failed = make_folders(path);
  FILE *file = failed ? NULL : colli_file_draft(path, draft_path, sizeof(draft_path));
  if (!file)
    return failed ? failed : errno;
  colli_calibration numbers = *calibration;
  fprintf(file,
          "# Costs of libcoll's messages on this machine, by coll_calibrate.\n"
          "version = %d\nhost = %s\ncores = %d\ndate = %s\n",
          COLLI_CALIBRATION_VERSION, origin->host, origin->cores, origin->date);
  for (int i = 0; i < COLLI_CALIBRATION_NUMBERS; i++) {
    char key[64];
    key_of(i, key, sizeof(key));
    fprintf(file, "%s = %.6f\n", key, *colli_calibration_number(&numbers, i));
  }
  if (corrections)
    write_corrections(file, corrections);
  return colli_file_publish(file, draft_path, path);
}
