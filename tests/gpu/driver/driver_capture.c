/* driver_capture.c: capture of streams: which streams and events belong to it, what it forbids. */
#include <stdlib.h>

#include "driver.h"

/* How this thread treats captures: CUDA's driver keeps that for each thread. */
static _Thread_local colli_cu_capture_mode thread_mode;

/* Whether a capture forbids this thread calls that are potentially unsafe. */
static bool forbids(const driver_capture *c) {
  if (c->mode == COLLI_CU_STREAM_CAPTURE_MODE_RELAXED ||
      thread_mode == COLLI_CU_STREAM_CAPTURE_MODE_RELAXED)
    return false;
  return pthread_equal(c->thread, pthread_self()) ||
         (c->mode == COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL &&
          thread_mode == COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL);
}

colli_cu_result driver_capture_unsafe(void) {
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  for (driver_capture *c = driver_get()->captures; c; c = c->next) {
    if (!forbids(c))
      continue;
    c->invalidated = true;
    result = COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
  }
  return result;
}

/* Invalidates a capture, if there is one. Returns the error, or that this happened before. */
static colli_cu_result invalidate(driver_capture *c, colli_cu_result error) {
  if (c && c->invalidated)
    return COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (c)
    c->invalidated = true;
  return error;
}

colli_cu_result driver_capture_conflict(const driver_stream *stream) {
  return stream->capture ? invalidate(stream->capture, COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED)
                         : COLLI_CUDA_SUCCESS;
}

driver_capture *driver_capture_implied(const driver_stream *stream) {
  driver_state *s = driver_get();
  for (driver_object *o = s->objects; s->captures && stream->legacy && o; o = o->next) {
    const driver_stream *other = (driver_stream *)o;
    if (o->kind == STREAM && o->context == stream->object.context && other->capture &&
        !other->apart)
      return other->capture;
  }
  return NULL;
}

/* The capture in which an event was recorded; NULL if that has ended. */
static driver_capture *capture_of(const driver_event *event) {
  driver_capture *c = driver_get()->captures;
  while (c && c->id != event->capture)
    c = c->next;
  return c;
}

colli_cu_result driver_capture_event(const driver_event *event) {
  return event->capture ? invalidate(capture_of(event), COLLI_CUDA_ERROR_CAPTURED_EVENT)
                        : COLLI_CUDA_SUCCESS;
}

colli_cu_result driver_capture_record(driver_stream *stream, driver_event *event) {
  if (stream->capture->invalidated)
    return COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  event->after.count = 0;
  if (!driver_nodes_join(&event->after, &stream->after))
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  if (event->stream)
    driver_object_drop(&event->stream->object, false);
  event->stream = NULL;
  event->capture = stream->capture->id;
  return COLLI_CUDA_SUCCESS;
}

/* Adds a node that waits for what an event will be when the graph is launched. */
static colli_cu_result wait_outside(driver_stream *stream, driver_event *event) {
  if (!stream->capture)
    return COLLI_CUDA_ERROR_INVALID_VALUE;
  return driver_submit(stream, &(driver_op){.kind = WAIT_OUTSIDE, .event = event});
}

colli_cu_result driver_capture_wait(driver_stream *stream, driver_event *event, unsigned flags) {
  driver_capture *c = capture_of(event), *mine = stream->capture;
  if ((mine && mine->invalidated) || (c && c->invalidated))
    return COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  if (flags & COLLI_CU_EVENT_WAIT_EXTERNAL)
    return wait_outside(stream, event);
  if (!event->capture)
    return invalidate(mine, COLLI_CUDA_ERROR_STREAM_CAPTURE_ISOLATION);
  if (!c)
    return invalidate(mine, COLLI_CUDA_ERROR_CAPTURED_EVENT);
  if (stream->legacy)
    return invalidate(c, COLLI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  if (mine && mine != c) {
    invalidate(mine, COLLI_CUDA_SUCCESS);
    return invalidate(c, COLLI_CUDA_ERROR_STREAM_CAPTURE_MERGE);
  }
  if (!driver_nodes_join(&stream->after, &event->after))
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  if (!mine) {
    stream->capture = c;
    stream->lane = c->graph->lanes++;
  }
  return COLLI_CUDA_SUCCESS;
}

colli_cu_result cuStreamBeginCapture_v2(colli_cu_stream handle, colli_cu_capture_mode mode) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_info(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (mode < COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL || mode > COLLI_CU_STREAM_CAPTURE_MODE_RELAXED)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (stream->legacy)
    return driver_leave(COLLI_CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  if (stream->capture)
    return driver_leave(COLLI_CUDA_ERROR_ILLEGAL_STATE);
  driver_state *s = driver_get();
  driver_capture *c = malloc(sizeof(*c));
  driver_graph *graph = c ? driver_object_add(GRAPH, sizeof(*graph), stream->object.context) : NULL;
  if (!graph) {
    free(c);
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  }
  *c = (driver_capture){.id = ++s->ids,
                        .mode = mode,
                        .thread = pthread_self(),
                        .origin = stream,
                        .graph = graph,
                        .next = s->captures};
  s->captures = c;
  graph->capturing = true;
  graph->lanes = 1;
  stream->capture = c;
  stream->lane = 0;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Whether all that other streams captured comes before the end of the first. */
static bool all_joined(const driver_capture *c) {
  const driver_nodes *nodes = &c->graph->nodes, *end = &c->origin->after;
  for (int i = 0; i < end->count; i++)
    end->node[i]->joined = true;
  for (int i = nodes->count - 1; i >= 0; i--) {
    const driver_node *node = nodes->node[i];
    if (!node->joined)
      return false; /* what comes after it was looked at already */
    for (int j = 0; j < node->after.count; j++)
      node->after.node[j]->joined = true;
  }
  return true;
}

/* Ends a capture. */
static void end(driver_capture *c) {
  driver_state *s = driver_get();
  driver_capture **link = &s->captures;
  for (driver_object *o = s->objects; o; o = o->next) {
    driver_stream *stream = (driver_stream *)o;
    if (o->kind != STREAM || stream->capture != c)
      continue;
    stream->capture = NULL;
    stream->after.count = 0;
  }
  while (*link != c)
    link = &(*link)->next;
  *link = c->next;
  c->graph->capturing = false;
  free(c);
}

colli_cu_result cuStreamEndCapture(colli_cu_stream handle, colli_cu_graph *handle_out) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_info(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_capture *c = stream->capture;
  *handle_out = NULL;
  if (!c)
    return driver_leave(COLLI_CUDA_ERROR_ILLEGAL_STATE);
  if (c->origin != stream)
    return driver_leave(invalidate(c, COLLI_CUDA_ERROR_STREAM_CAPTURE_UNMATCHED));
  if (c->mode != COLLI_CU_STREAM_CAPTURE_MODE_RELAXED && !pthread_equal(c->thread, pthread_self()))
    return driver_leave(COLLI_CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
  driver_graph *graph = c->graph;
  if (c->invalidated)
    result = COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  else if (!all_joined(c))
    result = COLLI_CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
  end(c);
  if (result == COLLI_CUDA_SUCCESS)
    *handle_out = (colli_cu_graph)graph;
  else
    driver_object_drop(&graph->object, true);
  return driver_leave(result);
}

colli_cu_result cuStreamGetCaptureInfo_v2(colli_cu_stream handle, colli_cu_capture_status *status,
                                          uint64_t *id, colli_cu_graph *graph,
                                          const colli_cu_graph_node **dependencies, size_t *count) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_info(handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (driver_capture_implied(stream))
    return driver_leave(COLLI_CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
  const driver_capture *c = stream->capture;
  *status = !c               ? COLLI_CU_STREAM_CAPTURE_STATUS_NONE
            : c->invalidated ? COLLI_CU_STREAM_CAPTURE_STATUS_INVALIDATED
                             : COLLI_CU_STREAM_CAPTURE_STATUS_ACTIVE;
  if (c && id)
    *id = c->id;
  if (c && graph)
    *graph = (colli_cu_graph)c->graph;
  if (c && dependencies)
    *dependencies = (const colli_cu_graph_node *)stream->after.node;
  if (c && count)
    *count = (size_t)stream->after.count;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuStreamIsCapturing(colli_cu_stream handle, colli_cu_capture_status *status) {
  return cuStreamGetCaptureInfo_v2(handle, status, NULL, NULL, NULL, NULL);
}

colli_cu_result cuThreadExchangeStreamCaptureMode(colli_cu_capture_mode *mode) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  const colli_cu_capture_mode former = thread_mode;
  if (*mode < COLLI_CU_STREAM_CAPTURE_MODE_GLOBAL || *mode > COLLI_CU_STREAM_CAPTURE_MODE_RELAXED)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  thread_mode = *mode;
  *mode = former;
  return driver_leave(COLLI_CUDA_SUCCESS);
}
