/* checkpoint.c: saves the state of a training run in a file, and loads it again. */
#include "trainer/checkpoint.h"

#include "trainer/hash.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC   "COLLCKPT"
#define VERSION 5u

/*
 * The file: this header, an array of floats for each bit of `arrays`, lowest first, and an FNV-1a
 * hash of all that. Numbers are in the machine's byte order, which `byte_order` shows.
 */
typedef struct header {
  char magic[8];
  uint32_t version, byte_order;
  uint64_t bytes; /* of the whole file */
  uint64_t epochs, step, updates, seed, batch, data;
  uint64_t shape, params, arrays;
} header;
_Static_assert(sizeof(header) == 96, "the header has no holes");
#define BYTE_ORDER_MARK 0x01020304u

/* The arrays of a state; bit i of header.arrays is the i-th. */
enum { PARAMS, VELOCITY, SQUARES, PENDING, ARRAYS };

/* The arrays of a state, NULL where it has none. Returns the set of those that it has. */
static uint64_t arrays_of(const checkpoint_state *state, float *arrays[ARRAYS]) {
  uint64_t set = 0;
  arrays[PARAMS] = state->params;
  arrays[VELOCITY] = state->velocity;
  arrays[SQUARES] = state->squares;
  arrays[PENDING] = state->pending;
  for (int i = 0; i < ARRAYS; i++)
    set |= (uint64_t)(arrays[i] != NULL) << i;
  return set;
}

/* Bytes of the file of a model. */
static size_t file_bytes(const model *m, uint64_t set) {
  size_t bytes = sizeof(header) + sizeof(uint64_t);
  for (int i = 0; i < ARRAYS; i++)
    bytes += (set >> i & 1) * m->params * sizeof(float);
  return bytes;
}

/* The folder of a path; the caller frees it. NULL: out of memory. */
static char *folder_of(const char *path) {
  char *copy = strdup(path);
  char *folder = copy ? strdup(dirname(copy)) : NULL;
  free(copy);
  return folder;
}

bool checkpoint_check(const char *path, fail *why) {
  struct stat st;
  char *folder = folder_of(path);
  if (!folder)
    return fail_memory(why, path);
  bool ok = access(folder, W_OK | X_OK) == 0;
  if (!ok)
    fail_set(why, "%s: cannot write a checkpoint into %s: %s", path, folder, strerror(errno));
  else if (stat(path, &st) == 0 && !S_ISREG(st.st_mode))
    ok = fail_set(why, "%s: exists, but is not a regular file", path);
  free(folder);
  return ok;
}

/* The contents of the whole file; the caller frees them. */
static unsigned char *pack(const checkpoint_run *run, const checkpoint_state *state) {
  const model *m = run->model;
  float *arrays[ARRAYS];
  uint64_t set = arrays_of(state, arrays);
  size_t bytes = file_bytes(m, set), each = m->params * sizeof(float);
  unsigned char *memory = malloc(bytes);
  if (!memory)
    return NULL;
  header h = {.version = VERSION,
              .byte_order = BYTE_ORDER_MARK,
              .bytes = bytes,
              .epochs = state->epochs,
              .step = state->step,
              .updates = state->updates,
              .seed = run->seed,
              .batch = run->batch,
              .data = run->data,
              .shape = m->shape,
              .params = m->params,
              .arrays = set};
  memcpy(h.magic, MAGIC, sizeof(h.magic));
  unsigned char *p = memory;
  memcpy(p, &h, sizeof(h));
  p += sizeof(h);
  for (int i = 0; i < ARRAYS; i++) {
    if (arrays[i])
      memcpy(p, arrays[i], each);
    p += arrays[i] ? each : 0;
  }
  uint64_t hash = hash_bytes(HASH_START, memory, (size_t)(p - memory));
  memcpy(p, &hash, sizeof(hash));
  return memory;
}

/* Writes all bytes; false with errno set. */
static bool write_all(int fd, const unsigned char *data, size_t bytes) {
  while (bytes > 0) {
    ssize_t done = write(fd, data, bytes < SSIZE_MAX ? bytes : SSIZE_MAX);
    if (done < 0 && errno == EINTR)
      continue;
    if (done < 0)
      return false;
    data += done;
    bytes -= (size_t)done;
  }
  return true;
}

/* Makes the rename durable. Some file systems cannot sync a folder: that is not an error. */
static bool sync_folder(const char *path, fail *why) {
  char *folder = folder_of(path);
  if (!folder)
    return fail_memory(why, path);
  int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
  if (!ok)
    fail_set(why, "%s: sync of %s: %s", path, folder, strerror(errno));
  if (fd >= 0)
    close(fd);
  free(folder);
  return ok;
}

/* Writes a file and makes sure that it is on the disk; on failure the file is removed. */
static bool write_durably(const char *path, const unsigned char *data, size_t bytes, fail *why) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (fd < 0)
    return fail_set(why, "%s: open: %s", path, strerror(errno));
  bool ok = write_all(fd, data, bytes) && fsync(fd) == 0;
  int error = errno;
  if (close(fd) != 0 && ok) {
    ok = false;
    error = errno;
  }
  if (!ok) {
    fail_set(why, "%s: write: %s", path, strerror(error));
    unlink(path);
  }
  return ok;
}

bool checkpoint_write(const char *path, const checkpoint_run *run, const checkpoint_state *state,
                      fail *why) {
  char temporary[PATH_MAX];
  /* A rank that the others gave up may still be writing, so each process has its own file. */
  int length = snprintf(temporary, sizeof(temporary), "%s.%ld.tmp", path, (long)getpid());
  if (length < 0 || (size_t)length >= sizeof(temporary))
    return fail_set(why, "%.200s...: the path is too long", path);
  unsigned char *memory = pack(run, state);
  if (!memory)
    return fail_memory(why, "a checkpoint");
  float *arrays[ARRAYS];
  size_t bytes = file_bytes(run->model, arrays_of(state, arrays));
  bool ok = write_durably(temporary, memory, bytes, why);
  free(memory);
  if (!ok)
    return false;
  if (rename(temporary, path) != 0) {
    fail_set(why, "%s: rename from %s: %s", path, temporary, strerror(errno));
    unlink(temporary);
    return false;
  }
  return sync_folder(path, why);
}

/* Reads a whole regular file; the caller frees it. */
static unsigned char *read_whole(const char *path, size_t *bytes, fail *why) {
  struct stat st;
  unsigned char *memory = NULL;
  size_t done = 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0 && errno == ENOENT)
    return fail_set(why, "%s: no such checkpoint: leave out --resume to start from scratch", path),
           NULL;
  if (fd < 0)
    return fail_set(why, "%s: open: %s", path, strerror(errno)), NULL;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
    fail_set(why, "%s: not a regular file", path);
  else if (!(memory = malloc((size_t)st.st_size + 1)))
    fail_memory(why, path);
  *bytes = memory ? (size_t)st.st_size : 0;
  while (memory && done < *bytes) {
    ssize_t got = read(fd, memory + done, *bytes - done);
    if (got < 0 && errno == EINTR)
      continue;
    if (got <= 0) {
      fail_set(why, "%s: read: %s", path, got < 0 ? strerror(errno) : "it was truncated meanwhile");
      free(memory);
      memory = NULL;
      break;
    }
    done += (size_t)got;
  }
  close(fd);
  return memory;
}

/* Whether the bytes are a whole, undamaged checkpoint of this version; fills *h. */
static bool check_whole(const char *path, const unsigned char *memory, size_t bytes, header *h,
                        fail *why) {
  uint64_t hash;
  if (bytes < sizeof(*h) + sizeof(hash))
    return fail_set(why, "%s: truncated: only %zu bytes; not loaded", path, bytes);
  memcpy(h, memory, sizeof(*h));
  if (memcmp(h->magic, MAGIC, sizeof(h->magic)) != 0)
    return fail_set(why, "%s: not a checkpoint of coll_train; not loaded", path);
  if (h->byte_order != BYTE_ORDER_MARK)
    return fail_set(why, "%s: corrupt, or from a machine with another byte order; not loaded",
                    path);
  if (h->version != VERSION)
    return fail_set(why, "%s: version %u, but this program reads version %u; not loaded", path,
                    h->version, VERSION);
  if (h->bytes != bytes)
    return fail_set(why, "%s: truncated or corrupt: %zu bytes, expected %llu; not loaded", path,
                    bytes, (unsigned long long)h->bytes);
  memcpy(&hash, memory + bytes - sizeof(hash), sizeof(hash));
  if (hash != hash_bytes(HASH_START, memory, bytes - sizeof(hash)))
    return fail_set(why, "%s: corrupt: its checksum is wrong; not loaded", path);
  return true;
}

/* Whether a whole checkpoint belongs to this run. */
static bool check_run(const char *path, size_t bytes, const header *h, const checkpoint_run *run,
                      uint64_t arrays, fail *why) {
  const model *m = run->model;
  if (h->shape != m->shape || h->params != m->params || bytes != file_bytes(m, h->arrays))
    return fail_set(why, "%s: made with another model (--layers); not loaded", path);
  if ((h->arrays ^ arrays) & ~(1ull << PENDING))
    return fail_set(why, "%s: made with another --optimizer; not loaded", path);
  if (h->seed != run->seed)
    return fail_set(why, "%s: made with --seed %llu, not %llu; not loaded", path,
                    (unsigned long long)h->seed, (unsigned long long)run->seed);
  if (h->batch != run->batch)
    return fail_set(why, "%s: made with --batch %llu, not %llu; not loaded", path,
                    (unsigned long long)h->batch, (unsigned long long)run->batch);
  if (h->data != run->data)
    return fail_set(why, "%s: made from another data set; not loaded", path);
  return true;
}

bool checkpoint_read(const char *path, const checkpoint_run *run, checkpoint_state *state,
                     fail *why) {
  header h;
  float *arrays[ARRAYS];
  uint64_t set = arrays_of(state, arrays);
  size_t bytes = 0, each = run->model->params * sizeof(float);
  unsigned char *memory = read_whole(path, &bytes, why);
  if (!memory)
    return false;
  bool ok = check_whole(path, memory, bytes, &h, why) && check_run(path, bytes, &h, run, set, why);
  const unsigned char *p = memory + sizeof(h);
  for (int i = 0; ok && i < ARRAYS; i++) {
    bool there = h.arrays >> i & 1;
    if (there && arrays[i])
      memcpy(arrays[i], p, each);
    p += there ? each : 0;
  }
  if (ok) {
    state->epochs = h.epochs;
    state->step = h.step;
    state->updates = h.updates;
  }
  free(memory);
  return ok;
}
