/* driver_stream.c: streams, events, values in memory that streams wait for and write, functions of
 * the host. */
#include "driver.h"

driver_stream *driver_stream_add(driver_context *context, bool apart) {
  driver_stream *stream = driver_object_add(STREAM, sizeof(*stream), context);
  if (!stream)
    return NULL;
  stream->apart = apart;
  stream->queue = driver_device_of(context)->streams++ % driver_get()->settings.queues;
  return stream;
}

colli_cu_result cuStreamCreateWithPriority(colli_cu_stream *handle, unsigned flags, int priority) {
  driver_context *context;
  colli_cu_result result = driver_enter_heavy(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  (void)priority;
  if (flags & ~(unsigned)COLLI_CU_STREAM_NON_BLOCKING)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_stream *stream = driver_stream_add(context, flags == COLLI_CU_STREAM_NON_BLOCKING);
  if (!stream)
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  *handle = (colli_cu_stream)stream;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuStreamDestroy_v2(colli_cu_stream handle) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (stream->legacy)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  result = driver_capture_conflict(stream);
  if (result == COLLI_CUDA_SUCCESS)
    driver_object_drop(&stream->object, true);
  return driver_leave(result);
}

/* Begins a call that asks or waits for the end of what a stream has. */
static colli_cu_result enter_end(colli_cu_stream handle, driver_stream **stream) {
  colli_cu_result result = driver_enter_stream(handle, stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  result = driver_capture_conflict(*stream);
  if (result == COLLI_CUDA_SUCCESS)
    result = driver_capture_unsafe();
  return result ? driver_leave(result) : COLLI_CUDA_SUCCESS;
}

colli_cu_result cuStreamQuery(colli_cu_stream handle) {
  driver_stream *stream;
  colli_cu_result result = enter_end(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  return driver_leave(driver_poll(stream, stream->queued));
}

colli_cu_result cuStreamSynchronize(colli_cu_stream handle) {
  driver_stream *stream;
  colli_cu_result result = enter_end(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  return driver_leave(driver_drain(stream, stream->queued));
}

colli_cu_result cuStreamGetCtx(colli_cu_stream handle, colli_cu_context *context) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_info(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *context = (colli_cu_context)stream->object.context;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuStreamWaitEvent(colli_cu_stream handle, colli_cu_event event_handle,
                                  unsigned flags) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_event *event = driver_object_find(EVENT, event_handle);
  if (!event)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  if (flags & ~(unsigned)COLLI_CU_EVENT_WAIT_EXTERNAL)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (stream->capture || event->capture || flags)
    return driver_leave(driver_capture_wait(stream, event, flags));
  if (!event->stream || event->stream->done >= event->position)
    return driver_leave(COLLI_CUDA_SUCCESS);
  const driver_op op = {.kind = WAIT_EVENT, .after = event->stream, .position = event->position};
  return driver_leave(driver_submit(stream, &op));
}

colli_cu_result cuEventCreate(colli_cu_event *handle, unsigned flags) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (flags & ~7u)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_event *event = driver_object_add(EVENT, sizeof(*event), context);
  if (!event)
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  *handle = (colli_cu_event)event;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuEventRecord(colli_cu_event handle, colli_cu_stream stream_handle) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(stream_handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_event *event = driver_object_find(EVENT, handle);
  if (!event || event->object.context != stream->object.context)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  if (stream->capture)
    return driver_leave(driver_capture_record(stream, event));
  result = driver_submit(stream, &(driver_op){.kind = RECORD});
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  event->capture = 0;
  stream->object.users++;
  if (event->stream)
    driver_object_drop(&event->stream->object, false);
  event->stream = stream;
  event->position = stream->queued;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Begins a call about an event. */
static colli_cu_result enter_event(colli_cu_event handle, driver_event **event) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *event = driver_object_find(EVENT, handle);
  if (!*event)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_HANDLE);
  result = (*event)->object.context->error;
  return result ? driver_leave(result) : COLLI_CUDA_SUCCESS;
}

/* Begins a call that asks or waits for an event. */
static colli_cu_result enter_state(colli_cu_event handle, driver_event **event) {
  colli_cu_result result = enter_event(handle, event);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  result = driver_capture_event(*event);
  if (result == COLLI_CUDA_SUCCESS)
    result = driver_capture_unsafe();
  return result ? driver_leave(result) : COLLI_CUDA_SUCCESS;
}

colli_cu_result cuEventQuery(colli_cu_event handle) {
  driver_event *event;
  colli_cu_result result = enter_state(handle, &event);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (event->stream)
    result = driver_poll(event->stream, event->position);
  return driver_leave(result);
}

colli_cu_result cuEventSynchronize(colli_cu_event handle) {
  driver_event *event;
  colli_cu_result result = enter_state(handle, &event);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (event->stream)
    result = driver_drain(event->stream, event->position);
  return driver_leave(result);
}

colli_cu_result cuEventDestroy_v2(colli_cu_event handle) {
  driver_event *event;
  colli_cu_result result = enter_event(handle, &event);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_object_drop(&event->object, true);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Whether a value in memory may be waited for or written. */
static bool check_value(const driver_op *op) {
  const unsigned allowed = op->kind == WAIT_VALUE
                               ? COLLI_CU_STREAM_WAIT_VALUE_EQ | COLLI_CU_STREAM_WAIT_VALUE_FLUSH
                               : COLLI_CU_STREAM_WRITE_VALUE_NO_MEMORY_BARRIER;
  return op->to % sizeof(op->value) == 0 && driver_memory_has(op->to, sizeof(op->value)) &&
         !(op->flags & ~allowed);
}

/* Checks an operation on a value and appends it. */
static colli_cu_result submit_value(colli_cu_stream handle, const driver_op *op) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  return driver_leave(check_value(op) ? driver_submit(stream, op) : COLLI_CUDA_ERROR_INVALID_VALUE);
}

colli_cu_result cuStreamWaitValue32_v2(colli_cu_stream stream, colli_cu_deviceptr at,
                                       uint32_t value, unsigned flags) {
  const driver_op op = {.kind = WAIT_VALUE, .to = at, .value = value, .flags = flags};
  return submit_value(stream, &op);
}

colli_cu_result cuStreamWriteValue32_v2(colli_cu_stream stream, colli_cu_deviceptr at,
                                        uint32_t value, unsigned flags) {
  const driver_op op = {.kind = WRITE_VALUE, .to = at, .value = value, .flags = flags};
  return submit_value(stream, &op);
}

/* An operation of a batch; false if it is wrong. */
static bool read_batch(const colli_cu_mem_op *from, driver_op *op) {
  if (from->operation != COLLI_CU_STREAM_MEM_OP_WAIT_VALUE_32 &&
      from->operation != COLLI_CU_STREAM_MEM_OP_WRITE_VALUE_32)
    return false;
  *op = (driver_op){.kind = from->operation == COLLI_CU_STREAM_MEM_OP_WAIT_VALUE_32 ? WAIT_VALUE
                                                                                    : WRITE_VALUE,
                    .to = from->wait.address,
                    .value = (uint32_t)from->wait.value,
                    .flags = from->wait.flags};
  return check_value(op);
}

colli_cu_result cuStreamBatchMemOp_v2(colli_cu_stream handle, unsigned count, colli_cu_mem_op *ops,
                                      unsigned flags) {
  driver_stream *stream;
  driver_op op;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (flags || count > 256)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < count; i++)
    if (!read_batch(&ops[i], &op))
      return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  for (unsigned i = 0; i < count && result == COLLI_CUDA_SUCCESS; i++) {
    read_batch(&ops[i], &op);
    result = driver_submit(stream, &op);
  }
  return driver_leave(result);
}

colli_cu_result cuLaunchHostFunc(colli_cu_stream handle, colli_cu_host_fn function, void *context) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!function)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  const driver_op op = {.kind = HOST, .host = function, .host_context = context};
  return driver_leave(driver_submit(stream, &op));
}
