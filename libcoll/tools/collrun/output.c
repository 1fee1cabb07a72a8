/*
 * output.c: what ranks print. With --tag, each line begins with "[rank] ", and two lines are never
 * mixed. Otherwise their standard error goes through unchanged, except for lines of libcoll that
 * several ranks print: these are shown once.
 *
 * Such a line is held for a short time, and with it what the same rank prints after it, so that
 * nothing changes places. All of this is in memory that the guard shares: if collrun is killed, the
 * guard writes what is left.
 */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "libcoll/base/clock.h"
#include "libcoll/tools/collrun/run.h"

#define STREAM_BYTES 65536 /* a longer line is written in pieces */
#define OUT_BYTES    (3 * STREAM_BYTES)
#define PREFIX_ROOM  16
#define MOST_READS   64                      /* for what a rank printed before it ended */
#define HOLD_NS      (200 * COLLI_NS_PER_MS) /* an error waits so long for equal ones */
#define FREE_NS      (10 * HOLD_NS) /* after that, the rank's lines are not held for this long */

/* One rank's standard output or error. */
typedef struct stream {
  int read_fd;  /* -1: ended, or not ours */
  int write_fd; /* the rank's end, until all are started */
  size_t used;  /* bytes of its text that were read and not yet written */
  bool ended;   /* the rank and its children write no more */
  bool within;  /* the beginning of a line was written */
  size_t held;  /* the first so many bytes are an error that is held; 0: none */
  uint64_t hash;
  uint64_t until_ns; /* held until then */
  uint64_t free_ns;  /* nothing is held before that */
} stream;

struct run_output {
  int nranks;
  bool tag;
  bool stuck;  /* our standard error takes nothing at the moment */
  bool gone;   /* nobody reads it any more */
  size_t room; /* of the whole mapping */
  /* Behind it: rank r's output is stream 2 * r, its error stream the next. */
  stream streams[];
};

/* Where a stream's text is, and room for lines that are being made. */
static char *text_of(const run_output *output, int s) {
  char *texts = (char *)(uintptr_t)(output->streams + 2 * output->nranks);
  return texts + (size_t)s * STREAM_BYTES;
}

static char *out_of(const run_output *output) {
  return text_of(output, 2 * output->nranks);
}

static unsigned char *members_of(const run_output *output) {
  return (unsigned char *)out_of(output) + OUT_BYTES;
}

run_output *run_output_create(int nranks, bool tag) {
  const size_t count = 2 * (size_t)nranks;
  const size_t room =
      sizeof(run_output) + count * (sizeof(stream) + STREAM_BYTES) + OUT_BYTES + (size_t)nranks;
  run_output *output =
      mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (output == MAP_FAILED)
    return NULL;
  *output = (run_output){.nranks = nranks, .tag = tag, .room = room};
  for (size_t s = 0; s < count; s++)
    output->streams[s].read_fd = output->streams[s].write_fd = -1;
  for (size_t s = tag ? 0 : 1; s < count; s += tag ? 1 : 2) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
      int reason = errno;
      run_output_free(output);
      errno = reason;
      return NULL;
    }
    output->streams[s].read_fd = ends[0];
    output->streams[s].write_fd = ends[1];
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  return output;
}

/* Closes a descriptor once. */
static void close_once(int *fd) {
  if (*fd >= 0)
    close(*fd);
  *fd = -1;
}

void run_output_free(run_output *output) {
  if (output == NULL)
    return;
  for (int s = 0; s < 2 * output->nranks; s++) {
    close_once(&output->streams[s].read_fd);
    close_once(&output->streams[s].write_fd);
  }
  munmap(output, output->room);
}

void run_output_ends(const run_output *output, int rank, int *out, int *err) {
  if (output->tag)
    *out = output->streams[2 * rank].write_fd;
  *err = output->streams[2 * rank + 1].write_fd;
}

void run_output_started(run_output *output) {
  for (int s = 0; s < 2 * output->nranks; s++)
    close_once(&output->streams[s].write_fd);
}

int run_output_poll(const run_output *output, struct pollfd *fds) {
  int count = 0;
  if (output->stuck)
    fds[count++] = (struct pollfd){STDERR_FILENO, POLLOUT, 0};
  for (int s = 0; s < 2 * output->nranks; s++) {
    const stream *from = &output->streams[s];
    if (from->read_fd >= 0 && from->held == 0 && !(output->stuck && from->used > 0))
      fds[count++] = (struct pollfd){from->read_fd, POLLIN, 0};
  }
  return count;
}

/* ---- writing --------------------------------------------------------------------------------- */

/* Writes everything, waiting if necessary; false if the reader is gone. */
static bool write_all(int fd, const char *text, size_t bytes) {
  while (bytes > 0) {
    ssize_t wrote = write(fd, text, bytes);
    if (wrote < 0 && errno == EAGAIN) { /* another process made our output nonblocking: wait */
      struct pollfd wait = {fd, POLLOUT, 0};
      (void)poll(&wait, 1, -1);
    } else if (wrote < 0 && errno != EINTR) {
      return false;
    } else if (wrote > 0) {
      text += wrote;
      bytes -= (size_t)wrote;
    }
  }
  return true;
}

/* Whether our standard error takes some bytes without making us wait. */
static bool takes_more(run_output *output) {
  struct pollfd now = {STDERR_FILENO, POLLOUT, 0};
  output->stuck = poll(&now, 1, 0) == 0;
  return !output->stuck;
}

/* Writes to standard error what it takes now; returns how much that was. */
static size_t write_some(run_output *output, const char *text, size_t bytes) {
  size_t done = 0;
  while (done < bytes && !output->gone && takes_more(output)) {
    const size_t most = bytes - done < PIPE_BUF ? bytes - done : PIPE_BUF;
    ssize_t wrote = write(STDERR_FILENO, text + done, most);
    if (wrote > 0)
      done += (size_t)wrote;
    output->gone = wrote < 0 && errno != EINTR && errno != EAGAIN;
  }
  return done;
}

/* Writes one line with its prefix, with one system call if possible. */
static bool write_line(run_output *output, int s, const char *line, size_t bytes) {
  char *out = out_of(output);
  int prefix = snprintf(out, PREFIX_ROOM, "[%d] ", s / 2);
  memcpy(out + prefix, line, bytes);
  size_t total = (size_t)prefix + bytes;
  if (bytes == 0 || line[bytes - 1] != '\n')
    out[total++] = '\n';
  return write_all(s % 2 == 0 ? STDOUT_FILENO : STDERR_FILENO, out, total);
}

/* ---- errors that several ranks print --------------------------------------------------------- */

/* Whether a line is to be held: an error of libcoll, unless the rank had to wait just before. */
static bool is_held(const run_output *output, int s, const char *line, size_t bytes) {
  return s % 2 == 1 && output->nranks > 1 && !output->gone && run_error_begin(line, bytes) > 0 &&
         colli_now_ns() >= output->streams[s].free_ns;
}

/* Holds the line with which the text of a stream begins, as long as those that are equal to it. */
static void hold(run_output *output, int s, size_t bytes) {
  stream *from = &output->streams[s];
  from->hash = run_error_hash(text_of(output, s), bytes);
  from->until_ns = colli_now_ns() + HOLD_NS;
  for (int other = 1; other < 2 * output->nranks; other += 2)
    if (output->streams[other].held > 0 && output->streams[other].hash == from->hash &&
        output->streams[other].until_ns < from->until_ns)
      from->until_ns = output->streams[other].until_ns;
  from->held = bytes;
}

/* Removes the beginning of a stream's text. */
static void drop(run_output *output, int s, size_t bytes) {
  stream *from = &output->streams[s];
  char *text = text_of(output, s);
  memmove(text, text + bytes, from->used - bytes);
  from->used -= bytes;
}

/* Bytes of the line with which a text begins; all of it if the line is incomplete. */
static size_t line_bytes(const char *text, size_t bytes, bool *whole) {
  const char *end = memchr(text, '\n', bytes);
  *whole = end != NULL;
  return end != NULL ? (size_t)(end - text) + 1 : bytes;
}

/* Writes the lines of a stream with its rank, up to one that is held (all: also an incomplete one).
 * False if the reader is gone. */
static bool write_tagged(run_output *output, int s, bool all) {
  stream *from = &output->streams[s];
  const char *text = text_of(output, s);
  size_t done = 0;
  bool good = true, held = false, whole;
  while (good && done < from->used) {
    const size_t bytes = line_bytes(text + done, from->used - done, &whole);
    if (!whole && !all && !(done == 0 && from->used == STREAM_BYTES))
      break;
    if ((held = is_held(output, s, text + done, bytes)))
      break;
    good = write_line(output, s, text + done, bytes);
    done += bytes;
  }
  drop(output, s, done);
  if (held)
    hold(output, s, line_bytes(text, from->used, &whole));
  return good;
}

/* Writes what a rank printed, up to a line that is held. libcoll writes each line with one call, so
 * what is incomplete is not one of its lines, and goes on at once. False if the reader is gone. */
static bool write_plain(run_output *output, int s) {
  stream *from = &output->streams[s];
  const char *text = text_of(output, s);
  size_t plain = 0;
  bool held = false, within = from->within, whole;
  while (plain < from->used && !held) {
    const size_t bytes = line_bytes(text + plain, from->used - plain, &whole);
    held = !within && is_held(output, s, text + plain, bytes);
    plain += held ? 0 : bytes;
    within = !held && !whole;
  }
  const size_t wrote = write_some(output, text, plain);
  if (wrote > 0)
    from->within = text[wrote - 1] != '\n';
  drop(output, s, wrote);
  if (held && wrote == plain)
    hold(output, s, line_bytes(text, from->used, &whole));
  return !output->gone;
}

/* Passes on what can be passed on. False if the reader is gone. */
static bool write_lines(run_output *output, int s, bool all) {
  if (output->streams[s].held > 0)
    return true;
  return output->tag ? write_tagged(output, s, all) : write_plain(output, s);
}

/* Makes the line that stands for several; returns its bytes. */
static size_t merge(const run_output *output, int s) {
  const stream *from = &output->streams[s];
  const size_t begin = run_error_begin(text_of(output, s), from->held);
  char *out = out_of(output);
  size_t used = 0;
  for (int part = output->tag ? 0 : 1; part < 2; part++) {
    used += (size_t)sprintf(out + used, part == 0 ? "[" : "libcoll [");
    used += run_error_list(members_of(output), output->nranks, out + used, STREAM_BYTES);
    used += (size_t)sprintf(out + used, part == 0 ? "] " : "] error: ");
  }
  memcpy(out + used, text_of(output, s) + begin, from->held - begin);
  return used + from->held - begin;
}

/* Shows the error that a stream holds, once for all that hold it, and what is behind it. late:
 * others were awaited until it was time. */
static void release(run_output *output, int s, bool late) {
  const uint64_t hash = output->streams[s].hash;
  unsigned char *member = members_of(output);
  int count = 0;
  for (int r = 0; r < output->nranks; r++) {
    const stream *from = &output->streams[2 * r + 1];
    member[r] = from->held > 0 && from->hash == hash;
    count += member[r];
  }
  if (count > 1)
    output->gone = !write_all(STDERR_FILENO, out_of(output), merge(output, s));
  else if (output->tag)
    output->gone = !write_line(output, s, text_of(output, s), output->streams[s].held);
  else
    output->gone = !write_all(STDERR_FILENO, text_of(output, s), output->streams[s].held);
  for (int r = 0; r < output->nranks; r++) {
    stream *from = &output->streams[2 * r + 1];
    if (!member[r])
      continue;
    if (late)
      from->free_ns = colli_now_ns() + FREE_NS;
    drop(output, 2 * r + 1, from->held);
    from->held = 0;
  }
  for (int r = 0; r < output->nranks; r++)
    if (member[r])
      (void)write_lines(output, 2 * r + 1, output->streams[2 * r + 1].ended);
}

/* Shows errors that were held long enough, and all if no other rank can print an equal one. */
static void release_due(run_output *output) {
  bool others = false;
  for (int s = 1; s < 2 * output->nranks; s += 2) {
    const stream *from = &output->streams[s];
    others = others || (from->read_fd >= 0 && !from->ended && from->held == 0);
  }
  const uint64_t now_ns = colli_now_ns();
  for (int s = 1; s < 2 * output->nranks; s += 2)
    if (output->streams[s].held > 0 && (!others || now_ns >= output->streams[s].until_ns) &&
        (output->gone || takes_more(output)))
      release(output, s, others);
}

uint64_t run_output_due(const run_output *output) {
  uint64_t due_ns = 0;
  for (int s = 1; s < 2 * output->nranks && !output->stuck; s += 2) {
    const stream *from = &output->streams[s];
    if (from->held > 0 && (due_ns == 0 || from->until_ns < due_ns))
      due_ns = from->until_ns;
  }
  return due_ns;
}

/* ---- reading --------------------------------------------------------------------------------- */

/* Passes on what has arrived from one stream. False at its end, or if the reader is gone: then the
 * end of the pipe tells the rank. */
static bool pass_stream(run_output *output, int s, bool *got_any) {
  stream *from = &output->streams[s];
  *got_any = false;
  if (from->held > 0)
    return true;
  if (!output->tag && from->used > 0) {
    (void)write_plain(output, s);
    if (from->used > 0)
      return !output->gone;
  }
  if (!from->ended) {
    ssize_t got = read(from->read_fd, text_of(output, s) + from->used, STREAM_BYTES - from->used);
    if (got < 0)
      return errno == EAGAIN || errno == EINTR;
    from->ended = got == 0;
    from->used += (size_t)got;
    *got_any = got > 0;
  }
  return write_lines(output, s, from->ended) && !(from->ended && from->used == 0);
}

bool run_output_pass(run_output *output) {
  bool open = false, unused;
  for (int s = 0; s < 2 * output->nranks; s++) {
    if (output->streams[s].read_fd < 0)
      continue;
    if (pass_stream(output, s, &unused))
      open = true;
    else
      close_once(&output->streams[s].read_fd);
  }
  release_due(output);
  return open;
}

bool run_output_settled(run_output *output, int rank) {
  for (int s = 2 * rank; s <= 2 * rank + 1; s++) {
    bool more = output->streams[s].read_fd >= 0;
    for (int i = 0; more && i < MOST_READS; i++)
      if (!pass_stream(output, s, &more)) {
        close_once(&output->streams[s].read_fd);
        break;
      }
  }
  release_due(output);
  return output->stuck || output->streams[2 * rank + 1].held == 0;
}

bool run_output_gone(const run_output *output) {
  return output->gone;
}

void run_output_finish(run_output *output) {
  for (int r = 0; r < output->nranks; r++)
    (void)run_output_settled(output, r);
  for (int s = 1; s < 2 * output->nranks;) {
    const bool held = output->streams[s].held > 0;
    if (held)
      release(output, s, false); /* there may be another one behind it */
    s = held ? 1 : s + 2;
  }
  for (int s = 0; s < 2 * output->nranks; s++) {
    if (output->tag)
      (void)write_tagged(output, s, true);
    else if (!output->gone)
      output->gone = !write_all(STDERR_FILENO, text_of(output, s), output->streams[s].used);
    output->streams[s].used = 0;
  }
}

int run_output_keep(const run_output *output, int *fds) {
  int count = 0;
  for (int s = 1; s < 2 * output->nranks; s += 2)
    if (output->streams[s].read_fd >= 0)
      fds[count++] = output->streams[s].read_fd;
  return count;
}
