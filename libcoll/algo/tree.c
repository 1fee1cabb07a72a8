/* tree.c: algorithms whose messages go up and down a rooted tree. */
#include "libcoll/algo/tree.h"

#include "libcoll/base/assert.h"
#include "libcoll/cost/host_links.h"
#include "libcoll/sched/order.h"

/* The later of two times. */
static double later(double a, double b) {
  return a > b ? a : b;
}

/* ---- places ---------------------------------------------------------------------------------- */

static void add_child(colli_node *node, int rank, bool left) {
  COLLI_ASSERT(node->children < COLLI_CHILDREN_MAX && rank >= 0);
  node->child[node->children] = rank;
  node->left[node->children++] = left;
}

/* k-nomial tree. */
void colli_tree_knomial(const colli_tree *tree, int rank, colli_node *node) {
  COLLI_ASSERT_RANK(tree->radix > 1 && rank >= 0 && rank < tree->nranks, rank);
  int n = tree->nranks, at = (rank - tree->root + n) % n;
  long span = 1; /* the subtree of `at` holds the distances below at + span */
  *node = (colli_node){.parent = COLLI_NOBODY};
  for (; span < n && at / span % tree->radix == 0; span *= tree->radix)
    for (int digit = 1; digit < tree->radix && at + digit * span < n; digit++)
      add_child(node, (int)((tree->root + at + digit * span) % n), false);
  if (at > 0)
    node->parent = (tree->root + (int)(at - at / span % tree->radix * span)) % n;
}

/* The place value of the lowest digit of `at` that is not 0; n or more for the root. */
static long span_of(int n, int at, int radix) {
  COLLI_ASSERT(at >= 0 && at < n && radix > 1);
  long span = 1;
  while (span < n && at / span % radix == 0)
    span *= radix;
  return span;
}

/* How many ranks are in a subtree. */
int colli_knomial_size(int n, int at, int radix) {
  long span = span_of(n, at, radix);
  return span < n - at ? (int)span : n - at;
}

/* The parent of a rank. */
int colli_knomial_parent(int n, int at, int radix) {
  long span = span_of(n, at, radix);
  return (int)(at - at / span % radix * span);
}

/* The child of a rank whose subtree contains another rank. */
int colli_knomial_towards(int at, int below, int radix) {
  COLLI_ASSERT(below > at && radix > 1);
  int span = 1;
  while ((below - at) / span >= radix)
    span *= radix;
  return at + (below - at) / span * span;
}

/* The rank that represents a seat: the root if it has this seat, else the second one. */
static int speaker(const colli_tree *tree, int seat) {
  int n = tree->nranks, first = colli_order_seat_rank(n, seat);
  if (colli_order_seat(n, tree->root) == seat)
    return tree->root;
  return seat < n - colli_order_seats(n) ? first + 1 : first;
}

/* Binomial on the seats of order.h. */
void colli_tree_seats(const colli_tree *tree, int rank, colli_node *node) {
  int n = tree->nranks, seats = colli_order_seats(n), seat = colli_order_seat(n, rank);
  int spoken = speaker(tree, seat), first = colli_order_seat_rank(n, seat);
  *node = (colli_node){.parent = COLLI_NOBODY};
  if (spoken != rank) {
    node->parent = spoken;
    return;
  }
  if (seat < n - seats)
    add_child(node, rank == first ? first + 1 : first, rank != first);
  int at = seat ^ colli_order_seat(n, tree->root), span = 1;
  for (; span < seats && !(at & span); span *= 2)
    add_child(node, speaker(tree, seat ^ span), seat & span);
  if (at)
    node->parent = speaker(tree, seat ^ span);
}

/* Binary tree. */
void colli_tree_binary(const colli_tree *tree, int rank, colli_node *node) {
  int n = tree->nranks, at = (rank - tree->root + n) % n;
  *node = (colli_node){.parent = COLLI_NOBODY};
  /* The second child's subtree is never the higher one. */
  for (int child = 2 * at + 2; child > 2 * at; child--)
    if (child < n)
      add_child(node, (tree->root + child) % n, false);
  if (at > 0)
    node->parent = (tree->root + (at - 1) / 2) % n;
}

/* ---- steps ----------------------------------------------------------------------------------- */

/* Emits the way up. */
int colli_tree_up(colli_builder *builder, const colli_node *node, int lane, int chunk,
                  colli_buf from, colli_buf kept) {
  COLLI_ASSERT(node->children > 0 || node->parent != COLLI_NOBODY);
  colli_way way = {COLLI_NOBODY, node->parent, from, COLLI_OUTPUT};
  bool root = node->parent == COLLI_NOBODY;
  if (node->children == 0)
    return colli_emit(builder, lane, COLLI_SEND, way, chunk);
  for (int i = 0; i < node->children; i++) {
    bool last = i == node->children - 1;
    unsigned bits = COLLI_RECV | COLLI_FOLD | (node->left[i] ? COLLI_MSG_LEFT : 0);
    way.from = node->child[i];
    way.to = last ? node->parent : COLLI_NOBODY;
    way.dst = root ? COLLI_OUTPUT : kept;
    if (last)
      bits |= root ? COLLI_FINAL | COLLI_STORE : COLLI_SEND;
    int step = colli_emit(builder, lane, bits | (last ? 0 : COLLI_STORE), way, chunk);
    way.src = way.dst;
    if (last)
      return step;
  }
  return -1;
}

/* Emits the way down. */
int colli_tree_down(colli_builder *builder, const colli_node *node, int lane, int chunk,
                    colli_buf from) {
  bool root = node->parent == COLLI_NOBODY;
  unsigned arrive = root ? 0 : COLLI_RECV | COLLI_STORE;
  if (root && from == COLLI_INPUT)
    arrive = COLLI_STORE;
  int first = -1;
  for (int i = node->children - 1; i >= 0; i--) {
    colli_way way = {first < 0 ? node->parent : COLLI_NOBODY, node->child[i],
                     root ? from : COLLI_OUTPUT, COLLI_OUTPUT};
    int step = colli_emit(builder, lane, (first < 0 ? arrive : 0) | COLLI_SEND, way, chunk);
    first = first < 0 ? step : first;
  }
  if (first >= 0)
    return first;
  return colli_emit(builder, lane, arrive,
                    (colli_way){node->parent, COLLI_NOBODY, from, COLLI_OUTPUT}, chunk);
}

/* The schedule of going up, down, or both ways. */
coll_status colli_tree_emit(const colli_shape *shape, colli_tree tree, unsigned ways,
                            colli_sched **sched) {
  colli_node node;
  tree.nranks = shape->nranks;
  tree.root = shape->root;
  COLLI_ASSERT_RANK(tree.root >= 0 && tree.root < tree.nranks, shape->rank);
  tree.place(&tree, shape->rank, &node);
  COLLI_ASSERT_RANK((node.parent == COLLI_NOBODY) == (shape->rank == tree.root), shape->rank);
  bool both = (ways & COLLI_TREE_UP) && (ways & COLLI_TREE_DOWN), lanes = ways & COLLI_TREE_LANES;
  bool keeps = !both && (ways & COLLI_TREE_UP) && node.parent != COLLI_NOBODY && node.children > 1;
  colli_builder *builder = colli_builder_create(shape, 1, keeps, lanes ? 2 : 1);
  if (!builder)
    return COLL_ERR_NO_MEMORY;
  if (shape->nranks == 1) {
    colli_emit_alone(builder, shape->coll, 1);
    return colli_builder_finish(builder, sched);
  }
  int up = -1, down = -1;
  if (ways & COLLI_TREE_UP)
    up = colli_tree_up(builder, &node, 0, 0, COLLI_INPUT, both ? COLLI_OUTPUT : COLLI_SCRATCH);
  if (ways & COLLI_TREE_DOWN)
    down = colli_tree_down(builder, &node, lanes, 0, both ? COLLI_OUTPUT : COLLI_INPUT);
  COLLI_ASSERT_RANK(!lanes || (up >= 0 && down >= 0), shape->rank);
  if (lanes)
    colli_builder_dep(builder, down, up);
  return colli_builder_finish(builder, sched);
}

/* ---- cost ------------------------------------------------------------------------------------ */

typedef struct cost {
  const colli_tree *tree;
  const colli_shape *shape;
  const colli_model *model;
  colli_timeline fresh; /* a rank that has not begun */
  double end;           /* of the last rank */
  double busiest;       /* what a pass takes of the rank that does most */
  colli_work all;       /* of all ranks together, in one pass */
} cost;

/* What a rank sends next goes to a peer. */
static void aim_at(const cost *c, colli_timeline *at, int rank, int peer) {
  if (c->shape->ngroups > 1)
    colli_timeline_aim(at, colli_model_pair(c->model, c->shape, rank, peer));
}

/* A rank's work in one pass: with children to reduce, and messages to send. */
static void note_work(cost *c, double folds, double moves) {
  const colli_timeline *t = &c->fresh;
  c->busiest = later(c->busiest, t->slices * (folds * t->fold + moves * t->step));
}

/* Counts a chunk that a rank receives. */
static void note_receive(cost *c, const colli_timeline *at, colli_flight in, bool folds) {
  c->all.steps++;
  c->all.received++;
  c->all.waits += in.first > at->now;
  c->all.reduced += folds;
}

/* The way up of a subtree: when its result reaches the parent. Ends at the root. */
static colli_flight go_up(cost *c, int rank) {
  colli_node node;
  colli_timeline at = c->fresh;
  c->tree->place(c->tree, rank, &node);
  if (node.parent != COLLI_NOBODY)
    aim_at(c, &at, rank, node.parent);
  if (node.children == 0) {
    c->all.steps++;
    return colli_timeline_send(&at);
  }
  for (int i = 0; i < node.children - 1; i++) {
    colli_flight in = go_up(c, node.child[i]);
    note_receive(c, &at, in, true);
    colli_timeline_fold(&at, in);
  }
  colli_flight in = go_up(c, node.child[node.children - 1]), out = in;
  note_receive(c, &at, in, true);
  if (node.parent == COLLI_NOBODY)
    colli_timeline_fold(&at, in);
  else
    out = colli_timeline_fold_forward(&at, in);
  c->end = later(c->end, at.now);
  return out;
}

/* The way down of a subtree whose root gets the vector at `in`; the tree's root has it at `now`. */
static void go_down(cost *c, int rank, colli_flight in, double now) {
  colli_node node;
  colli_timeline at = c->fresh;
  at.now = at.out = now;
  c->tree->place(c->tree, rank, &node);
  c->all.steps += node.children;
  if (node.parent != COLLI_NOBODY) {
    note_receive(c, &at, in, false);
    c->all.steps -= node.children > 0; /* the first sending is part of it */
  }
  if (node.children == 0)
    colli_timeline_receive(&at, in);
  for (int i = node.children - 1; i >= 0; i--) {
    bool first = i == node.children - 1 && node.parent != COLLI_NOBODY;
    aim_at(c, &at, rank, node.child[i]);
    go_down(c, node.child[i], first ? colli_timeline_forward(&at, in) : colli_timeline_send(&at),
            0);
  }
  c->end = later(c->end, at.now);
}

/* How long links are occupied in a pass: the busiest rank's own, and the busiest host's, by what
 * goes up, what goes down, and both. */
typedef struct occupied {
  double own, up, down, both;
} occupied;

/* Adds what a message takes on its sender's own way out, and on the links of hosts. */
static void add_message(const cost *c, int from, int to, double *own, colli_host_load *way,
                        colli_host_load *both) {
  const double bytes = c->fresh.slices * c->fresh.bytes;
  *own += bytes * colli_model_pair(c->model, c->shape, from, to).beta_ns_per_byte;
  colli_host_load_add(way, from, to, bytes);
  colli_host_load_add(both, from, to, bytes);
}

/* That is of all messages. */
static occupied links_occupied(const cost *c, unsigned ways) {
  occupied most = {0, 0, 0, 0};
  colli_host_load up = colli_host_load_begin(c->model, c->shape),
                  down = colli_host_load_begin(c->model, c->shape),
                  both = colli_host_load_begin(c->model, c->shape);
  for (int rank = 0; rank < c->shape->nranks; rank++) {
    colli_node node;
    double own = 0;
    c->tree->place(c->tree, rank, &node);
    if ((ways & COLLI_TREE_UP) && node.parent != COLLI_NOBODY)
      add_message(c, rank, node.parent, &own, &up, &both);
    for (int i = 0; (ways & COLLI_TREE_DOWN) && i < node.children; i++)
      add_message(c, rank, node.child[i], &own, &down, &both);
    most.own = later(most.own, own);
  }
  most.up = colli_host_load_end(&up);
  most.down = colli_host_load_end(&down);
  most.both = colli_host_load_end(&both);
  return most;
}

/* The pass time of the busiest rank: by its work, the root or its highest child. */
static void note_busiest(cost *c, unsigned ways) {
  colli_node root, child;
  const bool up = ways & COLLI_TREE_UP, down = ways & COLLI_TREE_DOWN;
  c->tree->place(c->tree, c->tree->root, &root);
  if (root.children == 0)
    return;
  c->tree->place(c->tree, root.child[root.children - 1], &child);
  note_work(c, up ? root.children : 0, down ? root.children : 0);
  /* It forwards what comes from above in the same step. */
  double moves = down ? (child.children > 0 ? child.children : 1) : 0;
  if (up && child.children == 0)
    moves++;
  note_work(c, up ? child.children : 0, moves);
}

/* When the last rank ends the first pass. */
double colli_tree_first(const colli_shape *shape, colli_tree tree, unsigned ways,
                        const colli_terms *terms, const colli_model *model, double *busiest,
                        colli_work *work) {
  tree.nranks = shape->nranks;
  tree.root = shape->root;
  bool up = ways & COLLI_TREE_UP, down = ways & COLLI_TREE_DOWN;
  cost c = {
      .tree = &tree, .shape = shape, .model = model, .fresh = colli_timeline_make(terms, model)};
  if (up)
    go_up(&c, tree.root);
  if (down)
    go_down(&c, tree.root, (colli_flight){0, 0}, c.end);
  double n = shape->nranks;
  *work = (colli_work){c.all.steps / n, c.all.received / n, c.all.waits / n, c.all.reduced / n};
  if (!busiest && model->host_beta_ns_per_byte <= 0)
    return c.end;
  const occupied links = links_occupied(&c, ways);
  if (busiest) {
    note_busiest(&c, ways);
    *busiest = later(c.busiest, later(links.own, links.both));
  }
  return later(c.end, links.up + links.down); /* in one pass, all comes up before it goes down */
}

/* The cost of going up, down, or both ways. */
double colli_tree_cost(const colli_shape *shape, colli_tree tree, unsigned ways,
                       const colli_partition *partition, size_t elem_bytes,
                       const colli_model *model) {
  colli_terms t = colli_terms_make(partition, elem_bytes, model);
  if (shape->nranks == 1)
    return colli_cost_alone(partition, &t);
  bool up = ways & COLLI_TREE_UP, down = ways & COLLI_TREE_DOWN;
  double busiest;
  colli_work work;
  double end = colli_tree_first(shape, tree, ways, &t, model, &busiest, &work);
  /* Ranks begin a pass when they have done their part of the previous one. If up and down share a
   * lane, they wait for the result of each pass. */
  double period = up && down && !(ways & COLLI_TREE_LANES) ? end : busiest;
  return colli_cost_bound(end + (t.passes - 1) * period, work, &t, model);
}
