/*
 * attr.c: values that the caller attaches to a communicator. They are in a list, because there are
 * few. The caller's `destroy` functions run without the family's lock, because they may use other
 * communicators.
 */
#include "libcoll/api/attr.h"

#include <stdlib.h>

#include "libcoll/comm/comm.h"
#include "libcoll/progress/enter.h"

/* One attribute. */
typedef struct colli_attr {
  struct colli_attr *next;
  const void *key;
  void *value;
  void (*destroy)(void *value);
} colli_attr;

/* The link to a key's attribute, or to the end of the list. */
static colli_attr **find_attr(coll_comm *comm, const void *key) {
  colli_attr **at = &comm->attrs;
  while (*at && (*at)->key != key)
    at = &(*at)->next;
  return at;
}

/* Destroys an attribute that was removed from the list. */
static void destroy_attr(coll_comm *comm, colli_attr *attr) {
  if (attr->destroy) {
    colli_call_pause(comm);
    attr->destroy(attr->value);
    colli_call_resume(comm);
  }
  free(attr);
}

void colli_attrs_free(coll_comm *comm) {
  while (comm->attrs) {
    colli_attr *attr = comm->attrs;
    comm->attrs = attr->next;
    destroy_attr(comm, attr);
  }
}

/* Replaces, adds or removes the attribute of a key. */
static coll_status set_attr(coll_comm *comm, const void *key, void *value,
                            void (*destroy)(void *)) {
  colli_attr *attr = NULL;
  if (value) {
    attr = malloc(sizeof(*attr));
    if (!attr)
      return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, "set_attr",
                               "out of memory for an attribute");
    *attr = (colli_attr){.key = key, .value = value, .destroy = destroy};
  }
  colli_attr **at = find_attr(comm, key), *old = *at;
  if (old)
    *at = old->next;
  if (attr) {
    attr->next = comm->attrs;
    comm->attrs = attr;
  }
  if (old)
    destroy_attr(comm, old);
  return COLL_OK;
}

coll_status coll_comm_set_attr(coll_comm *comm, const void *key, void *value,
                               void (*destroy)(void *value)) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (key)
    status = set_attr(comm, key, value, destroy);
  else
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "set_attr",
                               "key is NULL; give the address of an object of your own");
  colli_call_leave(comm);
  return status;
}

coll_status coll_comm_get_attr(coll_comm *comm, const void *key, void **value) {
  coll_status status = colli_call_enter(comm);
  if (status != COLL_OK)
    return status;
  if (value)
    *value = NULL;
  if (key && value) {
    const colli_attr *attr = *find_attr(comm, key);
    *value = attr ? attr->value : NULL;
  } else {
    status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, "get_attr", "%s is NULL",
                               key ? "value" : "key");
  }
  colli_call_leave(comm);
  return status;
}
