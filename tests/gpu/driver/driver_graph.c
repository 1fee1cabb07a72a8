/* driver_graph.c: graphs: their nodes, launches, and the user objects that they keep. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "driver.h"

/* Makes room for some nodes more. */
static bool grow(driver_nodes *nodes, int more) {
  if (nodes->count + more <= nodes->room)
    return true;
  const int room = 2 * nodes->count + more;
  driver_node **node = realloc(nodes->node, (size_t)room * sizeof(driver_node *));
  if (!node)
    return false;
  nodes->node = node;
  nodes->room = room;
  return true;
}

bool driver_nodes_join(driver_nodes *to, const driver_nodes *from) {
  if (!grow(to, from->count))
    return false;
  for (int i = 0; i < from->count; i++) {
    int j = 0;
    while (j < to->count && to->node[j] != from->node[i])
      j++;
    to->node[j] = from->node[i];
    to->count += j == to->count;
  }
  return true;
}

colli_cu_result driver_graph_add(driver_stream *stream, const driver_op *op) {
  driver_nodes *nodes = &stream->capture->graph->nodes;
  if (stream->capture->invalidated)
    return COLLI_CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
  driver_node *node = calloc(1, sizeof(*node));
  if (!node || !driver_nodes_join(&node->after, &stream->after) || !grow(nodes, 1) ||
      !grow(&stream->after, 1)) {
    free(node ? node->after.node : NULL);
    free(node);
    return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
  }
  node->op = *op;
  node->context = stream->object.context;
  node->lane = stream->lane;
  if (op->function)
    op->function->module->object.users++;
  if (op->event)
    op->event->object.users++;
  nodes->node[nodes->count++] = node;
  stream->after.node[0] = node;
  stream->after.count = 1;
  return COLLI_CUDA_SUCCESS;
}

/* Takes references from a user object; without any it will be destroyed. */
static void drop_references(driver_user_object *object, unsigned count) {
  driver_state *s = driver_get();
  object->references -= count;
  if (object->references)
    return;
  object->object.destroyed = true;
  object->object.users++;
  object->next = s->unused;
  s->unused = object;
  driver_wake();
}

void driver_graph_free(driver_graph *graph) {
  driver_hold *hold;
  for (int i = 0; i < graph->nodes.count; i++) {
    driver_node *node = graph->nodes.node[i];
    if (node->op.function)
      driver_object_drop(&node->op.function->module->object, false);
    if (node->op.event)
      driver_object_drop(&node->op.event->object, false);
    free(node->op.params);
    free(node->after.node);
    free(node);
  }
  free(graph->nodes.node);
  while ((hold = graph->holds)) {
    graph->holds = hold->next;
    drop_references(hold->of, hold->count);
    free(hold);
  }
}

void driver_exec_free(driver_exec *exec) {
  for (int i = 0; exec->lanes && i < exec->graph->lanes; i++)
    if (exec->lanes[i])
      driver_object_drop(&exec->lanes[i]->object, true);
  free(exec->lanes);
  if (exec->last)
    driver_object_drop(&exec->last->object, false);
  driver_object_drop(&exec->graph->object, false);
}

/* Begins a call about a graph that is not being captured. */
static colli_cu_result enter_graph(colli_cu_graph handle, driver_graph **graph) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *graph = driver_object_find(GRAPH, handle);
  return *graph && !(*graph)->capturing ? COLLI_CUDA_SUCCESS
                                        : driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
}

colli_cu_result cuGraphInstantiateWithFlags(colli_cu_graph_exec *handle, colli_cu_graph from,
                                            unsigned long long flags) {
  driver_graph *graph;
  colli_cu_result result = enter_graph(from, &graph);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (flags & ~15ull)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_exec *exec = driver_object_add(EXEC, sizeof(*exec), graph->object.context);
  if (!exec)
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  exec->graph = graph;
  graph->object.users++;
  exec->lanes = calloc((size_t)graph->lanes, sizeof(driver_stream *));
  if (!exec->lanes) {
    driver_object_drop(&exec->object, true);
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  }
  *handle = (colli_cu_graph_exec)exec;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuGraphDestroy(colli_cu_graph handle) {
  driver_graph *graph;
  colli_cu_result result = enter_graph(handle, &graph);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_object_drop(&graph->object, true);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuGraphExecDestroy(colli_cu_graph_exec handle) {
  driver_context *context;
  colli_cu_result result = driver_enter_context(&context);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_exec *exec = driver_object_find(EXEC, handle);
  if (!exec)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_object_drop(&exec->object, true);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Chooses the stream of each node; an error if that is impossible. */
static colli_cu_result place_nodes(driver_exec *exec, driver_stream *launch) {
  for (int i = 0; i < exec->graph->nodes.count; i++) {
    driver_node *node = exec->graph->nodes.node[i];
    if (node->op.function && node->op.function->module->object.destroyed) {
      fprintf(stderr, "fake GPU: a graph has a kernel of a module that was unloaded\n");
      return COLLI_CUDA_ERROR_INVALID_HANDLE;
    }
    node->stream = launch;
    if (!node->lane && launch->object.context == node->context)
      continue;
    driver_stream **lane = &exec->lanes[node->lane];
    if (!*lane)
      *lane = driver_stream_add(node->context, true);
    if (!*lane)
      return COLLI_CUDA_ERROR_OUT_OF_MEMORY;
    node->stream = *lane;
  }
  return COLLI_CUDA_SUCCESS;
}

/* Lets a stream wait for operations of another one. */
static colli_cu_result wait_for(driver_stream *stream, driver_stream *after, uint64_t position) {
  if (stream == after || after->done >= position)
    return COLLI_CUDA_SUCCESS;
  return driver_submit(stream,
                       &(driver_op){.kind = WAIT_EVENT, .after = after, .position = position});
}

/* Submits a node, after the nodes that it comes after. */
static colli_cu_result submit_node(driver_exec *exec, driver_node *node) {
  colli_cu_result result = COLLI_CUDA_SUCCESS;
  driver_op op = node->op;
  op.graph = &exec->graph->object;
  for (int i = 0; result == COLLI_CUDA_SUCCESS && i < node->after.count; i++)
    result = wait_for(node->stream, node->after.node[i]->stream, node->after.node[i]->position);
  if (result == COLLI_CUDA_SUCCESS && op.kind != WAIT_OUTSIDE)
    result = driver_submit(node->stream, &op);
  else if (result == COLLI_CUDA_SUCCESS && op.event->stream)
    result = wait_for(node->stream, op.event->stream, op.event->position);
  node->position = node->stream->queued;
  return result;
}

/* Submits all nodes between two points of a stream. */
static colli_cu_result submit_nodes(driver_exec *exec, driver_stream *launch) {
  const driver_graph *graph = exec->graph;
  colli_cu_result result = driver_submit(launch, &(driver_op){.kind = RECORD});
  const uint64_t begin = launch->queued;
  for (int i = 0; result == COLLI_CUDA_SUCCESS && i < graph->lanes; i++)
    if (exec->lanes[i])
      result = wait_for(exec->lanes[i], launch, begin);
  for (int i = 0; result == COLLI_CUDA_SUCCESS && i < graph->nodes.count; i++)
    result = submit_node(exec, graph->nodes.node[i]);
  for (int i = 0; result == COLLI_CUDA_SUCCESS && i < graph->lanes; i++)
    if (exec->lanes[i])
      result = wait_for(launch, exec->lanes[i], exec->lanes[i]->queued);
  return result;
}

colli_cu_result cuGraphLaunch(colli_cu_graph_exec handle, colli_cu_stream stream_handle) {
  driver_stream *stream;
  colli_cu_result result = driver_enter_stream(stream_handle, &stream);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_exec *exec = driver_object_find(EXEC, handle);
  if (!exec)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  if (driver_capture_conflict(stream) != COLLI_CUDA_SUCCESS)
    return driver_leave(COLLI_CUDA_ERROR_NOT_SUPPORTED);
  result = place_nodes(exec, stream);
  if (result == COLLI_CUDA_SUCCESS && exec->last)
    result = wait_for(stream, exec->last, exec->position);
  if (result == COLLI_CUDA_SUCCESS)
    result = submit_nodes(exec, stream);
  if (result != COLLI_CUDA_SUCCESS)
    return driver_leave(result);
  stream->object.users++;
  if (exec->last)
    driver_object_drop(&exec->last->object, false);
  exec->last = stream;
  exec->position = stream->queued;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

bool driver_user_objects_end(void) {
  driver_state *s = driver_get();
  driver_user_object *object;
  const bool some = s->unused != NULL;
  while ((object = s->unused)) {
    s->unused = object->next;
    pthread_mutex_unlock(&s->lock);
    object->destroy(object->argument);
    pthread_mutex_lock(&s->lock);
    driver_object_drop(&object->object, false);
  }
  return some;
}

/* Whether a number of references is possible. */
static bool countable(unsigned count) {
  return count && count <= INT_MAX;
}

colli_cu_result cuUserObjectCreate(colli_cu_user_object *handle, void *argument,
                                   colli_cu_host_fn destroy, unsigned references, unsigned flags) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (!destroy || !countable(references) || flags != COLLI_CU_USER_OBJECT_NO_DESTRUCTOR_SYNC)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_user_object *object = driver_object_add(USER_OBJECT, sizeof(*object), NULL);
  if (!object)
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  object->destroy = destroy;
  object->argument = argument;
  object->references = references;
  *handle = (colli_cu_user_object)object;
  return driver_leave(COLLI_CUDA_SUCCESS);
}

/* Begins a call about references to a user object. */
static colli_cu_result enter_references(colli_cu_user_object handle, unsigned count,
                                        driver_user_object **object) {
  colli_cu_result result = driver_enter();
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  *object = driver_object_find(USER_OBJECT, handle);
  return *object && countable(count) ? COLLI_CUDA_SUCCESS
                                     : driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
}

colli_cu_result cuUserObjectRelease(colli_cu_user_object handle, unsigned count) {
  driver_user_object *object;
  colli_cu_result result = enter_references(handle, count, &object);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  if (count > object->references)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  drop_references(object, count);
  return driver_leave(COLLI_CUDA_SUCCESS);
}

colli_cu_result cuGraphRetainUserObject(colli_cu_graph graph_handle, colli_cu_user_object handle,
                                        unsigned count, unsigned flags) {
  driver_user_object *object;
  colli_cu_result result = enter_references(handle, count, &object);
  if (result != COLLI_CUDA_SUCCESS)
    return result;
  driver_graph *graph = driver_object_find(GRAPH, graph_handle);
  if (!graph || flags & ~(unsigned)COLLI_CU_GRAPH_USER_OBJECT_MOVE)
    return driver_leave(COLLI_CUDA_ERROR_INVALID_VALUE);
  driver_hold *hold = malloc(sizeof(*hold));
  if (!hold)
    return driver_leave(COLLI_CUDA_ERROR_OUT_OF_MEMORY);
  *hold = (driver_hold){.of = object, .count = count, .next = graph->holds};
  graph->holds = hold;
  if (!flags)
    object->references += count;
  return driver_leave(COLLI_CUDA_SUCCESS);
}
