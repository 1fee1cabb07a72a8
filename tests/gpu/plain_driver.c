/*
 * plain_driver.c: the fake driver used by several threads at once, also with GPU_HIDDEN; and its
 * exit status if there were races. Without a test framework, for ThreadSanitizer.
 */
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/gpu/driver/use.h"

enum { THREADS = 4, ROUNDS = 20, COUNT = 64, RACES_STATUS = 66 };

/* What a thread works with. */
typedef struct user {
  use *u;
  int index;
  colli_cu_stream stream;
  colli_cu_event ready; /* the next thread's stream waits for it */
  uint32_t *flag, *data, *mine;
  colli_cu_event earlier; /* of the thread before */
  uint32_t called, replayed, ended;
} user;

static pthread_barrier_t barrier;

/* Called by the stream. */
static void count_call(void *context) {
  ((user *)context)->called++;
}

/* Called by a graph, and when it ends. */
static void count_replay(void *context) {
  ((user *)context)->replayed++;
}
static void count_end(void *context) {
  ((user *)context)->ended++;
}

/* Captures a graph beside the calls of other threads, and launches it. */
static void launch_graph(user *me) {
  colli_cuda *cuda = &me->u->cuda;
  colli_cu_user_object object;
  colli_cu_graph graph;
  colli_cu_graph_exec exec;
  OK(cuda->user_object_create(&object, me, count_end, 1, COLLI_CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
  OK(me->u->stream_begin_capture(me->stream, COLLI_CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  use_two(me->u, "poke", me->stream, me->mine, 77);
  OK(cuda->launch_host_func(me->stream, count_replay, me));
  OK(me->u->stream_end_capture(me->stream, &graph));
  OK(cuda->graph_retain_user_object(graph, object, 1, COLLI_CU_GRAPH_USER_OBJECT_MOVE));
  OK(me->u->graph_instantiate(&exec, graph, 0));
  OK(me->u->graph_destroy(graph));
  OK(me->u->graph_launch(exec, me->stream));
  OK(me->u->graph_exec_destroy(exec));
}

/*
 * Each round: all streams add a kernel that spins until this thread sets its flag, and an event;
 * then each stream waits for its neighbour's event, and copies what the neighbour's kernel wrote.
 * Before that each captures and launches a graph.
 */
static void *use_driver(void *argument) {
  user *me = argument;
  colli_cuda *cuda = &me->u->cuda;
  OK(cuda->ctx_set_current(me->u->context));
  for (uint32_t round = 1; round <= ROUNDS; round++) {
    uint32_t *scratch = use_memory(me->u, COUNT);
    launch_graph(me);
    OK(cuda->memset_d32_async(use_address(scratch), round, COUNT, me->stream));
    use_two(me->u, "spin", me->stream, me->flag, use_address(me->data + 1));
    use_two(me->u, "poke", me->stream, me->data, round);
    OK(cuda->event_record(me->ready, me->stream));
    pthread_barrier_wait(&barrier);
    OK(cuda->stream_wait_event(me->stream, me->earlier, 0));
    OK(cuda->memcpy_async(use_address(me->mine), use_address(me[me->index ? -1 : THREADS - 1].data),
                          4, me->stream));
    OK(cuda->launch_host_func(me->stream, count_call, me));
    use_set(me->flag, 1);
    OK(cuda->stream_synchronize(me->stream));
    CHECK(*me->mine == round && scratch[COUNT - 1] == round && me->called == round &&
          me->replayed == round);
    use_set(me->flag, 0);
    OK(cuda->mem_free(use_address(scratch)));
    pthread_barrier_wait(&barrier);
  }
  me->u->rounds(2);
  CHECK(me->ended == ROUNDS);
  return NULL;
}

/* Runs all threads to their end. */
static void use_by_threads(void) {
  use u;
  user users[THREADS] = {0};
  pthread_t threads[THREADS];
  use_start(&u);
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
  for (int i = 0; i < THREADS; i++) {
    user *me = &users[i];
    *me = (user){.u = &u, .index = i, .stream = use_stream(&u)};
    OK(u.cuda.event_create(&me->ready, COLLI_CU_EVENT_DISABLE_TIMING));
    me->flag = use_memory(&u, 1);
    me->data = use_memory(&u, 2);
    me->mine = use_memory(&u, 1);
  }
  for (int i = 0; i < THREADS; i++)
    users[i].earlier = users[i ? i - 1 : THREADS - 1].ready;
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, use_driver, &users[i]) == 0);
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
  pthread_barrier_destroy(&barrier);
}

/* Two threads of a block write to the same place. Returns normally. */
static void make_race(void) {
  use u;
  const uint32_t size[2] = {1, 2};
  setenv("GPU_MODEL", "races", 1);
  use_start(&u);
  uint32_t *m = use_memory(&u, 1), value = 1;
  uint64_t at = use_address(m);
  OK(use_launch(&u, "poke", size, NULL, (void *[]){&at, &value}));
  OK(u.cuda.stream_synchronize(NULL));
}

/* The threads with memory that only the driver can access. */
static void use_hidden(void) {
  setenv("GPU_HIDDEN", "1", 1);
  use_by_threads();
}

/* The exit status of a child that does this. */
static int status_of(void (*work)(void)) {
  int status;
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(100);
    work();
    exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFEXITED(status));
  return WEXITSTATUS(status);
}

int main(void) {
  CHECK(status_of(make_race) == RACES_STATUS);
  CHECK(status_of(use_hidden) == 0);
  alarm(100);
  use_by_threads();
  return 0;
}
