/*
 * split_make.c: makes a communicator from another one once the members' records are known.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/assert.h"
#include "libcoll/base/error.h"
#include "libcoll/comm/pool.h"
#include "libcoll/comm/shown.h"
#include "libcoll/create/assemble.h"
#include "libcoll/create/split_parts.h"
#include "libcoll/failure/failure.h"
#include "libcoll/failure/notice.h"
#include "libcoll/progress/enter.h"
#include "libcoll/progress/progress_thread.h"

const char *colli_split_name(colli_split_kind kind) {
  static const char *const names[] = {"split", "dup", "subset", "create_group", "comm_use_gpu"};
  return names[kind];
}

/* ---- settings -------------------------------------------------------------------------------- */

/* Starts the family's progress thread if this communicator is the first that asks for it. */
static coll_status start_progress(coll_comm *parent, const char *name, colli_settings *settings) {
  if (settings->params.number[COLLI_PARAM_PROGRESS] != COLL_PROGRESS_ON || parent->nranks == 1 ||
      parent->world.pause)
    return COLL_OK;
  coll_status status = colli_progress_start(parent->family, &settings->error);
  return status == COLL_OK ? status
                           : colli_comm_refuse(parent, status, name, "%s", settings->error.message);
}

/* Takes the parent's settings and the caller's changes; refuses invalid ones. */
static coll_status read_settings(coll_comm *parent, const char *name, const coll_config *config,
                                 colli_settings *settings) {
  coll_status status = colli_settings_inherit(settings, parent, config);
  const char *transport = settings->params.text[COLLI_PARAM_TRANSPORT];
  if (status == COLL_OK)
    status = colli_force_check(settings->params.text[COLLI_PARAM_ALGO], &settings->error) == COLL_OK
                 ? COLL_OK
                 : COLL_ERR_INVALID_ARGUMENT;
  if (status != COLL_OK)
    return colli_comm_refuse(parent, status, name, "%s", settings->error.message);
  if (strcmp(transport, parent->family->params.text[COLLI_PARAM_TRANSPORT]) != 0)
    return colli_comm_refuse(parent, COLL_ERR_INVALID_ARGUMENT, name,
                             "config.transport is '%s', but connections are shared with the "
                             "communicator that this one is made from; leave it NULL",
                             transport);
  return start_progress(parent, name, settings);
}

/* Gives a communicator its settings, and the state that it takes over from its parent. */
static void inherit(coll_comm *comm, const coll_comm *parent, const colli_settings *settings) {
  colli_params_copy(&comm->params, &settings->params);
  comm->calls.deterministic = (coll_determinism)comm->params.number[COLLI_PARAM_DETERMINISTIC];
  comm->calls.accumulate = (coll_accumulate)comm->params.number[COLLI_PARAM_ACCUMULATE];
  comm->calls.check_finite = (colli_finite_check)comm->params.number[COLLI_PARAM_CHECK_FINITE];
  comm->log = parent->log;
  comm->world = parent->world;
  comm->gpu = parent->gpu;
  memcpy(comm->host, parent->host, sizeof(comm->host));
  comm->failure.root = -1;
  colli_error_clear(&comm->failure.error);
  comm->watch.spin = COLLI_SPIN_MOST;
}

/* ---- the members ----------------------------------------------------------------------------- */

/* A rank of the parent, to be sorted. */
typedef struct candidate {
  int32_t key;
  int rank;
} candidate;

static int by_key(const void *a, const void *b) {
  const candidate *left = a, *right = b;
  if (left->key != right->key)
    return left->key < right->key ? -1 : 1;
  return left->rank < right->rank ? -1 : left->rank > right->rank;
}

/* The table of the ranks: the family's, if they are all of its ranks in their order, because it is
 * large; else a copy. False if out of memory. */
static bool take_table(coll_comm *comm) {
  const colli_family *family = comm->family;
  bool same = comm->nranks == family->nranks;
  for (int rank = 0; same && rank < comm->nranks; rank++)
    same = comm->map.in_base[rank] == rank;
  comm->own_table = !same;
  if (same) {
    comm->table = family->table;
    return true;
  }
  colli_rank_info *all = malloc((size_t)comm->nranks * sizeof(*all));
  colli_rank_walk walk = colli_rank_walk_begin(family->table);
  for (int rank = 0; all && rank < comm->nranks; rank++)
    all[rank] = *colli_rank_walk_to(&walk, comm->map.in_base[rank]);
  comm->table = all ? colli_rank_table_create(all, comm->nranks) : NULL;
  free(all);
  return comm->table != NULL;
}

/* Fills in ranks and their table for the sorted members; false if out of memory. */
static bool take_members(coll_comm *comm, const colli_split *split, const candidate *members,
                         uint16_t *numbers) {
  const coll_comm *parent = split->parent;
  const colli_family *family = parent->family;
  size_t n = (size_t)comm->nranks, base_n = (size_t)family->nranks;
  comm->map.in_base = malloc(n * sizeof(*comm->map.in_base));
  comm->map.from_base = malloc(base_n * sizeof(*comm->map.from_base));
  if (parent->map.origins)
    comm->map.origins = malloc(n * sizeof(*comm->map.origins));
  if (!comm->map.in_base || !comm->map.from_base || (parent->map.origins && !comm->map.origins))
    return false;
  for (size_t i = 0; i < base_n; i++)
    comm->map.from_base[i] = -1;
  for (int rank = 0; rank < comm->nranks; rank++) {
    int in_parent = members[rank].rank, in_base = colli_comm_base_rank(parent, in_parent);
    COLLI_ASSERT_RANK(in_base >= 0 && in_base < family->nranks, parent->rank);
    COLLI_ASSERT_RANK(comm->map.from_base[in_base] == -1, parent->rank); /* nobody is in it twice */
    comm->map.in_base[rank] = in_base;
    comm->map.from_base[in_base] = rank;
    numbers[rank] = (uint16_t)split->records[in_parent].number;
    if (comm->map.origins)
      comm->map.origins[rank] = parent->map.origins[in_parent];
    if (in_parent == parent->rank)
      comm->rank = rank;
  }
  COLLI_ASSERT_RANK(members[comm->rank].rank == parent->rank, parent->rank);
  const colli_split_record *first = &split->records[members[0].rank];
  comm->uid = (uint64_t)(comm->map.in_base[0] + 1) << 32 | first->serial;
  comm->comm_id = parent->family->comm_id ^ comm->uid * 0x9e3779b97f4a7c15ull;
  return take_table(comm);
}

/* Its connections are shared, so it must use their slot size. */
static void take_links(coll_comm *comm, const coll_comm *parent) {
  COLLI_ASSERT_RANK(comm->child && parent->exec.slot_bytes > 0, parent->rank);
  comm->calls.plans.limits = parent->calls.plans.limits;
  comm->exec.slot_bytes = parent->exec.slot_bytes;
  comm->watch.crowded = parent->watch.crowded;
}

/* Names a part of a communicator after its ranks there: "ranks 0 2 4 6 of world". Those that have
 * no room, in the middle, are left out. */
static void name_part(coll_comm *comm, const coll_comm *parent) {
  char list[36] = "";
  for (int rank = 0; rank < comm->nranks; rank++) {
    const size_t used = strlen(list);
    const bool skips = used > sizeof(list) - 18 && rank + 1 < comm->nranks;
    const int base = colli_comm_base_rank(comm, skips ? comm->nranks - 1 : rank);
    snprintf(list + used, sizeof(list) - used, skips ? " .. %d" : " %d",
             colli_comm_rank_of(parent, base));
    if (skips)
      break;
  }
  snprintf(comm->name, sizeof(comm->name), "ranks%s of %.18s", list, parent->name);
}

/* Names a communicator after its parent: "world/split 2, color 1", "world/dup 3", "world/group, tag
 * 5". */
static void choose_name(coll_comm *comm, const colli_split *split) {
  const char *parent = split->parent->name;
  if (split->kind == COLLI_SPLIT_LEVEL)
    name_part(comm, split->parent);
  else if (split->kind == COLLI_SPLIT_GROUP)
    snprintf(comm->name, sizeof(comm->name), "%.24s/group, tag %d", parent, split->tag);
  else if (split->kind == COLLI_SPLIT_COLORS)
    snprintf(comm->name, sizeof(comm->name), "%.24s/%s %u, color %d", parent, split->name,
             split->made, split->mine.color);
  else
    snprintf(comm->name, sizeof(comm->name), "%.24s/%s %u", parent, split->name, split->made);
}

/* Whether a communicator has the ranks of its parent, in the same order. */
static bool is_twin(const coll_comm *comm, const coll_comm *parent) {
  bool same = comm->nranks == parent->nranks;
  for (int rank = 0; same && rank < comm->nranks; rank++)
    same = comm->map.in_base[rank] == colli_comm_base_rank(parent, rank);
  return same;
}

/* Creates this rank's communicator from the sorted members; NULL if out of memory. */
static coll_comm *make_child(colli_split *split, const candidate *members, int count) {
  coll_comm *parent = split->parent, *comm = colli_comm_new();
  COLLI_ASSERT_RANK(split->child && count >= 1 && count <= parent->nranks, parent->rank);
  if (!comm)
    return NULL;
  comm->nranks = count;
  comm->family = parent->family;
  comm->uid = UINT64_MAX; /* until it is known: not the base */
  comm->map.numbers = malloc((size_t)count * sizeof(*comm->map.numbers));
  inherit(comm, parent, &split->settings);
  bool ok = comm->map.numbers && take_members(comm, split, members, comm->map.numbers);
  if (ok)
    choose_name(comm, split);
  ok = ok && colli_mux_complete(split->child, count, comm->map.in_base, comm->map.from_base,
                                comm->map.numbers) == COLL_OK;
  if (!ok || colli_comm_set_up(comm, is_twin(comm, parent) ? parent : NULL, NULL) != COLL_OK) {
    colli_mux_close(split->child); /* while the arrays are there */
    split->child = NULL;
    colli_comm_hide(comm);
    colli_comm_free(comm);
    return NULL;
  }
  comm->child = split->child;
  comm->is_part = split->kind == COLLI_SPLIT_LEVEL;
  split->child = NULL;
  colli_shrink_share(comm, parent);
  take_links(comm, parent);
  colli_family_add(parent->family, comm);
  return comm;
}

/* Makes this rank's communicator of all ranks whose records have its color. */
coll_status colli_split_make(colli_split *split, coll_comm **child) {
  coll_comm *parent = split->parent;
  candidate *members = malloc((size_t)parent->nranks * sizeof(*members));
  int count = 0;
  for (int rank = 0; members && rank < parent->nranks; rank++)
    if (split->records[rank].color == split->mine.color)
      members[count++] = (candidate){split->records[rank].key, rank};
  if (members) {
    for (int i = 1; i < count; i++)
      if (by_key(&members[i - 1], &members[i]) > 0) { /* rare */
        qsort(members, (size_t)count, sizeof(*members), by_key);
        break;
      }
    *child = make_child(split, members, count);
  }
  free(members);
  if (!*child)
    return colli_comm_refuse(parent, COLL_ERR_NO_MEMORY, split->name,
                             "out of memory for a communicator of %d ranks", count);
  colli_notice_catch_up(parent->family, *child);
  return COLL_OK;
}

/* ---- begin and end -------------------------------------------------------------------------- */

/* Creates the shared connections when the first communicator is split. */
static bool ready_family(coll_comm *parent) {
  colli_family *family = parent->family;
  if (!family->mux)
    family->mux =
        colli_mux_create(family, parent->exec.slot_bytes, parent->calls.plans.limits.slot_count);
  if (family->mux)
    colli_family_share(family, parent);
  return family->mux != NULL;
}

/* Allocates a split; NULL if out of memory or numbers. */
static colli_split *allocate_split(coll_comm *parent) {
  colli_split *split = malloc(sizeof(*split) + (size_t)parent->nranks * sizeof(*split->records));
  if (split)
    memset(split, 0, offsetof(colli_split, settings));
  if (split && ready_family(parent))
    split->child = colli_mux_begin(parent->family->mux);
  if (split && split->child)
    return split;
  free(split);
  return NULL;
}

/* Begins a communicator. */
coll_status colli_split_prepare(coll_comm *parent, const colli_split_call *call,
                                colli_split **out) {
  const char *name = colli_split_name(call->kind);
  *out = NULL;
  colli_split *split = allocate_split(parent);
  if (!split)
    return colli_comm_refuse(parent, COLL_ERR_NO_MEMORY, name,
                             "out of memory, or no number left, for a communicator");
  parent->family->making++;
  split->parent = parent;
  split->kind = call->kind;
  split->name = name;
  if (call->kind != COLLI_SPLIT_GROUP && call->kind != COLLI_SPLIT_LEVEL)
    parent->made++; /* the same number on all ranks */
  split->made = parent->made;
  split->tag = call->tag;
  coll_status status = read_settings(parent, name, call->config, &split->settings);
  if (status != COLL_OK) {
    colli_split_drop(split);
    return status;
  }
  split->mine = (colli_split_record){.color = call->color,
                                     .key = call->key,
                                     .number = (uint32_t)colli_mux_number(split->child),
                                     .serial = ++parent->family->made,
                                     .check = call->check};
  *out = split;
  return COLL_OK;
}

/* Frees everything that does not belong to the new communicator. */
void colli_split_drop(colli_split *split) {
  COLLI_ASSERT_RANK(split->parent->family->making > 0, split->parent->rank);
  if (split->op)
    colli_request_put(split->op);
  colli_mux_close(split->child);
  split->parent->family->making--;
  free(split);
}

/* ---- arguments and errors ------------------------------------------------------------------- */

/* Hands over the error record of a failed call as the configuration says. */
void colli_split_tell(const coll_comm *parent, const coll_config *config) {
  if (config && config->size >= offsetof(coll_config, error) + sizeof(config->error) &&
      config->size <= 4096 && config->error)
    colli_error_copy(config->error, &parent->failure.error);
}

/* Checks a list of ranks, and finds this rank and the list's checksum. */
coll_status colli_split_read_list(coll_comm *comm, const int *ranks, int count,
                                  colli_split_call *call) {
  const char *name = colli_split_name(call->kind);
  if (count < 0 || count > comm->nranks || (count > 0 && !ranks))
    return colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name,
                             "a list of %d ranks%s; there are %d", count,
                             ranks ? "" : " that is NULL", comm->nranks);
  bool *named = calloc((size_t)comm->nranks, sizeof(*named));
  if (!named)
    return colli_comm_refuse(comm, COLL_ERR_NO_MEMORY, name, "out of memory for a list of ranks");
  coll_status status = COLL_OK;
  call->color = COLL_NO_COLOR;
  call->check = 2166136261u;
  for (int i = 0; i < count && status == COLL_OK; i++) {
    if (ranks[i] < 0 || ranks[i] >= comm->nranks || named[ranks[i]]) {
      status = colli_comm_refuse(comm, COLL_ERR_INVALID_ARGUMENT, name,
                                 "entry %d of the list is rank %d, which %s", i, ranks[i],
                                 ranks[i] < 0 || ranks[i] >= comm->nranks
                                     ? "the communicator does not have"
                                     : "was named before");
      break;
    }
    named[ranks[i]] = true;
    call->check = (call->check ^ (uint32_t)ranks[i]) * 16777619u;
    if (ranks[i] == comm->rank) {
      call->color = 0;
      call->key = i;
    }
  }
  free(named);
  return status;
}

/* Fails the parent, because this rank and another one gave different lists. */
coll_status colli_split_disagree(const colli_split *split, int rank, const char *function,
                                 const char *remedy) {
  coll_comm *parent = split->parent;
  coll_error record;
  colli_comm_record(parent, &record, COLL_ERR_MISMATCH, rank, NULL);
  record.sequence = split->op ? parent->calls.sequence : 0;
  snprintf(record.operation, sizeof(record.operation), "%s", split->name);
  snprintf(record.message, sizeof(record.message),
           "rank %d (host %s) and rank %d (host %s, pid %d) gave different lists of ranks to %s; "
           "%s",
           parent->rank, parent->host, rank, record.peer_host, record.peer_pid, function, remedy);
  colli_comm_fail(parent, &record);
  return parent->failure.status;
}
