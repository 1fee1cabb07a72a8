/*
 * twotrees.c: two trees over the same ranks, and the time that they take at once. The time follows
 * the rules of the predictor (cost/predict.c), for one message on each edge.
 */
#include "libcoll/algo/twotrees.h"

#include <math.h>
#include <stdlib.h>

#include "libcoll/base/assert.h"
#include "libcoll/cost/host_links.h"

/*
 * Rank r's place in tree A. Below a rank whose lowest set bit is b lie the ranks within b - 1 of it
 * on both sides; where n cuts off the upper half, the biggest remaining subtree moves up.
 */
static void tree_a(const colli_tree *tree, int r, colli_node *found) {
  int n = tree->nranks, b = 1;
  *found = (colli_node){.parent = COLLI_NOBODY};
  while (b < n && !(r & b))
    b <<= 1;
  for (int half = b / 2; half > 0 && found->children == 0; half /= 2)
    if (r + half < n)
      found->child[found->children++] = r + half;
  if (r == 0)
    return;
  if (b > 1) /* this half is complete, so no other subtree is higher */
    found->child[found->children++] = r - b / 2;
  found->parent = (r - b) | (b << 1);
  if (found->parent >= n)
    found->parent = r - b;
}

/* The rank that takes rank r's place when tree A becomes tree B (and back, with back set). */
static int moved(int n, int r, bool back) {
  if (n % 2 == 0)
    return n - 1 - r;
  return (r + (back ? n - 1 : 1)) % n;
}

/* Rank r's place in tree B. */
static void tree_b(const colli_tree *tree, int r, colli_node *found) {
  int n = tree->nranks;
  tree_a(tree, moved(n, r, true), found);
  if (found->parent != COLLI_NOBODY)
    found->parent = moved(n, found->parent, false);
  for (int i = 0; i < found->children; i++)
    found->child[i] = moved(n, found->child[i], false);
}

void (*const colli_twotrees[2])(const colli_tree *, int, colli_node *) = {tree_a, tree_b};

/* ---- the time -------------------------------------------------------------------------------- */

/* A rank's way through one tree: it reduces the children's messages one after the other and sends
 * the result up; then it receives the vector and sends it down, to the last child first. */
typedef struct way {
  int parent, children, child[2];
  int number; /* as a child of its parent */
  int step;
  bool idle;         /* waits for a message that is not sent yet */
  double arrives[3]; /* from each child, then from the parent; infinite: not sent yet */
  double at;         /* when its last step ended */
} way;

/* A rank. */
typedef struct node_time {
  double busy; /* until when it works */
  double out;  /* until when its way out is taken */
} node_time;

/* A way that is ready to continue. `since`: the one that has waited longest goes first. */
typedef struct call {
  double at, since;
  int way; /* 2 * rank + tree */
} call;

typedef struct race {
  way *ways;
  node_time *ranks;
  call *heap; /* the first one to be served on top */
  size_t calls;
  const colli_shape *shape;
  const colli_model *model;
  double step, fold, bytes;
  double end;
} race;

/* Whether call a comes before call b. */
static bool is_earlier(const call *a, const call *b) {
  if (a->at != b->at)
    return a->at < b->at;
  return a->since != b->since ? a->since < b->since : a->way < b->way;
}

/* Adds a call to the heap. */
static void heap_push(race *r, call c) {
  size_t i = r->calls++;
  for (; i > 0 && is_earlier(&c, &r->heap[(i - 1) / 2]); i = (i - 1) / 2)
    r->heap[i] = r->heap[(i - 1) / 2];
  r->heap[i] = c;
}

/* Takes the earliest call off the heap. */
static call heap_pop(race *r) {
  COLLI_ASSERT(r->calls > 0);
  call top = r->heap[0], last = r->heap[--r->calls];
  size_t i = 0;
  for (size_t child; (child = 2 * i + 1) < r->calls; i = child) {
    if (child + 1 < r->calls && is_earlier(&r->heap[child + 1], &r->heap[child]))
      child++;
    if (!is_earlier(&r->heap[child], &last))
      break;
    r->heap[i] = r->heap[child];
  }
  r->heap[i] = last;
  return top;
}

/* What a step of a way does. */
typedef struct action {
  int receives; /* which of `arrives`, or -1 */
  int sends;    /* number of the child, the number of children for the parent, or -1 */
  bool folds;
  bool none; /* the way has ended */
} action;

static action action_of(const way *w) {
  COLLI_ASSERT(w->step <= 2 * (w->children ? w->children : 1));
  int c = w->children, down = w->step - (c ? c : 1);
  bool root = w->parent == COLLI_NOBODY;
  if (down < 0 && c == 0)
    return (action){.receives = -1, .sends = 0};
  if (down < 0)
    return (action){w->step, w->step == c - 1 && !root ? c : -1, true, false};
  int receives = down == 0 && !root ? c : -1;
  return (action){receives, c - 1 - down, false, down > 0 ? down >= c : root && c == 0};
}

/* Schedules a way for when it can continue, if that is known. */
static void call_on(race *r, int number) {
  way *w = &r->ways[number];
  action d = action_of(w);
  double ready = d.receives < 0 ? w->at : fmax(w->at, w->arrives[d.receives]);
  w->idle = ready == INFINITY;
  if (!d.none && !w->idle)
    heap_push(r, (call){ready, ready, number});
}

/* A step of a way has ended at `at`: its message leaves. */
static void transmit(race *r, int number, int to, double at) {
  way *w = &r->ways[number];
  bool up = to == w->children;
  COLLI_ASSERT(to >= 0 && to <= w->children && (!up || w->parent != COLLI_NOBODY));
  const int peer = up ? w->parent : w->child[to], target = 2 * peer + number % 2;
  const colli_pair_cost link = colli_model_pair(r->model, r->shape, number / 2, peer);
  node_time *rank = &r->ranks[number / 2];
  way *other = &r->ways[target];
  rank->out = fmax(at, rank->out) + r->bytes * link.beta_ns_per_byte;
  other->arrives[up ? w->number : other->children] = rank->out + link.alpha_ns;
  if (other->idle)
    call_on(r, target);
}

/* Serves all ways to the end. */
static void serve_all(race *r) {
  while (r->calls > 0) {
    call c = heap_pop(r);
    way *w = &r->ways[c.way];
    node_time *rank = &r->ranks[c.way / 2];
    action d = action_of(w);
    if (rank->busy > c.at) {
      c.at = rank->busy;
      heap_push(r, c);
      continue;
    }
    w->at = rank->busy = c.at + (d.folds ? r->fold : r->step);
    r->end = fmax(r->end, w->at);
    w->step++;
    if (d.sends >= 0)
      transmit(r, c.way, d.sends, w->at);
    call_on(r, c.way);
  }
}

/* Places all ranks in one tree. */
static void place_ranks(race *r, const colli_tree *tree, int which) {
  for (int rank = 0; rank < tree->nranks; rank++) {
    colli_node node;
    tree->place(tree, rank, &node);
    way *w = &r->ways[2 * rank + which];
    COLLI_ASSERT_RANK(node.children <= 2, rank);
    w->parent = node.parent;
    w->children = node.children;
    for (int i = 0; i < node.children; i++) {
      w->child[i] = node.child[i];
      r->ways[2 * node.child[i] + which].number = i;
    }
    for (int i = 0; i < 3; i++)
      w->arrives[i] = INFINITY;
  }
}

/* How long a slice of each tree takes over all links out of a rank, of the rank that takes longest;
 * *shared: over the link of the busiest host. */
static double slowest_out(const race *r, double *shared) {
  double most = 0;
  colli_host_load hosts = colli_host_load_begin(r->model, r->shape);
  for (int rank = 0; rank < r->shape->nranks; rank++) {
    double out = 0;
    for (const way *w = &r->ways[2 * rank]; w < &r->ways[2 * rank + 2]; w++)
      for (int to = w->parent == COLLI_NOBODY ? 1 : 0; to <= w->children; to++) {
        const int peer = to == 0 ? w->parent : w->child[to - 1];
        out += r->bytes * colli_model_pair(r->model, r->shape, rank, peer).beta_ns_per_byte;
        colli_host_load_add(&hosts, rank, peer, r->bytes);
      }
    most = fmax(most, out);
  }
  *shared = colli_host_load_end(&hosts);
  return most;
}

/* When the last rank has finished both trees. */
double colli_twotrees_time(const colli_shape *shape, const colli_tree *a, const colli_tree *b,
                           const colli_terms *terms, const colli_model *model, double *sending) {
  size_t n = (size_t)a->nranks;
  COLLI_ASSERT(a->nranks == b->nranks);
  race r = {.ways = calloc(2 * n, sizeof(way)),
            .ranks = calloc(n, sizeof(node_time)),
            .heap = calloc(2 * n + 1, sizeof(call)),
            .shape = shape,
            .model = model,
            .step = model->step_ns,
            .fold = terms->work_reduce,
            .bytes = terms->bytes / terms->slices};
  bool made = r.ways && r.ranks && r.heap;
  double shared = 0;
  if (made) {
    place_ranks(&r, a, 0);
    place_ranks(&r, b, 1);
    const double out = slowest_out(&r, &shared);
    *sending = terms->slices * fmax(out, shared);
    for (int number = 0; number < 2 * a->nranks; number++)
      call_on(&r, number);
    serve_all(&r);
  }
  free(r.ways);
  free(r.ranks);
  free(r.heap);
  return made ? fmax(r.end, shared) : INFINITY;
}

/* Beta of the link between two ranks. */
static double beta_of(const colli_shape *shape, int a, int b, const colli_model *model) {
  return colli_model_pair(model, shape, a, b).beta_ns_per_byte;
}

/* Where a rank sends. */
colli_twotrees_load colli_twotrees_load_of(const colli_shape *shape, int rank,
                                           const colli_model *model) {
  const colli_tree tree = {.nranks = shape->nranks};
  colli_twotrees_load load = {0, 0};
  for (int which = 0; which < 2; which++) {
    colli_node node;
    colli_twotrees[which](&tree, rank, &node);
    double beta = node.parent == COLLI_NOBODY ? 0 : beta_of(shape, rank, node.parent, model);
    for (int i = 0; i < node.children; i++)
      beta += beta_of(shape, rank, node.child[i], model);
    load.both += beta;
    load.one = fmax(load.one, beta);
  }
  return load;
}
