/*
 * sockets.c: the all-reduce of a program of plain TCP sockets that does nothing else: the limit
 * between hosts whose links are as fast as the machine.
 *
 *   sockets --rank R --addresses A,B,... --port P --congestion CONTROL|usual --groups G OPERATION
 *           BYTES ...
 *
 * Rank r is at the r-th address and has port P + r. Ranks r, r + G, ... all-reduce with each other,
 * each group at the same time as the others. No headers, checks or slots: bytes go from the
 * vector into a socket, and from a socket into the vector, or through a piece that stays in the
 * cache, to be added. For each size, four algorithms are tried with three ways to wait, and the
 * fastest is measured: "setting BYTES ALGORITHM, WAIT" says which it was.
 */
#define _GNU_SOURCE
#include "moves.h"
#include "peer.h"

#define TRY_S      0.02 /* at least two operations */
#define TRIES_MOST 1000
#define SLOW_S     0.1 /* of an operation between two ranks: a line decides, whatever they do */

typedef enum algorithm { DOUBLING, HALVING, RING, DIRECT, ALGORITHMS } algorithm;

/* What a rank runs. */
typedef struct program {
  mesh all;
  mesh mesh; /* of its group */
  peer_library library;
  algorithm how;
  size_t tried; /* floats for which how and mesh.wait are the fastest; 0: nothing was tried */
  float *spare; /* as long as the vector */
} program;

/* Where a rank's block begins. */
static size_t edge(const peer_cell *cell, int rank) {
  return cell->count * (size_t)rank / (size_t)cell->nranks;
}

/* Sends the floats [a, b) of a vector to a rank. */
static move sending(const mesh *m, int to, const float *from, size_t a, size_t b) {
  return (move){
      .to = m->sockets[to], .out = (const char *)(from + a), .out_left = (b - a) * sizeof(float)};
}

/* Also receives [a, b) of a vector from a rank. */
static move receiving(move sent, const mesh *m, int from, float *into, size_t a, size_t b) {
  sent.from = m->sockets[from];
  sent.in = (char *)(into + a);
  sent.in_left = (b - a) * sizeof(float);
  return sent;
}

/* Also receives [a, b) from a rank, and adds it to that part of `own`. */
static move adding(move sent, const mesh *m, int from, const float *own, float *sum, size_t a,
                   size_t b) {
  sent = receiving(sent, m, from, NULL, 0, b - a);
  sent.in = NULL;
  sent.own = own + a;
  sent.sum = sum + a;
  return sent;
}

/* Whole vectors, between powers of two. */
static void run_doubling(program *p, const peer_cell *cell) {
  const mesh *m = &p->mesh;
  const float *have = cell->send;
  int rounds = __builtin_ctz((unsigned)m->nranks);
  for (int far = 1; far < m->nranks; far *= 2, rounds--) {
    float *next = rounds % 2 ? cell->recv : p->spare; /* the last one gives the result */
    move both = sending(m, m->rank ^ far, have, 0, cell->count);
    both = adding(both, m, m->rank ^ far, have, next, 0, cell->count);
    run_moves(&p->mesh, &both, 1);
    have = next;
  }
}

/* Halves of halves, between powers of two, and the same way back. */
static void run_halving(program *p, const peer_cell *cell) {
  const mesh *m = &p->mesh;
  const float *have = cell->send;
  size_t low = 0, high = cell->count, lows[16], highs[16];
  int depth = 0;
  for (int far = m->nranks / 2; far > 0; far /= 2, depth++) {
    const size_t middle = low + (high - low) / 2;
    const bool upper = m->rank & far;
    lows[depth] = low;
    highs[depth] = high;
    move both = sending(m, m->rank ^ far, have, upper ? low : middle, upper ? middle : high);
    low = upper ? middle : low;
    high = upper ? high : middle;
    both = adding(both, m, m->rank ^ far, have, cell->recv, low, high);
    run_moves(&p->mesh, &both, 1);
    have = cell->recv;
  }
  for (int far = 1; depth-- > 0; far *= 2) {
    const bool upper = m->rank & far;
    move both = sending(m, m->rank ^ far, cell->recv, low, high);
    both = receiving(both, m, m->rank ^ far, cell->recv, upper ? lows[depth] : high,
                     upper ? low : highs[depth]);
    low = lows[depth];
    high = highs[depth];
    run_moves(&p->mesh, &both, 1);
  }
}

static void run_ring(program *p, const peer_cell *cell) {
  const mesh *m = &p->mesh;
  const int n = m->nranks, next = (m->rank + 1) % n, last = (m->rank + n - 1) % n;
  for (int step = 0; step < 2 * (n - 1); step++) {
    const int out = (m->rank - step + 2 * n) % n, in = (out + n - 1) % n;
    move both =
        sending(m, next, step ? cell->recv : cell->send, edge(cell, out), edge(cell, out + 1));
    both = step < n - 1
               ? adding(both, m, last, cell->send, cell->recv, edge(cell, in), edge(cell, in + 1))
               : receiving(both, m, last, cell->recv, edge(cell, in), edge(cell, in + 1));
    run_moves(&p->mesh, &both, 1);
  }
}

/* Each sends each its block, and then all the sum of its own. */
static void run_direct(program *p, const peer_cell *cell) {
  const mesh *m = &p->mesh;
  const size_t begin = edge(cell, m->rank), end = edge(cell, m->rank + 1), block = end - begin;
  move moves[MOST_RANKS];
  const int others = m->nranks - 1;
  for (int i = 0; i < others; i++) {
    const int peer = (m->rank + 1 + i) % m->nranks;
    moves[i] = sending(m, peer, cell->send, edge(cell, peer), edge(cell, peer + 1));
    moves[i] = receiving(moves[i], m, peer, p->spare + (size_t)i * block, 0, block);
  }
  run_moves(&p->mesh, moves, others);
  for (size_t k = 0; k < block; k++) {
    float sum = cell->send[begin + k];
    for (int i = 0; i < others; i++)
      sum += p->spare[(size_t)i * block + k];
    cell->recv[begin + k] = sum;
  }
  for (int i = 0; i < others; i++) {
    const int peer = (m->rank + 1 + i) % m->nranks;
    moves[i] = sending(m, peer, cell->recv, begin, end);
    moves[i] = receiving(moves[i], m, peer, cell->recv, edge(cell, peer), edge(cell, peer + 1));
  }
  run_moves(&p->mesh, moves, others);
}

static void run(const peer_cell *cell, int root, void *context) {
  static void (*const runs[ALGORITHMS])(program *, const peer_cell *) = {
      [DOUBLING] = run_doubling, [HALVING] = run_halving, [RING] = run_ring, [DIRECT] = run_direct};
  program *p = context;
  (void)root;
  runs[p->how](p, cell);
}

/* The largest of all ranks' numbers. */
static double maximum(double mine, void *context) {
  program *p = context;
  mesh with_all = p->all, *m = &with_all;
  m->wait = p->mesh.wait;
  double all[MOST_RANKS];
  move moves[MOST_RANKS];
  for (int i = 0; i < m->nranks - 1; i++) {
    const int peer = (m->rank + 1 + i) % m->nranks;
    moves[i] = (move){.to = m->sockets[peer],
                      .from = m->sockets[peer],
                      .out = (const char *)&mine,
                      .out_left = sizeof(mine),
                      .in = (char *)&all[i],
                      .in_left = sizeof(mine)};
  }
  run_moves(m, moves, m->nranks - 1);
  double most = mine;
  for (int i = 0; i < m->nranks - 1; i++)
    most = all[i] > most ? all[i] : most;
  return most;
}

static void barrier(void *context) {
  maximum(0, context);
}

/* Seconds of an operation as it is set now. */
static double try_setting(const peer_library *library, peer_cell *cell) {
  const int times = peer_fitting(peer_time(cell, library, 1), TRY_S, TRIES_MOST);
  return peer_time(cell, library, times) / times;
}

/* Finds the fastest setting for a size; all ranks see the same times. */
static void try_all(program *p, peer_cell cell) {
  const bool pairs = (cell.nranks & (cell.nranks - 1)) == 0;
  const bool crowded = p->all.nranks > sysconf(_SC_NPROCESSORS_ONLN);
  double least = 0;
  int best = 0;
  free(p->spare);
  p->spare = malloc((cell.count + MOST_RANKS) * sizeof(float));
  if (!p->spare)
    die("malloc");
  for (int setting = pairs ? 0 : RING * WAITS; setting < ALGORITHMS * WAITS; setting++) {
    p->how = (algorithm)(setting / WAITS);
    p->mesh.wait = (wait_kind)(setting % WAITS);
    if (crowded && p->mesh.wait == SPINS)
      continue;
    const double seconds = try_setting(&p->library, &cell);
    if (least == 0 || seconds < least) {
      least = seconds;
      best = setting;
    }
    if (cell.nranks == 2 && seconds > SLOW_S) {
      best = DOUBLING * WAITS + SLEEPS;
      break;
    }
  }
  p->how = (algorithm)(best / WAITS);
  p->mesh.wait = (wait_kind)(best % WAITS);
  p->tried = cell.count;
}

/* Prepares for a size. The time of the tries does not count. */
static void open_cell(const peer_cell *cell, void *context) {
  static const char *const hows[] = {"doubling", "halving", "ring", "direct"};
  static const char *const waits[] = {"spins", "yields", "sleeps"};
  program *p = context;
  if (p->tried != cell->count)
    try_all(p, *cell);
  if (cell->rank == 0)
    printf("setting %zu %s, %s\n", cell->count * sizeof(float), hows[p->how], waits[p->mesh.wait]);
}

static const char *lacks(peer_what what, void *context) {
  (void)context;
  return what == PEER_ALLREDUCE ? NULL : "it only all-reduces";
}

/* The connections inside a rank's group: ranks r, r + groups, ... */
static mesh group_of(const mesh *all, int groups) {
  mesh group = *all;
  if (groups < 1 || all->nranks % groups != 0)
    die_of(EINVAL, "ranks cannot be in so many groups");
  group.rank = all->rank / groups;
  group.nranks = all->nranks / groups;
  for (int i = 0; i < group.nranks; i++)
    group.sockets[i] = all->sockets[all->rank % groups + i * groups];
  return group;
}

int main(int argc, char **argv) {
  if (argc < 12 || strcmp(argv[1], "--rank") != 0 || strcmp(argv[3], "--addresses") != 0 ||
      strcmp(argv[5], "--port") != 0 || strcmp(argv[7], "--congestion") != 0 ||
      strcmp(argv[9], "--groups") != 0) {
    fprintf(stderr,
            "usage: sockets --rank R --addresses A,B,... --port P --congestion CONTROL|usual "
            "--groups G OPERATION BYTES ...\n");
    return 2;
  }
  static program p;
  mesh_connect(&p.all, atoi(argv[2]), argv[4], atoi(argv[6]),
               strcmp(argv[8], "usual") == 0 ? NULL : argv[8]);
  p.mesh = group_of(&p.all, atoi(argv[10]));
  p.library = (peer_library){.name = "sockets",
                             .context = &p,
                             .rank = p.mesh.rank,
                             .nranks = p.mesh.nranks,
                             .max_count = INT32_MAX,
                             .lacks = lacks,
                             .open = open_cell,
                             .run = run,
                             .barrier = barrier,
                             .maximum = maximum};
  argv[10] = argv[0];
  return peer_main(&p.library, argc - 10, argv + 10);
}
