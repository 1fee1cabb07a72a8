/* plugins.c: loads transports from shared libraries, and checks what they bring. */
#include "transports/plugins.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "libcoll/base/error.h"
#include "libcoll/base/plugin.h"

#define MAX_PATH_BYTES 1024

typedef const coll_transport_ops *plugin_function(void);
typedef void any_function(void);

static const colli_plugin_kind transport_kind = {
    "COLL_TRANSPORT_PATH", "coll_transport_plugin",
    "name shared libraries that export coll_transport_plugin() (coll/coll_transport.h), or unset "
    "it"};

/* A function of the table: where it is, and what it is called. */
typedef struct table_entry {
  size_t offset;
  const char *name;
} table_entry;

#define ENTRY(name)                                                                                \
  { offsetof(coll_transport_ops, name), #name }
#define TABLE_LEAST offsetof(coll_transport_ops, region_add) /* the optional ones begin there */

/* What every transport must have. */
static const table_entry mandatory[] = {
    ENTRY(open),         ENTRY(close),       ENTRY(describe), ENTRY(reach),
    ENTRY(connect),      ENTRY(disconnect),  ENTRY(send),     ENTRY(sent),
    ENTRY(slot_acquire), ENTRY(slot_commit), ENTRY(recv),     ENTRY(slot_peek),
    ENTRY(slot_release), ENTRY(progress),    ENTRY(wait_fd),  ENTRY(arm),
    ENTRY(disarm),       ENTRY(wake),
};

/* Groups of functions: a transport has all of a group or none. NULL ends each group. */
static const table_entry groups[][6] = {
    {ENTRY(region_add), ENTRY(region_remove), ENTRY(send_ref), {0, NULL}},
    {ENTRY(offer_work), ENTRY(claim_work), ENTRY(finish_work), ENTRY(unfinished_work), {0, NULL}},
    {ENTRY(register_buffer), ENTRY(release_buffers), {0, NULL}},
    {ENTRY(register_device),
     ENTRY(release_device),
     ENTRY(send_device),
     ENTRY(send_to_target),
     ENTRY(offer_device),
     {0, NULL}},
};

/* Whether the table has a function. */
static bool has(const coll_transport_ops *ops, const table_entry *entry) {
  any_function *function;
  if (ops->size < entry->offset + sizeof(function))
    return false;
  memcpy(&function, (const char *)ops + entry->offset, sizeof(function));
  return function != NULL;
}

/* Whether all characters of a name may stand in a comma-separated list. */
static bool is_name(const char *name) {
  static const char allowed[] = "abcdefghijklmnopqrstuvwxyz0123456789-_";
  size_t length = name ? strlen(name) : 0;
  return length >= 1 && length <= COLLI_TRANSPORT_NAME_MAX && strspn(name, allowed) == length;
}

/* Checks version and size of the table, and the name. */
static coll_status check_table(const char *path, const coll_transport_ops *ops, coll_error *error) {
  if (!ops)
    return colli_plugin_refuse(&transport_kind, path, error,
                               "its coll_transport_plugin() returned NULL");
  if (ops->size < offsetof(coll_transport_ops, caps) || ops->abi != COLL_TRANSPORT_ABI)
    return colli_plugin_refuse(
        &transport_kind, path, error,
        "is a transport of another version of libcoll: its abi is %u, not %u",
        ops->size < offsetof(coll_transport_ops, caps) ? 0 : ops->abi, COLL_TRANSPORT_ABI);
  if (ops->size < TABLE_LEAST || ops->size % sizeof(any_function *) != 0)
    return colli_plugin_refuse(&transport_kind, path, error,
                               "its table's size is %zu; it must be sizeof(coll_transport_ops), "
                               "which is at least %zu",
                               ops->size, TABLE_LEAST);
  if (!is_name(ops->name))
    return colli_plugin_refuse(&transport_kind, path, error,
                               "its name '%.40s' is not 1 to %d of a-z, 0-9, - and _",
                               ops->name ? ops->name : "", COLLI_TRANSPORT_NAME_MAX);
  return COLL_OK;
}

/* Checks that no required function is missing. */
static coll_status check_functions(const char *path, const coll_transport_ops *ops,
                                   coll_error *error) {
  for (size_t i = 0; i < sizeof(mandatory) / sizeof(*mandatory); i++)
    if (!has(ops, &mandatory[i]))
      return colli_plugin_refuse(&transport_kind, path, error, "transport '%s' has no %s()",
                                 ops->name, mandatory[i].name);
  for (size_t g = 0; g < sizeof(groups) / sizeof(*groups); g++)
    for (const table_entry *entry = groups[g]; entry->name; entry++)
      if (has(ops, entry) != has(ops, groups[g]))
        return colli_plugin_refuse(&transport_kind, path, error,
                                   "transport '%s' has only one of %s() and %s()", ops->name,
                                   groups[g]->name, entry->name);
  return COLL_OK;
}

/* Refuses a name that is taken. */
static coll_status check_unique(const char *path, const coll_transport_ops *ops,
                                const colli_transport_list *list, coll_error *error) {
  bool known = strcmp(ops->name, "self") == 0;
  for (int i = 0; list->ops[i]; i++)
    known = known || strcmp(list->ops[i]->name, ops->name) == 0;
  if (!known)
    return COLL_OK;
  return colli_plugin_refuse(&transport_kind, path, error,
                             "its name, '%s', belongs to another transport already", ops->name);
}

/* Loads one library. */
static coll_status load_plugin(const char *path, const colli_transport_list *list,
                               const coll_transport_ops **ops, coll_error *error) {
  void *library, *symbol;
  plugin_function *function;
  coll_status status = colli_plugin_load(&transport_kind, path, true, &library, &symbol, error);
  if (status != COLL_OK)
    return status;
  memcpy(&function, &symbol, sizeof(function)); /* C has no cast from objects to functions */
  *ops = function();
  status = check_table(path, *ops, error);
  if (status == COLL_OK)
    status = check_functions(path, *ops, error);
  return status == COLL_OK ? check_unique(path, *ops, list, error) : status;
}

coll_status transports_load_plugins(const char *path, int count, colli_transport_list *list,
                                    coll_error *error) {
  char file[MAX_PATH_BYTES];
  if (!*path)
    return COLL_OK;
  for (const char *at = path; *at; at += *at == ':') {
    size_t length = strcspn(at, ":");
    snprintf(file, sizeof(file), "%.*s", (int)length, at);
    at += length;
    if (length == 0)
      continue;
    if (count == COLLI_TRANSPORTS_MAX)
      return colli_plugin_refuse(&transport_kind, file, error,
                                 "is one too many: there can be %d transports, with the built-in "
                                 "ones",
                                 COLLI_TRANSPORTS_MAX);
    const coll_transport_ops *ops;
    coll_status status = load_plugin(file, list, &ops, error);
    if (status != COLL_OK)
      return status;
    list->ops[count++] = ops;
  }
  return COLL_OK;
}
