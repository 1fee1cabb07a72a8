/* support_stage.c: plays one case of a shortage. */
#include "support_stage.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support_leaks.h"
#include "tests/proc/support_ranks.h"
#include "waits.h"

/* Whether there are leaks; only with AddressSanitizer. */
int __lsan_do_recoverable_leak_check(void) __attribute__((weak));

enum { CREATE_MS = 4000, UNHURRIED_MS = 20000, TIMEOUT_MS = 2000, LIMIT_S = 25, GROWTHS = 2 };

/* What a rank does, one after the other. */
typedef enum deed { CREATE, SUM, CHANGE } deed;
static const char *const deed_names[] = {"creates", "sums", "changes"};

/* Calls fail from one deed to another. */
static const struct {
  const char *name, *transport, *setting, *value;
  deed from, to;
} phases[] = {
    [CREATION] = {"creation", "tcp", NULL, NULL, CREATE, CREATE},
    [FIRST_SUM] = {"sum", "tcp", NULL, NULL, SUM, SUM},
    [SHRINK] = {"shrink", "tcp", NULL, NULL, CHANGE, CHANGE},
    [GROW] = {"grow", "tcp", NULL, NULL, CHANGE, CHANGE},
    [SHM] = {"shm", "shm", NULL, NULL, CREATE, SUM},
    [TLS] = {"tls", "tcp", "COLL_TLS", "1", CREATE, SUM},
    [MAC] = {"mac", "tcp", "COLL_DATA_CHECK", "mac", CREATE, SUM},
};

const char *phase_name(phase which) {
  return phases[which].name;
}

/* Waits until all ranks are here for the n-th time, or one is over. */
static void meet(stage *s, int n) {
  atomic_fetch_add(&s->arrived, 1);
  (void)WAIT_UNTIL(atomic_load(&s->arrived) >= n * RANKS || atomic_load(&s->over) > 0, LIMIT_S);
}

static bool is_newcomer(const stage *s, int rank) {
  return s->what.phase == GROW && rank == RANKS - 1;
}

/* The shortage begins, if it is this rank's. */
static void maybe_begin(const stage *s, int rank) {
  const shortage_case *c = &s->what;
  if (rank < c->victim || rank > c->victim + s->more)
    return;
  if (c->call == SHORTAGE_COUNT)
    shortage_begin_random((unsigned long long)c->nth, 60);
  else
    shortage_begin(c->call, c->nth, c->for_good, c->sys_errno);
}

static void maybe_end(stage *s, int rank) {
  int failed = shortage_end();
  if (rank != s->what.victim)
    return;
  s->ranks[rank].failed = failed;
  for (int i = 0; i < SHORTAGE_COUNT; i++)
    s->seen[i] = shortage_seen((shortage_call)i);
}

static coll_config make_config(const stage *s, coll_error *error) {
  coll_config config = COLL_CONFIG_INIT;
  config.transport = phases[s->what.phase].transport;
  config.create_timeout_ms = slow_ms(s->unhurried ? UNHURRIED_MS : CREATE_MS);
  config.timeout_ms = slow_ms(TIMEOUT_MS);
  config.error = error;
  return config;
}

/* Rank 0 waits until the newcomer knocks, if it still can. */
static void await_newcomer(stage *s, coll_comm *comm) {
  int count = 0;
  (void)WAIT_UNTIL(atomic_load(&s->open) < 0 || s->ranks[RANKS - 1].over ||
                       coll_comm_joiners(comm, &count) != COLL_OK || count > 0,
                   LIMIT_S);
}

static bool has_newcomer(coll_comm *comm) {
  int nranks = 0, origin = 0;
  coll_comm_nranks(comm, &nranks);
  coll_comm_origin_rank(comm, nranks - 1, &origin);
  return origin >= RANKS - 1;
}

/* A member grows as long as the newcomer is not in: if a growth had to begin anew without another
 * member, the newcomer waits for the next one. */
static coll_status grow(stage *s, int rank, coll_comm *comm, const coll_config *config) {
  coll_comm *from = comm, *child;
  coll_status status = COLL_OK;
  for (int n = 1; n <= GROWTHS && status == COLL_OK && (n == 1 || !has_newcomer(from)); n++) {
    if (rank == 0) {
      await_newcomer(s, from);
      atomic_store(&s->growth, s->ranks[RANKS - 1].over && n > 1 ? GROWTHS + 1 : n);
    } else {
      (void)WAIT_UNTIL(atomic_load(&s->growth) >= n, LIMIT_S);
    }
    if (atomic_load(&s->growth) > GROWTHS)
      break;
    child = NULL;
    status = coll_comm_grow(from, config, &child);
    if (from != comm)
      coll_comm_destroy(&from);
    from = child;
  }
  if (from != comm)
    coll_comm_destroy(&from);
  return status;
}

/* A member of a communicator of two lets the newcomer in. If that cannot be, it grows without. */
static coll_status let_in(stage *s, int rank, coll_comm *comm, const coll_config *config) {
  coll_status status = COLL_OK, grown;
  coll_error unused = COLL_ERROR_INIT;
  coll_config other = *config;
  if (rank == 0) {
    status = coll_comm_join_id(comm, &s->join_id);
    if (status != COLL_OK)
      coll_last_error(comm, config->error);
    atomic_store(&s->open, status == COLL_OK ? 1 : -1);
  }
  if (status != COLL_OK)
    other.error = &unused;
  grown = grow(s, rank, comm, &other);
  if (rank == 0)
    atomic_store(&s->growth, GROWTHS + 1);
  return status != COLL_OK ? status : grown;
}

/* The newcomer joins, if it can. */
static coll_status join_in(stage *s, const coll_config *config) {
  coll_comm *comm = NULL;
  (void)WAIT_UNTIL(atomic_load(&s->open) != 0, LIMIT_S);
  if (atomic_load(&s->open) < 0)
    return COLL_OK;
  coll_status status = coll_comm_join(&comm, &s->join_id, config);
  coll_comm_destroy(&comm);
  return status;
}

static coll_status operate(stage *s, int rank, deed now, coll_comm **comm, coll_error *error) {
  const coll_config config = make_config(s, error);
  const int members = s->what.phase == GROW ? RANKS - 1 : RANKS;
  int value = 1, sum = 0;
  coll_comm *child = NULL;
  coll_status status;
  if (is_newcomer(s, rank))
    return now == CHANGE ? join_in(s, &config) : COLL_OK;
  if (now == CREATE)
    return coll_comm_create(comm, &s->id, members, rank, &config);
  if (now == SUM) {
    status = coll_allreduce(&value, &sum, 1, COLL_INT32, COLL_SUM, *comm);
    if (status != COLL_OK)
      coll_last_error(*comm, error);
    return status == COLL_OK && sum != members ? COLL_ERR_INTERNAL : status;
  }
  if (s->what.phase == GROW)
    return let_in(s, rank, *comm, &config);
  status = coll_comm_shrink(*comm, &config, &child);
  coll_comm_destroy(&child);
  return status;
}

/* One rank, to the end of the phase of the shortage. */
static void take_part(stage *s, int rank) {
  uint8_t mac[32];
  coll_comm *comm = NULL;
  outcome *mine = &s->ranks[rank];
  const phase played = s->what.phase;
  mine->error = (coll_error)COLL_ERROR_INIT;
  if (phases[played].setting)
    setenv(phases[played].setting, phases[played].value, 1);
  HMAC(EVP_sha256(), "", 0, mac, 0, mac, NULL); /* what it allocates, it keeps */
  int before = count_fds();
  leaks_begin();
  if (rank == 0 && coll_unique_id(&s->id, NULL) != COLL_OK)
    abort();
  for (deed now = CREATE; now <= phases[played].to && mine->status == COLL_OK; now++) {
    meet(s, (int)now + 1);
    double begin = now_s();
    mine->deed = deed_names[now];
    if (now == phases[played].from)
      maybe_begin(s, rank);
    mine->status = operate(s, rank, now, &comm, &mine->error);
    mine->seconds = now_s() - begin;
  }
  maybe_end(s, rank);
  coll_comm_destroy(&comm);
  mine->leaked = leaks_end(mine->where, sizeof(mine->where));
  mine->fds = count_fds() - before;
  if (__lsan_do_recoverable_leak_check)
    mine->in_libs = __lsan_do_recoverable_leak_check() != 0;
  mine->over = true;
  atomic_fetch_add(&s->over, 1);
}

/* Whether an error names the victim. Nobody but the victim, which made the id, knows before they
 * have met that it is rank 0. */
static bool names(const coll_error *error, int victim) {
  return error->peer == victim || error->rank == victim ||
         (victim == 0 && strstr(error->message, "the process that made the id (pid "));
}

/* Whether a rank had no communicator because of the victim, and left those who had. */
static bool gave_up(const stage *s, int rank) {
  const outcome *o = &s->ranks[rank];
  return o->deed == deed_names[CREATE] && o->status != COLL_OK && names(&o->error, s->what.victim);
}

/* Whether OpenSSL may hide that it was a shortage: of several in one handshake, it may forget the
 * first, and then it looks as after an attack. */
static bool is_hidden(const shortage_case *c) {
  return c->phase == TLS && c->call == SHORTAGE_COUNT;
}

const char *judge(const stage *s, int rank) {
  const outcome *o = &s->ranks[rank];
  const int victim = s->what.victim;
  const bool changes = s->what.phase == SHRINK || s->what.phase == GROW;
  if (!o->over)
    return "hangs or crashed";
  if (o->fds > 0)
    return "leaks descriptors";
  if (o->leaked > 0 || o->in_libs)
    return "leaks memory";
  if (o->status == COLL_OK || (o->status == COLL_ERR_AUTH && is_hidden(&s->what)))
    return NULL;
  if (strlen(o->error.message) < 20)
    return "says nothing";
  /* A newcomer knows only rank 0, where it waits for a growth. */
  const bool waits = is_newcomer(s, rank) && rank != victim && o->error.peer == 0;
  if (o->error.peer != victim && o->error.peer >= 0 && !gave_up(s, o->error.peer) && !waits)
    return "blames an innocent rank";
  if (rank != victim && !names(&o->error, victim) && o->error.peer < 0)
    return "names nobody";
  if (rank == victim && o->status != COLL_ERR_SYSTEM && o->status != COLL_ERR_NO_MEMORY)
    return "does not speak of a shortage";
  /* Ranks that the one with the shortage could not reach are left out of a shrink. */
  if (s->ranks[victim].status == COLL_OK && !(changes && rank != victim))
    return "fails, but not the rank with the shortage";
  return NULL;
}

void run_ranks(stage *s) {
  pid_t pids[RANKS];
  for (int r = 0; r < RANKS; r++)
    if ((pids[r] = fork()) == 0) {
      alarm((unsigned)slow_s(LIMIT_S));
      take_part(s, r);
      _exit(0);
    }
  for (int r = 0; r < RANKS; r++)
    waitpid(pids[r], NULL, 0);
}

/* Prints what became of a rank. */
static void print_outcome(const stage *s, int rank, const char *wrong) {
  const shortage_case *c = &s->what;
  const outcome *o = &s->ranks[rank];
  fprintf(stderr, "TEST_SHORTAGE=%s,%d,%s,%d,%s: rank %d %s (%s, %s, %.2f s, rank %d, peer %d: %s)",
          phase_name(c->phase), c->victim,
          c->call == SHORTAGE_COUNT ? "any" : shortage_name(c->call), c->nth,
          c->for_good ? "always" : "once", rank, wrong, o->deed, coll_status_name(o->status),
          o->seconds, o->error.rank, o->error.peer, o->error.message);
  fprintf(stderr, "%s%s\n", o->leaked ? ", made at" : "", o->where);
}

int play(const shortage_case *what, bool aloud) {
  stage *s = shared_memory(sizeof(*s));
  s->what = *what;
  run_ranks(s);
  int result = s->ranks[what->victim].failed;
  for (int r = 0; r < RANKS; r++) {
    const char *wrong = judge(s, r);
    if (wrong || aloud)
      print_outcome(s, r, wrong ? wrong : "is right");
    if (wrong)
      result = -1;
  }
  return result;
}

int read_case(const char *text, shortage_case *what) {
  char copy[100], *rest = NULL;
  int words = 0;
  *what = (shortage_case){PHASES, RANKS, SHORTAGE_COUNT, 0, false, 0};
  snprintf(copy, sizeof(copy), "%s", text);
  for (char *word = strtok_r(copy, ",", &rest); word; word = strtok_r(NULL, ",", &rest), words++) {
    if (words == 0)
      for (int i = 0; i < PHASES; i++)
        what->phase = strcmp(word, phase_name((phase)i)) == 0 ? (phase)i : what->phase;
    else if (words == 1)
      what->victim = atoi(word);
    else if (words == 2)
      for (int i = 0; i < SHORTAGE_COUNT; i++)
        what->call =
            strcmp(word, shortage_name((shortage_call)i)) == 0 ? (shortage_call)i : what->call;
    else if (words == 3)
      what->nth = atoi(word);
    else
      what->for_good = strcmp(word, "always") == 0;
  }
  const bool is_known = what->phase < PHASES && (words < 2 || what->victim < RANKS);
  return is_known ? words : 0;
}
