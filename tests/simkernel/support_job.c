/* support_job.c: the program of a simulated job's ranks, and the rules. */
#include "support_job.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "libcoll/base/prng.h"
#include "libcoll/comm/comm.h"
#include "libcoll/create/create.h"
#include "libcoll/wireup/bootstrap/tree.h"

#define START_NS (10 * SK_S) /* for its maker to make the id */
#define SLACK_NS (300 * SK_MS)

static struct {
  job_config config;
  coll_id id;
  colli_id *ids; /* by rank: of those at which others check in */
  int made;      /* how many of them have made theirs, or need none */
  bool have_id;  /* all have */
  int nranks;
} job;

job_rank *job_ranks;

static const char *const call_names[] = {"create", "reduce", "agree", "shrink"};

/* ---- what a rank does -------------------------------------------------------------------------
 */

/* Begins an entry. */
static job_entry *begin_entry(int rank, job_call call, const coll_comm *comm, int generation) {
  job_rank *r = &job_ranks[rank];
  job_entry *e = &r->entries[r->count];
  if (r->count > 0 && call == JOB_REDUCE && e[-1].call == JOB_REDUCE)
    e--; /* all-reduces of one communicator share an entry */
  else if (r->count == JOB_ENTRIES) {
    job_print();
    abort();
  } else {
    r->count++;
  }
  if (job.config.about)
    job.config.about(rank, call, generation);
  *e = (job_entry){
      .call = call, .comm = comm ? comm->comm_id : 0, .peer = -1, .begin_ns = sk_now_ns()};
  return e;
}

static void end_entry(job_entry *e, coll_status status, const coll_error *error,
                      const coll_comm *comm) {
  e->end_ns = sk_now_ns();
  e->ended = true;
  e->status = status;
  if (status == COLL_OK || !error)
    return;
  if (comm && error->peer >= 0 && error->peer < comm->nranks)
    coll_comm_origin_rank(comm, error->peer, &e->peer);
  else
    e->peer = error->peer;
  snprintf(e->message, sizeof(e->message), "%.*s", (int)sizeof(e->message) - 1, error->message);
}

/* An element of a rank's input. */
static int64_t value_of(int origin, int round, size_t i) {
  return (int64_t)(origin + 1) * (origin + 7) + round + (int64_t)(i % 5);
}

/* All-reduces; whether all succeeded. */
static bool reduce(int rank, coll_comm *comm, int generation) {
  const size_t count = job.config.count;
  int64_t *in = malloc(2 * count * sizeof(*in)), *out = in + count, sum = 0;
  bool ok = in != NULL;
  for (int r = 0, origin = 0; r < comm->nranks; r++) {
    coll_comm_origin_rank(comm, r, &origin);
    sum += value_of(origin, 0, 0);
  }
  for (int round = 0; ok && (round < job.config.rounds || (generation == 0 && job.config.stays));
       round++) {
    if (job.config.pause_ns)
      sk_sleep(job.config.pause_ns);
    for (size_t i = 0; i < count; i++)
      in[i] = value_of(rank, round, i);
    job_entry *e = begin_entry(rank, JOB_REDUCE, comm, generation);
    coll_status status = coll_allreduce(in, out, count, COLL_INT64, COLL_SUM, comm);
    coll_error error = COLL_ERROR_INIT;
    if (status != COLL_OK)
      coll_last_error(comm, &error);
    end_entry(e, status, &error, comm);
    ok = status == COLL_OK;
    for (size_t i = 0; ok && i < count; i++)
      job_ranks[rank].wrong += out[i] != sum + comm->nranks * (round + (int64_t)(i % 5));
  }
  free(in);
  return ok;
}

/* Agrees on a word; whether that succeeded. */
static bool agree(int rank, coll_comm *comm, int generation, uint64_t *word) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  int absent = -1;
  job_entry *e = begin_entry(rank, JOB_AGREE, comm, generation);
  coll_status status = coll_comm_agree(comm, word, &absent, &config);
  end_entry(e, status, &error, comm);
  e->word = *word;
  e->absent = absent;
  return status == COLL_OK;
}

/* Shrinks *comm; whether that succeeded. */
static bool shrink(int rank, coll_comm **comm, int generation) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  config.error = &error;
  coll_comm *child = NULL;
  job_entry *e = begin_entry(rank, JOB_SHRINK, *comm, generation);
  coll_status status = coll_comm_shrink(*comm, &config, &child);
  end_entry(e, status, &error, *comm);
  if (status != COLL_OK)
    return false;
  e->child = child->comm_id;
  e->nranks = child->nranks;
  coll_comm_destroy(comm);
  *comm = job_ranks[rank].now = child;
  return true;
}

/* Makes what others need in order to check in: in a tree as a launcher that carries it would. */
static void make_id(int rank, const coll_config *config) {
  coll_error error = COLL_ERROR_INIT;
  colli_settings settings;
  const int fan_out = job.config.fan_out;
  if (fan_out == 0 && rank == job.config.maker && coll_unique_id(&job.id, config) != COLL_OK)
    abort();
  job.ids[rank] = (colli_id){.listen_fd = -1};
  const boot_place place = boot_place_find(fan_out, rank, job.nranks, false);
  if (fan_out > 0 && boot_place_children(&place) > 0 &&
      (colli_settings_load(&settings, config) != COLL_OK ||
       colli_id_make(&job.ids[rank], &settings.params, &error) != COLL_OK))
    abort();
  job.made++;
  job.have_id = fan_out > 0 ? job.made == job.nranks : job.have_id || rank == job.config.maker;
}

/* Creates the communicator in a tree. */
static coll_status create_in_tree(coll_comm **comm, int rank, const coll_config *config) {
  colli_settings settings;
  colli_id id = job.ids[rank];
  const boot_place place = boot_place_find(job.config.fan_out, rank, job.nranks, false);
  if (rank > 0)
    colli_id_place(&id, &job.ids[0], &job.ids[place.parent], job.config.fan_out);
  else
    id.secret = colli_secret_acquire(id.secret);
  id.fan_out = job.config.fan_out;
  id.server = 0;
  coll_status status = colli_settings_load(&settings, config);
  if (status == COLL_OK)
    status = colli_create(comm, &id, job.nranks, rank, &settings, NULL);
  colli_id_release(&id);
  return colli_settings_finish(&settings, status);
}

/* Creates the communicator; NULL if that failed. */
static coll_comm *create(int rank) {
  coll_error error = COLL_ERROR_INIT;
  coll_config config = COLL_CONFIG_INIT;
  coll_comm *comm = NULL;
  config.error = &error;
  config.timeout_ms = job.config.timeout_ms;
  config.create_timeout_ms = job.config.create_timeout_ms;
  config.heartbeat_ms = job.config.heartbeat_ms;
  make_id(rank, &config);
  if (!sk_await(&job.have_id, START_NS))
    return NULL;
  colli_prng prng = {job.config.kernel.seed * 1000 + (uint64_t)rank};
  if (job.config.skew_ns)
    sk_sleep(colli_prng_below(&prng, job.config.skew_ns));
  job_entry *e = begin_entry(rank, JOB_CREATE, NULL, 0);
  coll_status status = job.config.fan_out > 0
                           ? create_in_tree(&comm, rank, &config)
                           : coll_comm_create(&comm, &job.id, job.nranks, rank, &config);
  end_entry(e, status, &error, NULL);
  if (comm) {
    e->child = comm->comm_id;
    e->nranks = comm->nranks;
  }
  return comm;
}

static void rank_main(int rank, void *arg) {
  (void)arg;
  coll_comm *comm = create(rank);
  job_ranks[rank].now = comm;
  for (int generation = 0; comm; generation++) {
    uint64_t word = reduce(rank, comm, generation);
    if (!job.config.direct && !agree(rank, comm, generation, &word))
      break;
    if (word) {
      job_ranks[rank].happy = true;
      job_ranks[rank].comm = comm->comm_id;
      break;
    }
    if (!shrink(rank, &comm, generation))
      break;
  }
  job_ranks[rank].now = NULL;
  coll_comm_destroy(&comm);
  job_ranks[rank].ended_ns = sk_now_ns();
}

/* ---- running ----------------------------------------------------------------------------------
 */

job_config job_defaults(uint64_t seed, int nranks, int ranks_per_host) {
  setenv("COLL_TRANSPORT", "tcp", 1);
  setenv("COLL_LOG", "none", 1);
  return (job_config){.kernel = sk_defaults(seed, nranks, ranks_per_host),
                      .timeout_ms = 4000,
                      .create_timeout_ms = 4000,
                      .heartbeat_ms = 1000,
                      .rounds = 2,
                      .count = 100};
}

bool job_run(const job_config *config) {
  job.config = *config;
  job.nranks = config->kernel.nranks;
  job.have_id = false;
  job.made = 0;
  job_ranks = calloc((size_t)job.nranks, sizeof(*job_ranks));
  job.ids = calloc((size_t)job.nranks, sizeof(*job.ids));
  if (!job_ranks || !job.ids)
    abort();
  if (sk_run(rank_main, NULL, 300 * SK_S))
    return true;
  fprintf(stderr, "after %.3f s some ranks have not ended\n", (double)sk_now_ns() / 1e9);
  job_print();
  return false;
}

void job_free(void) {
  colli_id_release(&job.ids[0]);
  free(job.ids);
  free(job_ranks);
  job_ranks = NULL;
}

void job_print(void) {
  for (int rank = 0; rank < job.nranks; rank++) {
    const job_rank *r = &job_ranks[rank];
    fprintf(stderr, "rank %d (host %d)%s:\n", rank, sk_host(rank),
            !sk_is_alive(rank) ? ", killed"
            : sk_is_done(rank) ? ""
                               : ", has not ended");
    for (int i = 0; i < r->count; i++) {
      const job_entry *e = &r->entries[i];
      fprintf(stderr, "  %s of %04x at %.6f", call_names[e->call], (unsigned)(e->comm & 0xffff),
              (double)e->begin_ns / 1e9);
      if (e->ended)
        fprintf(stderr, " .. %.6f: %s, %04x with %d ranks, word %d, absent %d; %d: %s\n",
                (double)e->end_ns / 1e9, coll_status_name(e->status), (unsigned)(e->child & 0xffff),
                e->nranks, (int)e->word, e->absent, e->peer, e->message);
      else
        fprintf(stderr, " ...\n");
    }
  }
}

const job_entry *job_last(int rank, job_call call) {
  for (int i = job_ranks[rank].count - 1; i >= 0; i--)
    if (job_ranks[rank].entries[i].call == call)
      return &job_ranks[rank].entries[i];
  return NULL;
}

/* ---- the rules --------------------------------------------------------------------------------
 */

/* The longest that a call may take. */
static uint64_t longest_ns(job_call call) {
  const uint64_t create_ns = (uint64_t)job.config.create_timeout_ms * SK_MS;
  if (call == JOB_CREATE)
    return create_ns + SK_S + SLACK_NS;
  if (call == JOB_REDUCE)
    return (uint64_t)job.config.timeout_ms * SK_MS * 2 + SLACK_NS;
  return 7 * create_ns + SLACK_NS;
}

static int violated(int rank, const job_entry *e, const char *rule) {
  fprintf(stderr, "rank %d, %s at %.6f s: %s\n", rank, call_names[e->call],
          (double)e->begin_ns / 1e9, rule);
  return 1;
}

/* Whether `other` had exited before a rank's call ended. Then it is dead to that rank, even if the
 * rank was stopped or cut off meanwhile: see the known gaps in docs/reliability.md. */
static bool had_exited(int other, const job_entry *e) {
  return job_ranks[other].ended_ns && job_ranks[other].ended_ns <= e->end_ns;
}

/* The same for all whose call ended as it did in `o`. */
static bool had_all_exited(const job_entry *o, const job_entry *e) {
  for (int other = 0; other < job.nranks; other++)
    for (int i = 0; i < job_ranks[other].count; i++) {
      const job_entry *same = &job_ranks[other].entries[i];
      if (same->call == o->call && same->comm == o->comm && same->ended &&
          same->status == COLL_OK && same->child == o->child && same->word == o->word &&
          same->absent == o->absent && sk_is_alive(other) && !had_exited(other, e))
        return false;
    }
  return true;
}

/* Compares an entry with those of other ranks. */
static int check_entry(int rank, const job_entry *e) {
  int found = 0;
  if (!e->ended)
    return sk_is_alive(rank) ? violated(rank, e, "has not ended") : 0;
  if (e->end_ns - e->begin_ns > longest_ns(e->call) && !sk_was_stopped(rank))
    found += violated(rank, e, "took too long");
  if (e->status != COLL_OK || e->call == JOB_REDUCE)
    return found;
  for (int other = 0; other < rank; other++)
    for (int i = 0; i < job_ranks[other].count; i++) {
      const job_entry *o = &job_ranks[other].entries[i];
      if (o->call != e->call || o->comm != e->comm || !o->ended || o->status != COLL_OK)
        continue;
      const bool split = e->child != o->child || e->nranks != o->nranks,
                 differ = e->word != o->word || e->absent != o->absent;
      if ((!split && !differ) || had_all_exited(o, e) || had_all_exited(e, o))
        continue;
      found += violated(rank, e,
                        split ? "two communicators came from one" : "an agreement has two results");
      if (found)
        return found;
    }
  return found;
}

int job_check(void) {
  int found = 0;
  for (int rank = 0; rank < job.nranks && found == 0; rank++) {
    const job_rank *r = &job_ranks[rank];
    if (r->wrong)
      found += violated(rank, &r->entries[0], "wrong results");
    for (int i = 0; i < r->count; i++)
      found += check_entry(rank, &r->entries[i]);
    if (sk_left_open(rank) > 0)
      found += violated(rank, &r->entries[0], "descriptors are left");
  }
  return found;
}

int job_check_together(void) {
  int found = job_check(), first = -1;
  for (int rank = 0; rank < job.nranks && found == 0; rank++) {
    const job_rank *r = &job_ranks[rank];
    if (!sk_is_alive(rank))
      continue;
    first = first < 0 ? rank : first;
    if (!r->happy)
      found += violated(rank, &r->entries[r->count - 1], "is alone at the end");
    else if (r->comm != job_ranks[first].comm)
      found += violated(rank, &r->entries[r->count - 1], "is elsewhere at the end");
  }
  return found;
}
