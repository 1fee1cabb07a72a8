/* progress.c: shows how far a run is. */
#include "trainer/progress.h"

#include "trainer/base.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

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
