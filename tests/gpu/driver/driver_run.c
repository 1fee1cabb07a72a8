/* driver_run.c: executes the operations of streams. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "driver.h"

enum { LEAST_STEP = 256, STEP_RANGE = 4096 }; /* instructions of a kernel's turn */

/* Writes the races to stderr that were found since the last call. */
static void tell_races(driver_state *s) {
  char text[512];
  s->races = gpu_world_races(s->world);
  for (; s->races_told < gpu_world_races_told(s->world); s->races_told++) {
    gpu_race_text(gpu_world_race(s->world, s->races_told), text, sizeof(text));
    fprintf(stderr, "fake GPU: race: %s\n", text);
  }
}

/* Makes an error the context's. */
static void fail(const driver_op *op, colli_cu_result error) {
  driver_context *context = op->stream->object.context;
  if (!context->error)
    context->error = error;
}

/* The error that a fault becomes. */
static colli_cu_result error_of(const gpu_fault *fault) {
  switch (fault->kind) {
  case GPU_ILLEGAL_ADDRESS:
    return COLLI_CUDA_ERROR_ILLEGAL_ADDRESS;
  case GPU_MISALIGNED:
    return COLLI_CUDA_ERROR_MISALIGNED_ADDRESS;
  default:
    return COLLI_CUDA_ERROR_LAUNCH_FAILED;
  }
}

/* Starts a kernel if its device has room; false if it must wait. */
static bool start(driver_op *op, driver_device *d) {
  driver_state *s = driver_get();
  const uint32_t *grid = op->launch.grid;
  const uint64_t blocks = (uint64_t)grid[0] * grid[1] * grid[2];
  gpu_fault fault;
  if (!d->free || (op->cooperative && d->free < blocks))
    return false;
  op->launch.resident = (int)(blocks < d->free ? blocks : d->free);
  op->run = gpu_run_create(s->world, &op->launch, &fault);
  if (!op->run) {
    fprintf(stderr, "fake GPU: %s\n", fault.message);
    fail(op, COLLI_CUDA_ERROR_LAUNCH_FAILED);
    return true;
  }
  d->free -= (uint64_t)op->launch.resident;
  s->running++;
  return true;
}

/* Runs a kernel for one turn. */
static op_progress run_kernel(driver_op *op) {
  driver_state *s = driver_get();
  driver_device *d = driver_device_of(op->stream->object.context);
  if (!op->run && !start(op, d))
    return OP_WAITS;
  if (!op->run)
    return OP_ENDS;
  s->running_device = op->launch.device;
  const uint64_t most = LEAST_STEP + driver_random(&s->random_step) % STEP_RANGE;
  pthread_mutex_unlock(&s->lock);
  const gpu_state state = gpu_run_step(op->run, most);
  pthread_mutex_lock(&s->lock);
  tell_races(s);
  if (state == GPU_RUNNING && !op->stream->object.context->error)
    return OP_GOES_ON;
  if (state == GPU_FAULTED) {
    fprintf(stderr, "fake GPU: %s\n", gpu_run_fault(op->run)->message);
    fail(op, error_of(gpu_run_fault(op->run)));
  }
  gpu_run_destroy(op->run);
  op->run = NULL;
  d->free += (uint64_t)op->launch.resident;
  s->running--;
  return OP_ENDS;
}

/* Whether the ranges of a copy are still there. */
static bool there(const driver_op *op) {
  return (!op->check_to || driver_memory_has(op->to, op->bytes)) &&
         (!op->check_from || driver_memory_has(op->from, op->bytes));
}

/* Copies or fills the next bytes, which lie together; returns how many. */
static size_t move_some(const driver_op *op, size_t done) {
  driver_state *s = driver_get();
  size_t bytes = op->bytes - done;
  uint8_t *to = driver_memory_place(op->to + done, &bytes);
  const uint8_t *from = op->staged;
  if (op->kind == COPY)
    from = from ? from + done : driver_memory_place(op->from + done, &bytes);
  pthread_mutex_unlock(&s->lock);
  if (op->kind == COPY)
    memmove(to, from, bytes);
  for (size_t i = 0; op->kind == FILL && i < bytes; i += sizeof(op->value))
    memcpy(to + i, &op->value, sizeof(op->value));
  pthread_mutex_lock(&s->lock);
  return bytes;
}

/* Copies, or fills with a value. */
static void move(const driver_op *op) {
  size_t done = 0;
  while (done < op->bytes && there(op))
    done += move_some(op, done);
  if (done == op->bytes)
    return;
  fprintf(stderr, "fake GPU: a copy uses memory that was freed\n");
  fail(op, COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
}

/* Calls a function of the program. */
static void call_host(const driver_op *op) {
  driver_state *s = driver_get();
  pthread_mutex_unlock(&s->lock);
  op->host(op->host_context);
  pthread_mutex_lock(&s->lock);
}

/* Whether the value that a stream waits for is there. */
static bool has_value(const driver_op *op, const uint32_t *at) {
  const uint32_t value = __atomic_load_n(at, __ATOMIC_SEQ_CST);
  if ((op->flags & 3) == COLLI_CU_STREAM_WAIT_VALUE_EQ)
    return value == op->value;
  return (int32_t)(value - op->value) >= 0;
}

/* Waits for a value, or writes one. */
static op_progress run_value(const driver_op *op) {
  if (!driver_memory_has(op->to, sizeof(op->value))) {
    fprintf(stderr, "fake GPU: a value is in memory that was freed\n");
    fail(op, COLLI_CUDA_ERROR_ILLEGAL_ADDRESS);
    return OP_ENDS;
  }
  size_t bytes = sizeof(op->value);
  uint32_t *at = (uint32_t *)(void *)driver_memory_place(op->to, &bytes);
  if (op->kind == WAIT_VALUE)
    return has_value(op, at) ? OP_ENDS : OP_WAITS;
  __atomic_store_n(at, op->value, __ATOMIC_SEQ_CST);
  return OP_ENDS;
}

op_progress driver_run(driver_op *op) {
  if (op->stream->object.context->error && !op->run)
    return OP_ENDS;
  switch (op->kind) {
  case KERNEL:
    return run_kernel(op);
  case WAIT_VALUE:
  case WRITE_VALUE:
    return run_value(op);
  case COPY:
  case FILL:
    move(op);
    return OP_ENDS;
  case HOST:
    call_host(op);
    return OP_ENDS;
  case WAIT_EVENT:
    return op->after->done >= op->position ? OP_ENDS : OP_WAITS;
  case RECORD:
  case WAIT_OUTSIDE: /* becomes WAIT_EVENT */
    return OP_ENDS;
  }
  return OP_ENDS;
}
