/* driver_state.c: the driver's state: settings, the begin and end of calls, objects of handles. */
#include "driver.h"

#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The only one: functions of CUDA's driver have no handle of the driver. */
static driver_state *the_state;
static pthread_mutex_t init_lock = PTHREAD_MUTEX_INITIALIZER;

driver_state *driver_get(void) {
  return __atomic_load_n(&the_state, __ATOMIC_ACQUIRE);
}

/* A number of the environment, within bounds. */
static uint64_t number(const char *name, uint64_t otherwise, uint64_t least, uint64_t most) {
  const char *text = getenv(name);
  uint64_t value = text && *text ? strtoull(text, NULL, 0) : otherwise;
  return value < least ? least : value > most ? most : value;
}

/* Reads a compute capability, "9.0", as the number 90; 0 if it is none. */
static int read_arch(const char *text) {
  int major, minor, length = 0;
  const bool is = sscanf(text, "%d.%d%n", &major, &minor, &length) == 2 && !text[length];
  return is && major > 0 && major < 100 && minor >= 0 && minor < 10 ? 10 * major + minor : 0;
}

/* Reads the settings; false if GPU_ARCH, GPU_MODEL or GPU_PEERS is none. */
static bool read_settings(driver_settings *s) {
  const char *model = getenv("GPU_MODEL"), *peers = getenv("GPU_PEERS"), *arch = getenv("GPU_ARCH");
  s->arch = read_arch(arch && *arch ? arch : "7.0");
  s->sass_error = (colli_cu_result)number("GPU_SASS_ERROR", 0, 0, INT32_MAX);
  s->seed = number("GPU_SEED", 1, 0, UINT64_MAX);
  s->fail = number("GPU_FAIL", 0, 0, UINT64_MAX);
  s->devices = (int)number("GPU_DEVICES", 1, 0, MOST_DEVICES);
  s->queues = (int)number("GPU_QUEUES", 32, 1, MOST_QUEUES);
  s->resident = (int)number("GPU_RESIDENT", 64, 1, 1 << 20);
  s->strict = number("GPU_STRICT", 0, 0, 1);
  s->split = number("GPU_SPLIT", 0, 0, 1);
  s->hidden = number("GPU_HIDDEN", 0, 0, 1);
  s->no_ipc = number("GPU_NO_IPC", 0, 0, 1);
  s->pitch = (int)number("GPU_PITCH", INT32_MAX, 0, INT32_MAX);
  s->rdma = (int)number("GPU_RDMA", RDMA_NONE, RDMA_NONE, RDMA_NO_RANGES);
  s->model = GPU_PLAIN;
  if (model && strcmp(model, "weak") == 0)
    s->model = GPU_WEAK;
  else if (model && strcmp(model, "races") == 0)
    s->model = GPU_RACES;
  else if (model && *model && strcmp(model, "plain") != 0)
    return false;
  snprintf(s->peers, sizeof(s->peers), "%s", peers && *peers ? peers : "all");
  return s->arch && (strcmp(s->peers, "all") == 0 || strcmp(s->peers, "none") == 0 ||
                     strlen(s->peers) == (size_t)(s->devices * s->devices));
}

/* Makes the default stream of each device. */
static bool add_devices(driver_state *s) {
  for (int i = 0; i < s->settings.devices; i++) {
    driver_device *d = &s->devices[i];
    d->context.device = i;
    d->free = (uint64_t)s->settings.resident;
    d->legacy = driver_object_add(STREAM, sizeof(*d->legacy), &d->context);
    if (!d->legacy)
      return false;
    d->legacy->legacy = true;
  }
  return true;
}

/* Frees a state that has no worker. */
static void discard(driver_state *s) {
  driver_object *object;
  while ((object = s->objects)) {
    s->objects = object->next;
    free(object);
  }
  if (s->world)
    gpu_world_destroy(s->world);
  pthread_cond_destroy(&s->changed);
  pthread_cond_destroy(&s->work);
  pthread_mutex_destroy(&s->lock);
  free(s);
}

/* In a child process: the state is the parent's, and its worker is not here. */
static void note_fork(void) {
  driver_state *s = driver_get();
  if (s)
    s->forked = true;
}

/* Makes the lock: one whose holders are soon done with it, so that waiting for it awake is cheaper
 * than falling asleep. */
static void init_lock_of(driver_state *s) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ADAPTIVE_NP);
  pthread_mutex_init(&s->lock, &attributes);
  pthread_mutexattr_destroy(&attributes);
}

/* Keeps freed memory in the process: blocks of kernels have much, for microseconds, and to have its
 * pages again took a third of the time of tests. */
static void keep_pages(void) {
  mallopt(M_TRIM_THRESHOLD, 256 << 20);
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
}

/* Makes the state and starts the worker. */
static colli_cu_result initialise(void) {
  keep_pages();
  driver_state *s = calloc(1, sizeof(*s));
  if (!s)
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  if (!read_settings(&s->settings)) {
    fprintf(stderr, "fake GPU: bad GPU_ARCH, GPU_MODEL or GPU_PEERS\n");
    free(s);
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  }
  const gpu_options options = {
      .model = s->settings.model, .seed = s->settings.seed, .find = driver_memory_use};
  s->random_step = s->random_turn = s->settings.seed;
  s->world = gpu_world_create(&options);
  init_lock_of(s);
  pthread_cond_init(&s->work, NULL);
  pthread_cond_init(&s->changed, NULL);
  __atomic_store_n(&the_state, s, __ATOMIC_RELEASE);
  if (s->world && add_devices(s) && pthread_atfork(NULL, NULL, note_fork) == 0 &&
      pthread_create(&s->worker, NULL, driver_work, s) == 0)
    return COLLI_CUDA_SUCCESS;
  __atomic_store_n(&the_state, NULL, __ATOMIC_RELEASE);
  discard(s);
  return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
}

colli_cu_result cuInit(unsigned flags) {
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  if (flags)
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  pthread_mutex_lock(&init_lock);
  if (!driver_get())
    result = initialise();
  pthread_mutex_unlock(&init_lock);
  if (result == COLLI_CUDA_SUCCESS)
    result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  return driver_leave(driver_get()->settings.devices ? COLLI_CUDA_SUCCESS
                                                     : COLLI_CUDA_ERROR_NO_DEVICE);
}

/* At the end of the process: stops the worker. Memory goes with the process. */
__attribute__((destructor)) static void finish(void) {
  driver_state *s = driver_get();
  if (!s || s->forked || pthread_equal(pthread_self(), s->worker))
    return;
  pthread_mutex_lock(&s->lock);
  s->stop = true;
  pthread_cond_signal(&s->work);
  pthread_mutex_unlock(&s->lock);
  pthread_join(s->worker, NULL);
  if (s->races == s->races_taken)
    return;
  fprintf(stderr, "fake GPU: %llu races\n", (unsigned long long)(s->races - s->races_taken));
  fflush(NULL);
  _exit(RACES_STATUS);
}

colli_cu_result driver_enter(void) {
  driver_state *s = driver_get();
  if (!s || s->forked)
    return COLLI_CUDA_ERROR_NOT_INITIALIZED;
  if (pthread_equal(pthread_self(), s->worker))
    return COLLI_CUDA_ERROR_NOT_PERMITTED;
  pthread_mutex_lock(&s->lock);
  if (++s->calls == s->settings.fail)
    return driver_leave(COLLI_CUDA_ERROR_UNKNOWN);
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result driver_leave(colli_cu_result result) {
  pthread_mutex_unlock(&driver_get()->lock);
  return result;
}

colli_cu_result driver_enter_context(driver_context **context) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *context = driver_current();
  if (!*context || !(*context)->retained)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_CONTEXT);
  return (*context)->error ? driver_leave((*context)->error) : COLLI_CUDA_SUCCESS;
}

/* With GPU_STRICT, waits until no kernel is left. */
static void hold_back(void) {
  driver_state *s = driver_get();
  if (!s->settings.strict)
    return;
  s->held_back++;
  pthread_cond_broadcast(&s->changed);
  while (s->kernels)
    driver_wait();
  s->held_back--;
}

colli_cu_result driver_enter_heavy(driver_context **context) {
  colli_cu_result result = driver_enter_context(context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  result = driver_capture_unsafe();
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  hold_back();
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result driver_enter_info(colli_cu_stream handle, driver_stream **stream) {
  driver_context *context;
  const uintptr_t legacy = 1, per_thread = 2; /* CU_STREAM_LEGACY, CU_STREAM_PER_THREAD */
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if ((uintptr_t)handle == per_thread)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  if (!handle || (uintptr_t)handle == legacy)
    *stream = driver_device_of(context)->legacy;
  else
    *stream = driver_object_find(STREAM, handle);
  if (!*stream)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  result = (*stream)->object.context->error;
  return result ? driver_leave(result) : COLLI_CUDA_SUCCESS;
}

colli_cu_result driver_enter_stream(colli_cu_stream handle, driver_stream **stream) {
  colli_cu_result result = driver_enter_info(handle, stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_capture *capture = driver_capture_implied(*stream);
  if (!capture)
    return COLLI_CUDA_SUCCESS;
  capture->invalidated = true;
  return driver_leave(COLLI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
}

void *driver_object_add(driver_kind kind, size_t bytes, driver_context *context) {
  driver_state *s = driver_get();
  driver_object *object = calloc(1, bytes);
  if (!object)
    return NULL;
  *object = (driver_object){.kind = kind, .context = context, .next = s->objects};
  s->objects = object;
  return object;
}

void *driver_object_find(driver_kind kind, const void *handle) {
  for (driver_object *o = driver_get()->objects; o; o = o->next)
    if (o == handle)
      return o->kind == kind && !o->destroyed ? o : NULL;
  return NULL;
}

/* Frees what belongs to an object. */
static void free_parts(driver_object *object) {
  if (object->kind == STREAM) {
    free(((driver_stream *)object)->after.node);
  } else if (object->kind == EVENT) {
    driver_event *event = (driver_event *)object;
    free(event->after.node);
    if (event->stream)
      driver_object_drop(&event->stream->object, false);
  } else if (object->kind == MODULE) {
    driver_module *module = (driver_module *)object;
    ptx_free(module->code);
    free(module->functions);
  } else if (object->kind == GRAPH) {
    driver_graph_free((driver_graph *)object);
  } else if (object->kind == EXEC) {
    driver_exec_free((driver_exec *)object);
  } else if (object->kind == ALLOCATION) {
    close(((driver_allocation *)object)->fd);
  } else if (object->kind == POOL) {
    close(((driver_pool *)object)->fd);
  }
}

void driver_object_drop(driver_object *object, bool by_owner) {
  driver_object **link = &driver_get()->objects;
  if (by_owner)
    object->destroyed = true;
  else
    object->users--;
  if (object->users || !object->destroyed)
    return;
  while (*link != object)
    link = &(*link)->next;
  *link = object->next;
  free_parts(object);
  free(object);
}

void fake_gpu_rounds(uint64_t rounds) {
  driver_state *s = driver_get();
  pthread_mutex_lock(&s->lock);
  const uint64_t last = s->rounds + rounds + 1; /* one has begun already */
  s->wanted_rounds = s->wanted_rounds > last ? s->wanted_rounds : last;
  s->asleep = false;
  pthread_cond_signal(&s->work);
  while (s->rounds < last)
    driver_wait();
  pthread_mutex_unlock(&s->lock);
}

void fake_gpu_await_held_back(void) {
  driver_state *s = driver_get();
  pthread_mutex_lock(&s->lock);
  while (!s->held_back)
    driver_wait();
  pthread_mutex_unlock(&s->lock);
}

uint64_t fake_gpu_held(void) {
  driver_state *s = driver_get();
  pthread_mutex_lock(&s->lock);
  uint64_t count = (uint64_t)s->nmemory;
  for (const driver_object *o = s->objects; o; o = o->next)
    count += !o->destroyed;
  for (const driver_memory *m = s->reserved; m; m = m->next)
    count++;
  for (int i = 0; i < s->settings.devices; i++)
    count += (uint64_t)s->devices[i].context.retained;
  pthread_mutex_unlock(&s->lock);
  return count;
}

uint64_t fake_gpu_take_races(void) {
  driver_state *s = driver_get();
  pthread_mutex_lock(&s->lock);
  const uint64_t count = s->races - s->races_taken;
  s->races_taken = s->races;
  pthread_mutex_unlock(&s->lock);
  return count;
}
