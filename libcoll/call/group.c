/* group.c: the list of calls that wait for the end of a group. */
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/call/calls.h"

/* Raises the capacity; false if out of memory. */
static bool grow_group(colli_group *group, int capacity) {
  COLLI_ASSERT(capacity > group->count);
  colli_call *calls = realloc(group->calls, (size_t)capacity * sizeof(*calls));
  if (calls)
    group->calls = calls;
  coll_request **requests = realloc(group->requests, (size_t)capacity * sizeof(*requests));
  if (requests)
    group->requests = requests;
  if (!calls || !requests)
    return false;
  group->capacity = capacity;
  return true;
}

coll_status colli_group_add(colli_group *group, const colli_call *call, coll_error *error) {
  COLLI_ASSERT(group->depth > 0 && group->count <= group->capacity);
  if (group->count == group->capacity) {
    int capacity = group->capacity ? 2 * group->capacity : 16;
    if (!grow_group(group, capacity))
      return colli_error_set(error, COLL_ERR_NO_MEMORY, call->name,
                             "out of memory for a group of %d calls", capacity);
  }
  group->calls[group->count++] = *call;
  colli_user_op *user = colli_user_op_of(call->op);
  colli_user_op_retain(user);
  group->has_user_ops |= user != NULL;
  return COLL_OK;
}

void colli_group_own(colli_group *group, colli_tables *tables) {
  tables->next = group->tables;
  group->tables = tables;
}

/* Drops the references to operations. */
static void release_ops(colli_group *group) {
  for (int i = 0; i < group->count; i++)
    colli_user_op_release(colli_user_op_of(group->calls[i].op));
  group->has_user_ops = false;
}

void colli_group_clear(colli_group *group) {
  if (group->has_user_ops)
    release_ops(group);
  group->count = 0;
  while (group->tables) {
    colli_tables *next = group->tables->next;
    free(group->tables);
    group->tables = next;
  }
}

void colli_group_free(colli_group *group) {
  colli_group_clear(group);
  free(group->calls);
  free(group->requests);
}
