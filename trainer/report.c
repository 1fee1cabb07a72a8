/* report.c: the results of a run as JSON lines, and its progress. */
#include "trainer/report.h"

#include "trainer/strategies/strategy.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

bool metrics_open(metrics *m, const options *o, fail *why) {
  m->path = o->metrics;
  m->out = o->json ? stdout : NULL;
  if (!m->path || m->file)
    return true;
  m->file = fopen(m->path, "ae");
  return m->file ? true : fail_set(why, "%s: open: %s", m->path, strerror(errno));
}

bool metrics_restart(metrics *m, fail *why) {
  /* Pipes and terminals cannot be truncated, and need not be. */
  if (m->file && ftruncate(fileno(m->file), 0) != 0 && errno != EINVAL)
    return fail_set(why, "%s: truncate: %s", m->path, strerror(errno));
  return true;
}

/* Writes a line that begins with `head` and continues with what both kinds have, and flushes it,
 * which notices a full disk. 17 digits represent a double exactly. */
static bool put_line(const metrics *m, const char *head, double seconds, const epoch_result *r,
                     fail *why) {
  FILE *files[] = {m->file, m->out};
  const char *notes = r->notes ? r->notes : "";
  for (int i = 0; i < 2; i++) {
    if (!files[i])
      continue;
    fprintf(files[i],
            "{%s,\"seconds\":%.6g,\"ranks\":%d,\"train_loss\":%.17g,\"train_accuracy\":%.17g,"
            "\"test_loss\":%.17g,\"test_accuracy\":%.17g,\"samples_per_s\":%.6g,"
            "\"comm_wait_share\":%.6g,\"slowed_share\":%.6g,\"compute_share\":%.6g,"
            "\"sent_bytes\":%.0f,\"optimizer_bytes\":%zu,\"weights_hash\":\"%016" PRIx64
            "\"%s%s}\n",
            head, seconds, r->ranks, r->train_loss, r->train_accuracy, r->test_loss,
            r->test_accuracy, r->samples_per_s, r->wait_share, r->slowed_share, r->compute_share,
            r->sent_bytes, r->optimizer_bytes, r->weights_hash, notes[0] ? "," : "", notes);
    if (fflush(files[i]) != 0 || ferror(files[i]))
      return fail_set(why, "%s: write: %s", i == 0 ? m->path : "standard output", strerror(errno));
  }
  return true;
}

bool metrics_epoch(metrics *m, const epoch_result *result, fail *why) {
  char head[64];
  snprintf(head, sizeof(head), "\"type\":\"epoch\",\"epoch\":%" PRIu64, result->epoch);
  return put_line(m, head, result->seconds, result, why);
}

bool metrics_final(metrics *m, const options *o, const epoch_result *last, double seconds,
                   fail *why) {
  char head[256 + 24 * OPTIONS_MAX_SIZES];
  size_t sizes = o->model == MODEL_PERCEPTRON ? o->size_count : 0;
  int used = snprintf(head, sizeof(head),
                      "\"type\":\"final\",\"epochs\":%" PRIu64 ",\"batch\":%" PRIu64
                      ",\"seed\":%" PRIu64 ",\"strategy\":\"%s\",\"wire\":\"%s\",\"layers\":[",
                      last->epoch, o->batch, o->seed, o->strategy->name, wire_name(&o->wire));
  for (size_t i = 0; i < sizes; i++)
    used += sprintf(head + used, "%s%zu", i ? "," : "", o->sizes[i]);
  sprintf(head + used, "]");
  return put_line(m, head, seconds, last, why);
}

void metrics_close(metrics *m) {
  if (m->file)
    fclose(m->file);
  m->file = NULL;
}

/* ---- progress -------------------------------------------------------------------------------- */

#define REDRAW_S   0.1
#define MAX_WIDTH  200
#define MIN_BAR    8
#define MOST_BAR   40
#define ERASE_LINE "\r\033[K"

/* The stream on which a bar can be drawn, or NULL. */
static FILE *find_terminal(void) {
  const char *term = getenv("TERM");
  if (!term || strcmp(term, "dumb") == 0)
    return NULL;
  if (isatty(STDERR_FILENO))
    return stderr;
  return isatty(STDOUT_FILENO) ? stdout : NULL;
}

void progress_open(progress *p, int rank, bool quiet, uint64_t epochs, uint64_t first_epoch,
                   size_t samples) {
  *p = (progress){
      .epochs = epochs, .first_epoch = first_epoch, .samples = samples, .begin_s = clock_s()};
  if (rank != 0 || quiet)
    return;
  p->lines = stdout;
  p->bar = find_terminal();
}

/* Erases the bar before something else is written. */
static void erase(progress *p) {
  if (!p->bar || p->drawn_s == 0.0)
    return;
  fputs(ERASE_LINE, p->bar);
  fflush(p->bar);
  p->drawn_s = 0.0;
}

void progress_say(progress *p, const char *format, ...) {
  if (!p->lines)
    return;
  erase(p);
  va_list args;
  va_start(args, format);
  vfprintf(p->lines, format, args);
  va_end(args);
  fputc('\n', p->lines);
  fflush(p->lines);
}

/* "41 s", "12 min" or "3.4 h". */
static void format_time(char *text, size_t size, double seconds) {
  if (seconds < 120)
    snprintf(text, size, "%.0f s", seconds);
  else if (seconds < 7200)
    snprintf(text, size, "%.0f min", seconds / 60);
  else
    snprintf(text, size, "%.1f h", seconds / 3600);
}

/* "950" or "115k". */
static void format_rate(char *text, size_t size, double rate) {
  if (rate < 10000)
    snprintf(text, size, "%.0f", rate);
  else
    snprintf(text, size, "%.0fk", rate / 1000);
}

size_t progress_format(char *text, size_t size, size_t width, const progress *p,
                       const progress_state *state, double now_s) {
  /* The long form if it fits, else the short one. */
  static const char *const layouts[] = {
      " %3.0f %%  loss %.4f  accuracy %.2f %%  %s samples/s  waiting %.0f %%  ETA %s",
      " %3.0f %% loss %.3f acc %.1f %% %s/s wait %.0f %% ETA %s"};
  char head[64], tail[192], eta[32], speed[32], bar[MOST_BAR + 1] = "";
  double total = (double)(p->epochs - p->first_epoch) * (double)p->samples;
  double done =
      (double)(state->epoch - 1 - p->first_epoch) * (double)p->samples + (double)state->samples;
  double rate = now_s > p->begin_s ? done / (now_s - p->begin_s) : 0.0;
  double part = (double)state->samples / (double)p->samples;
  size_t used = 0;
  format_time(eta, sizeof(eta), rate > 0.0 ? (total - done) / rate : 0.0);
  format_rate(speed, sizeof(speed), rate);
  snprintf(head, sizeof(head), "epoch %" PRIu64 "/%" PRIu64, state->epoch, p->epochs);
  for (int i = 0; i < 2 && (i == 0 || used + MIN_BAR > width); i++) {
    snprintf(tail, sizeof(tail), layouts[i], 100 * part, state->loss, 100 * state->accuracy, speed,
             100 * state->wait_share, eta);
    used = strlen(head) + strlen(tail) + strlen(" []");
  }
  if (used + MIN_BAR <= width) {
    size_t cells = width - used < MOST_BAR ? width - used : MOST_BAR;
    memset(bar, '.', cells);
    memset(bar, '#', (size_t)(part * (double)cells));
    snprintf(text, size, "%s [%s]%s", head, bar, tail);
  } else {
    snprintf(text, size, "%s%s", head, tail);
  }
  if (width < size)
    text[width] = '\0';
  return strlen(text);
}

void progress_step(progress *p, const progress_state *state) {
  double now = clock_s();
  if (!p->bar || now - p->drawn_s < REDRAW_S)
    return;
  char text[MAX_WIDTH + 1];
  struct winsize window = {.ws_col = 0};
  size_t width = 80;
  if (ioctl(fileno(p->bar), TIOCGWINSZ, &window) == 0 && window.ws_col > 1)
    width = window.ws_col;
  width = width - 1 < MAX_WIDTH ? width - 1 : MAX_WIDTH; /* a full line would wrap */
  progress_format(text, sizeof(text), width, p, state, now);
  fprintf(p->bar, ERASE_LINE "%s", text);
  fflush(p->bar);
  p->drawn_s = now;
}

void progress_epoch(progress *p, const epoch_result *r) {
  progress_say(p,
               "epoch %" PRIu64 "/%" PRIu64 ": loss %.4f, accuracy %.2f %%; test loss %.4f, test "
               "accuracy %.2f %%; %.2f s, %.0f samples/s, waiting %.1f %%",
               r->epoch, p->epochs, r->train_loss, 100 * r->train_accuracy, r->test_loss,
               100 * r->test_accuracy, r->seconds, r->samples_per_s, 100 * r->wait_share);
}
