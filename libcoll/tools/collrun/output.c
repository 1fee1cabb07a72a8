/* output.c: prefixes each line that a rank prints with "[rank] ", and never mixes two lines. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "libcoll/tools/collrun/run.h"

#define STREAM_BYTES 65536 /* a longer line is written in pieces */
#define PREFIX_ROOM  16

/* One rank's standard output or error. */
typedef struct stream {
  int read_fd;  /* -1: ended */
  int write_fd; /* the rank's end, until all are started */
  size_t used;
  char *text; /* an incomplete line; STREAM_BYTES of room, allocated on first use */
} stream;

struct run_output {
  int nranks;
  stream *streams; /* rank r's output is streams[2 * r], its error stream the next */
  char *out;       /* prefixed lines that are being written */
  size_t out_room;
};

run_output *run_output_create(int nranks) {
  run_output *output = calloc(1, sizeof(*output));
  if (output == NULL)
    return NULL;
  output->nranks = nranks;
  output->streams = calloc(2 * (size_t)nranks, sizeof(*output->streams));
  output->out_room = STREAM_BYTES + PREFIX_ROOM + 1;
  output->out = malloc(output->out_room);
  for (int s = 0; output->streams != NULL && s < 2 * nranks; s++)
    output->streams[s].read_fd = output->streams[s].write_fd = -1;
  bool made = output->streams != NULL && output->out != NULL;
  for (int s = 0; made && s < 2 * nranks; s++) {
    int ends[2];
    made = pipe2(ends, O_CLOEXEC) == 0;
    if (!made)
      break;
    output->streams[s].read_fd = ends[0];
    output->streams[s].write_fd = ends[1];
    (void)fcntl(ends[0], F_SETFL, O_NONBLOCK);
  }
  if (made)
    return output;
  int reason = errno;
  run_output_free(output);
  errno = reason;
  return NULL;
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
  for (int s = 0; output->streams != NULL && s < 2 * output->nranks; s++) {
    close_once(&output->streams[s].read_fd);
    close_once(&output->streams[s].write_fd);
    free(output->streams[s].text);
  }
  free(output->streams);
  free(output->out);
  free(output);
}

void run_output_ends(const run_output *output, int rank, int *out, int *err) {
  *out = output->streams[2 * rank].write_fd;
  *err = output->streams[2 * rank + 1].write_fd;
}

void run_output_started(run_output *output) {
  for (int s = 0; s < 2 * output->nranks; s++)
    close_once(&output->streams[s].write_fd);
}

int run_output_poll(const run_output *output, struct pollfd *fds) {
  int count = 0;
  for (int s = 0; s < 2 * output->nranks; s++)
    if (output->streams[s].read_fd >= 0)
      fds[count++] = (struct pollfd){output->streams[s].read_fd, POLLIN, 0};
  return count;
}

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

/* Writes one line with its prefix, with one system call if possible. */
static bool write_line(run_output *output, int s, const char *line, size_t bytes) {
  int prefix = snprintf(output->out, PREFIX_ROOM, "[%d] ", s / 2);
  memcpy(output->out + prefix, line, bytes);
  size_t total = (size_t)prefix + bytes;
  if (bytes == 0 || line[bytes - 1] != '\n')
    output->out[total++] = '\n';
  return write_all(s % 2 == 0 ? STDOUT_FILENO : STDERR_FILENO, output->out, total);
}

/* Writes the complete lines of a stream (all: also the rest), and keeps what is left. */
static bool write_lines(run_output *output, int s, bool all) {
  stream *from = &output->streams[s];
  size_t done = 0;
  bool good = true;
  while (good && done < from->used) {
    const char *end = memchr(from->text + done, '\n', from->used - done);
    if (end == NULL && !all && !(done == 0 && from->used == STREAM_BYTES))
      break;
    size_t bytes = end != NULL ? (size_t)(end - from->text) + 1 - done : from->used - done;
    good = write_line(output, s, from->text + done, bytes);
    done += bytes;
  }
  memmove(from->text, from->text + done, from->used - done);
  from->used -= done;
  return good;
}

/* Forwards the data of one stream; false at its end. */
static bool pass_stream(run_output *output, int s) {
  stream *from = &output->streams[s];
  if (from->text == NULL && (from->text = malloc(STREAM_BYTES)) == NULL)
    return false;
  ssize_t got = read(from->read_fd, from->text + from->used, STREAM_BYTES - from->used);
  if (got < 0)
    return errno == EAGAIN || errno == EINTR;
  from->used += (size_t)got;
  /* If our reader is gone, closing the pipe tells the rank. */
  return write_lines(output, s, got == 0) && got > 0;
}

bool run_output_pass(run_output *output) {
  bool open = false;
  for (int s = 0; s < 2 * output->nranks; s++) {
    if (output->streams[s].read_fd < 0)
      continue;
    if (pass_stream(output, s))
      open = true;
    else
      close_once(&output->streams[s].read_fd);
  }
  return open;
}
