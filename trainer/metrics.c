/* metrics.c: the results of a run as JSON lines. */
#include "trainer/metrics.h"

#include "trainer/strategies/strategy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
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

/* Ends a line and flushes it, which notices a full disk. */
static bool end_line(const metrics *m, FILE *file, fail *why) {
  fputs("}\n", file);
  if (fflush(file) != 0 || ferror(file))
    return fail_set(why, "%s: write: %s", file == m->file ? m->path : "standard output",
                    strerror(errno));
  return true;
}

/* The members that both kinds of lines have. 17 digits represent a double exactly. */
static void put_result(FILE *file, const epoch_result *r) {
  fprintf(file,
          ",\"ranks\":%d,\"train_loss\":%.17g,\"train_accuracy\":%.17g,\"test_loss\":%.17g,"
          "\"test_accuracy\":%.17g,\"samples_per_s\":%.6g,\"comm_wait_share\":%.6g,"
          "\"slowed_share\":%.6g,\"compute_share\":%.6g,\"sent_bytes\":%.0f,"
          "\"optimizer_bytes\":%zu,\"weights_hash\":\"%016" PRIx64 "\"%s%s",
          r->ranks, r->train_loss, r->train_accuracy, r->test_loss, r->test_accuracy,
          r->samples_per_s, r->wait_share, r->slowed_share, r->compute_share, r->sent_bytes,
          r->optimizer_bytes, r->weights_hash, r->notes && r->notes[0] ? "," : "",
          r->notes ? r->notes : "");
}

/* Writes the line of an epoch. */
static bool put_epoch(const metrics *m, FILE *file, const epoch_result *result, fail *why) {
  fprintf(file, "{\"type\":\"epoch\",\"epoch\":%" PRIu64 ",\"seconds\":%.6g", result->epoch,
          result->seconds);
  put_result(file, result);
  return end_line(m, file, why);
}

bool metrics_epoch(metrics *m, const epoch_result *result, fail *why) {
  return (!m->file || put_epoch(m, m->file, result, why)) &&
         (!m->out || put_epoch(m, m->out, result, why));
}

/* Writes the last line. */
static bool put_final(const metrics *m, FILE *file, const options *o, const epoch_result *last,
                      double seconds, fail *why) {
  fprintf(file,
          "{\"type\":\"final\",\"epochs\":%" PRIu64 ",\"batch\":%" PRIu64 ",\"seed\":%" PRIu64
          ",\"strategy\":\"%s\",\"wire\":\"%s\",\"layers\":[",
          last->epoch, o->batch, o->seed, o->strategy->name, wire_name(&o->wire));
  for (size_t i = 0; o->model == MODEL_PERCEPTRON && i < o->size_count; i++)
    fprintf(file, "%s%zu", i ? "," : "", o->sizes[i]);
  fprintf(file, "],\"seconds\":%.6g", seconds);
  put_result(file, last);
  return end_line(m, file, why);
}

bool metrics_final(metrics *m, const options *o, const epoch_result *last, double seconds,
                   fail *why) {
  return (!m->file || put_final(m, m->file, o, last, seconds, why)) &&
         (!m->out || put_final(m, m->out, o, last, seconds, why));
}

void metrics_close(metrics *m) {
  if (m->file)
    fclose(m->file);
  m->file = NULL;
}
