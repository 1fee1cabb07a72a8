/* group.c: the list of calls that wait for the end of a group. */
#include <stdlib.h>

#include "libcoll/base/error.h"
#include "libcoll/call/calls.h"

/* Makes room for more calls; false without memory. */
static bool grow_group(colli_group *group, int room) {
  colli_call *calls = realloc(group->calls, (size_t)room * sizeof(*calls));
  if (calls)
    group->calls = calls;
  coll_request **requests = realloc(group->requests, (size_t)room * sizeof(*requests));
  if (requests)
    group->requests = requests;
  if (!calls || !requests)
    return false;
  group->room = room;
  return true;
}

coll_status colli_group_add(colli_group *group, const colli_call *call, coll_error *error) {
  if (group->count == group->room) {
    int room = group->room ? 2 * group->room : 16;
    if (!grow_group(group, room))
      return colli_error_set(error, COLL_ERR_NO_MEMORY, call->name,
                             "no memory for a group of %d calls", room);
  }
  group->calls[group->count++] = *call;
  return COLL_OK;
}

void colli_group_free(colli_group *group) {
  free(group->calls);
  free(group->requests);
}
