/* passage.c: puts the parts of a passage into a CUDA stream. */
#include "libcoll/gpu/passage.h"

#include <string.h>

#include "libcoll/base/error.h"

/* Finds the context of a stream, and its device. A thread without a context may have a stream: the
 * driver is asked in another context. */
static coll_status find_context(colli_gpu_passage *passage, coll_error *error) {
  colli_gpu_thread before;
  colli_gpu *gpu = passage->gpu;
  const colli_cuda *cuda = &gpu->cuda;
  coll_status status = colli_gpu_enter(gpu, COLLI_GPU_CURRENT, &before, error);
  if (status != COLL_OK)
    return status;
  passage->context = before.context;
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  if (!passage->stream && !before.context)
    status = colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                             "the stream is NULL, the default one, but this thread has no CUDA "
                             "context; call cudaSetDevice() first");
  if (passage->stream)
    result = cuda->stream_get_ctx(passage->stream, &passage->context);
  before.changed = true;
  if (result == COLLI_CUDA_SUCCESS && passage->context)
    result = cuda->ctx_set_current(passage->context);
  if (result == COLLI_CUDA_SUCCESS)
    result = cuda->ctx_get_device(&passage->device);
  colli_gpu_leave(gpu, &before);
  if (status != COLL_OK ||
      (result == COLLI_CUDA_SUCCESS && passage->device >= 0 && passage->device < gpu->ndevices))
    return status;
  return colli_error_set(error, COLL_ERR_INVALID_ARGUMENT, NULL,
                         "%p is no stream of CUDA (error %d, %s)", (void *)passage->stream, result,
                         colli_cuda_result_name(cuda, result));
}

coll_status colli_gpu_passage_enter(const colli_gpu_passage *passage, colli_gpu_thread *before,
                                    coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  coll_status status = colli_gpu_enter(passage->gpu, COLLI_GPU_CURRENT, before, error);
  if (status != COLL_OK)
    return status;
  before->changed = true;
  const colli_cu_result result = cuda->ctx_set_current(passage->context);
  if (result == COLLI_CUDA_SUCCESS)
    return COLL_OK;
  colli_gpu_leave(passage->gpu, before);
  return colli_cuda_fail(cuda, error, "cuCtxSetCurrent", passage->device, result);
}

coll_status colli_gpu_passage_open(colli_gpu *gpu, void *stream, colli_gpu_passage *passage,
                                   coll_error *error) {
  memset(passage, 0, sizeof(*passage));
  passage->gpu = gpu;
  passage->stream = stream;
  if (!gpu->cuda.stream_wait_value_32 || !gpu->cuda.stream_write_value_32)
    return colli_error_set(error, COLL_ERR_UNSUPPORTED, NULL,
                           "CUDA's driver, version %d.%d, cannot make a stream wait for a value; "
                           "install one for CUDA 11.7 or newer, or use the forms without a stream",
                           gpu->cuda.driver_version / 1000, gpu->cuda.driver_version % 1000 / 10);
  return find_context(passage, error);
}

void colli_gpu_passage_follow(const colli_gpu_passage *first, colli_gpu_passage *passage) {
  memset(passage, 0, sizeof(*passage));
  passage->gpu = first->gpu;
  passage->stream = first->stream;
  passage->context = first->context;
  passage->device = first->device;
}

coll_status colli_gpu_passage_take_answer(colli_gpu_passage *passage, coll_error *error) {
  passage->answer = colli_gpu_take_pinned(passage->gpu, sizeof(uint32_t), error);
  if (!passage->answer)
    return error->status;
  *(uint32_t *)passage->answer->memory = 0;
  return COLL_OK;
}

bool colli_gpu_passage_is_captured(const colli_gpu_passage *passage) {
  colli_cu_capture_status status = COLLI_CU_STREAM_CAPTURE_STATUS_NONE;
  return passage->gpu->cuda.stream_is_capturing(passage->stream, &status) != COLLI_CUDA_SUCCESS ||
         status != COLLI_CU_STREAM_CAPTURE_STATUS_NONE;
}

/* The graph is gone. A thread of the driver calls this. */
static void note_released(void *arg) {
  colli_gpu_passage *passage = arg;
  atomic_store(&passage->released, true);
}

coll_status colli_gpu_passage_join_capture(colli_gpu_passage *passage, coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  colli_cu_capture_status capture = COLLI_CU_STREAM_CAPTURE_STATUS_NONE;
  colli_cu_graph graph = NULL;
  colli_cu_user_object object;
  const char *function = "cuStreamGetCaptureInfo";
  colli_cu_result result =
      cuda->stream_get_capture_info(passage->stream, &capture, NULL, &graph, NULL, NULL);
  if (result == COLLI_CUDA_SUCCESS && capture == COLLI_CU_STREAM_CAPTURE_STATUS_NONE)
    return COLL_OK;
  if (result == COLLI_CUDA_SUCCESS && capture == COLLI_CU_STREAM_CAPTURE_STATUS_INVALIDATED)
    return colli_error_set(error, COLL_ERR_INVALID_USAGE, NULL,
                           "the stream is captured, and its capture has failed before this call");
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuUserObjectCreate";
    result = cuda->user_object_create(&object, passage, note_released, 1,
                                      COLLI_CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
  }
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuGraphRetainUserObject";
    passage->captured = true;
    result = cuda->graph_retain_user_object(graph, object, 1, COLLI_CU_GRAPH_USER_OBJECT_MOVE);
    if (result != COLLI_CUDA_SUCCESS)
      cuda->user_object_release(object, 1); /* which sets `released` */
  }
  return colli_cuda_status(cuda, error, function, passage->device, result);
}

void colli_gpu_passage_close(colli_gpu_passage *passage) {
  if (passage->answer)
    colli_gpu_put_pinned(passage->gpu, passage->answer);
  passage->answer = NULL;
}

coll_status colli_gpu_passage_copy(const colli_gpu_passage *passage, colli_gpu_direction direction,
                                   const colli_gpu_piece *pieces, size_t count, coll_error *error) {
  return colli_gpu_put_copies(&passage->gpu->cuda, passage->device, passage->stream, direction,
                              pieces, count, error);
}

/* The stream has come to the passage. A thread of the driver calls this. */
static void note_reached(void *arg) {
  colli_gpu_passage *passage = arg;
  pthread_mutex_lock(&passage->gpu->wakes);
  passage->arrival = ++passage->gpu->arrivals;
  passage->come++;
  atomic_store(&passage->reached, true);
  if (passage->on_reached)
    passage->on_reached(passage->arg);
  else
    colli_gpu_passage_answer(passage);
  pthread_mutex_unlock(&passage->gpu->wakes);
}

/* The stream has left it. */
static void note_left(void *arg) {
  colli_gpu_passage *passage = arg;
  passage->come = 0;
  atomic_store(&passage->left, true);
}

/* Has a thread of the driver call a function when the stream comes there. */
static coll_status put_host(colli_gpu_passage *passage, colli_cu_host_fn function,
                            coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  const colli_cu_result result = cuda->launch_host_func(passage->stream, function, passage);
  return colli_cuda_status(cuda, error, "cuLaunchHostFunc", passage->device, result);
}

coll_status colli_gpu_passage_tell(colli_gpu_passage *passage, coll_error *error) {
  return put_host(passage, note_reached, error);
}

coll_status colli_gpu_passage_wait(colli_gpu_passage *passage, coll_error *error) {
  const coll_status status = colli_gpu_passage_tell(passage, error);
  return status == COLL_OK ? colli_gpu_passage_await(passage, error) : status;
}

coll_status colli_gpu_passage_await(const colli_gpu_passage *passage, coll_error *error) {
  const colli_cuda *cuda = &passage->gpu->cuda;
  colli_cu_deviceptr answer;
  const char *function = "cuMemHostGetDevicePointer";
  colli_cu_result result = cuda->mem_host_get_device_pointer(&answer, passage->answer->memory, 0);
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuStreamWaitValue32";
    result = cuda->stream_wait_value_32(passage->stream, answer, 1, COLLI_CU_STREAM_WAIT_VALUE_EQ);
  }
  if (result == COLLI_CUDA_SUCCESS) {
    function = "cuStreamWriteValue32"; /* for the next time, in a graph */
    result = cuda->stream_write_value_32(passage->stream, answer, 0,
                                         COLLI_CU_STREAM_WRITE_VALUE_DEFAULT);
  }
  return colli_cuda_status(cuda, error, function, passage->device, result);
}

coll_status colli_gpu_passage_end(colli_gpu_passage *passage, coll_error *error) {
  return put_host(passage, note_left, error);
}

void colli_gpu_passage_abandon(colli_gpu_passage *passage) {
  pthread_mutex_lock(&passage->gpu->wakes);
  passage->on_reached = NULL;
  pthread_mutex_unlock(&passage->gpu->wakes);
  colli_gpu_passage_answer(passage);
}

void colli_gpu_passage_answer(const colli_gpu_passage *passage) {
  if (passage->answer)
    __atomic_store_n((uint32_t *)passage->answer->memory, 1u, __ATOMIC_RELEASE);
}
