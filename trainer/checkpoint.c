/* checkpoint.c: saves the state of a training run in a file, and loads it again. */
#include "trainer/checkpoint.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdio.h>
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
static size_t file_size(const model *m, uint64_t set) {
  size_t bytes = sizeof(header) + sizeof(uint64_t);
  for (int i = 0; i < ARRAYS; i++)
    bytes += (set >> i & 1) * m->params * sizeof(float);
  return bytes;
}

/* The folder of a path. */
static const char *folder_of(const char *path, char copy[PATH_MAX]) {
  snprintf(copy, PATH_MAX, "%s", path);
  return dirname(copy);
}

/* Where a rank writes before it publishes. */
static const char *temporary_of(const char *path, int rank, char name[PATH_MAX]) {
  snprintf(name, PATH_MAX, "%s.%d.tmp", path, rank);
  return name;
}

bool checkpoint_check(const char *path, fail *why) {
  struct stat st;
  char copy[PATH_MAX];
  const char *folder = folder_of(path, copy);
  if (strlen(path) + sizeof(".2147483647.tmp") > PATH_MAX)
    return fail_set(why, "%.200s...: the path is too long", path);
  if (access(folder, W_OK | X_OK) != 0)
    return fail_set(why, "%s: cannot write a checkpoint into %s: %s", path, folder,
                    strerror(errno));
  return stat(path, &st) != 0 || S_ISREG(st.st_mode) ||
         fail_set(why, "%s: exists, but is not a regular file", path);
}

/* Writes the next bytes of a file, and continues its hash. */
static bool put(FILE *file, uint64_t *hash, const void *data, size_t bytes) {
  *hash = hash_bytes(*hash, data, bytes);
  return fwrite(data, 1, bytes, file) == bytes;
}

/* Writes the whole file. */
static bool put_state(FILE *file, const checkpoint_run *run, const checkpoint_state *state) {
  const model *m = run->model;
  float *arrays[ARRAYS];
  uint64_t set = arrays_of(state, arrays), hash = HASH_START;
  header h = {.version = VERSION,
              .byte_order = BYTE_ORDER_MARK,
              .bytes = file_size(m, set),
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
  bool ok = put(file, &hash, &h, sizeof(h));
  for (int i = 0; i < ARRAYS; i++)
    ok = ok && (!arrays[i] || put(file, &hash, arrays[i], m->params * sizeof(float)));
  return ok && fwrite(&hash, sizeof(hash), 1, file) == 1;
}

bool checkpoint_write(const char *path, int rank, const checkpoint_run *run,
                      const checkpoint_state *state, fail *why) {
  char name[PATH_MAX];
  unlink(temporary_of(path, rank, name));
  /* Exclusive: in a folder that others may write to, the name may lead to a file of ours. */
  int fd = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
  if (!file) {
    fail_set(why, "%s: open: %s", name, strerror(errno));
    if (fd >= 0)
      close(fd);
    return false;
  }
  bool ok = put_state(file, run, state) && fflush(file) == 0 && fsync(fileno(file)) == 0;
  if (!ok) {
    fail_set(why, "%s: write: %s", name, strerror(errno));
    unlink(name);
  }
  fclose(file);
  return ok;
}

void checkpoint_withdraw(const char *path, int first, int end) {
  char name[PATH_MAX];
  for (int rank = first; rank < end; rank++)
    unlink(temporary_of(path, rank, name));
}

bool checkpoint_publish(const char *path, int rank, fail *why) {
  char name[PATH_MAX], copy[PATH_MAX];
  int error = rename(temporary_of(path, rank, name), path) == 0 ? 0 : errno;
  if (error == ENOENT)
    return fail_set(why,
                    "%s was removed: this rank did not answer in time, and the others continued "
                    "without it",
                    name);
  if (error)
    return fail_set(why, "%s: rename from %s: %s", path, name, strerror(error));
  /* Makes the rename durable. Some file systems cannot sync a folder: that is not an error. */
  int fd = open(folder_of(path, copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  bool ok = fd >= 0 && (fsync(fd) == 0 || errno == EINVAL);
  if (!ok)
    fail_set(why, "%s: sync of %s: %s", path, copy, strerror(errno));
  if (fd >= 0)
    close(fd);
  return ok;
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
  if (h->shape != m->shape || h->params != m->params || bytes != file_size(m, h->arrays))
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
  file_bytes file;
  float *arrays[ARRAYS];
  uint64_t set = arrays_of(state, arrays);
  size_t each = run->model->params * sizeof(float);
  if (access(path, F_OK) != 0 && errno == ENOENT)
    return fail_set(why, "%s: no such checkpoint: leave out --resume to start from scratch", path);
  if (!file_map(&file, path, why))
    return false;
  bool ok = check_whole(path, file.data, file.bytes, &h, why) &&
            check_run(path, file.bytes, &h, run, set, why);
  if (ok) {
    const unsigned char *p = file.data + sizeof(h);
    for (int i = 0; i < ARRAYS; i++) {
      bool there = h.arrays >> i & 1;
      if (there && arrays[i])
        memcpy(arrays[i], p, each);
      p += there ? each : 0;
    }
    state->epochs = h.epochs;
    state->step = h.step;
    state->updates = h.updates;
  }
  file_free(&file);
  return ok;
}
