/* options_table.c: all options of the command line. */
#include "trainer/options_table.h"

#include "trainer/strategies/strategy.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define AT(member) .at = offsetof(options, member), .bytes = sizeof(((options *)0)->member)

bool option_count(const char *text, uint64_t least, uint64_t most, uint64_t *value,
                  const char **end) {
  char *stop = NULL;
  if (!isdigit((unsigned char)text[0]))
    return false;
  errno = 0;
  unsigned long long number = strtoull(text, &stop, 10);
  *end = stop;
  *value = number;
  return errno == 0 && number >= least && number <= most;
}

int option_word(const char *words, const char *word) {
  size_t length = strlen(word);
  for (int i = 0;; i++) {
    size_t has = strcspn(words, "|");
    if (has == length && memcmp(words, word, length) == 0)
      return i;
    if (words[has] == '\0')
      return -1;
    words += has + 1;
  }
}

/* --layers 784,256,10. */
static bool parse_layers(options *o, const char *text, fail *why) {
  const char *p = text;
  o->size_count = 0;
  memset(o->sizes, 0, sizeof(o->sizes));
  for (;;) {
    uint64_t size = 0;
    const char *end = "";
    if (o->size_count == OPTIONS_MAX_SIZES)
      return fail_set(why, "--layers: at most %d sizes", OPTIONS_MAX_SIZES);
    if (!option_count(p, 1, INT_MAX, &size, &end) || (*end != ',' && *end != '\0'))
      break;
    o->sizes[o->size_count++] = (size_t)size;
    if (*end == '\0' && o->size_count >= 2)
      return true;
    if (*end == '\0')
      break;
    p = end + 1;
  }
  return fail_set(why,
                  "--layers %s: must be at least two whole numbers from 1 joined by commas, "
                  "such as 784,256,128,10",
                  text);
}

/* --slow rank:factor. */
static bool parse_slow(options *o, const char *text, fail *why) {
  uint64_t rank = 0;
  const char *end = "";
  int used = 0;
  if (option_count(text, 0, INT_MAX, &rank, &end) && *end == ':' &&
      sscanf(end + 1, "%f%n", &o->slow_factor, &used) == 1 && end[1 + used] == '\0' &&
      o->slow_factor >= 1.0f && o->slow_factor <= 1000.0f) {
    o->slow_rank = (int)rank;
    return true;
  }
  return fail_set(why, "--slow %s: must be a rank and a factor from 1 to 1000, such as 1:4", text);
}

/* --strategy NAME. */
static bool parse_strategy(options *o, const char *text, fail *why) {
  char names[256] = "";
  size_t used = 0;
  o->strategy = strategy_find(text);
  if (o->strategy)
    return true;
  for (size_t i = 0; strategy_at(i) && used < sizeof(names); i++)
    used += (size_t)snprintf(names + used, sizeof(names) - used, "%s%s", i ? ", " : "",
                             strategy_at(i)->name);
  return fail_set(why, "--strategy %s: must be one of %s", text, names);
}

/* --wire int8. */
static bool parse_wire(options *o, const char *text, fail *why) {
  return wire_parse(&o->wire, text, why);
}

const option_row option_rows[] = {
    {"data", "DIR", "/usr/share/datasets/fashion-mnist",
     "folder of IDX files (plain or .gz) or CIFAR-10 files, or a text file", .kind = OPTION_TEXT,
     AT(data)},
    {"model", "NAME", "perceptron", "the model to train", .kind = OPTION_CHOICE, .same = true,
     AT(model), .choices = "perceptron|lenet|transformer"},
    {"layers", "N,N,...", "784,256,128,10", "sizes of all layers: inputs first, classes last",
     .kind = OPTION_PARSED, .same = true, AT(sizes), .parse = parse_layers,
     .needs = {{"model", "perceptron"}}},
    {"context", "N", "64", "bytes per sample", .kind = OPTION_COUNT, .same = true, AT(context),
     .least = 1, .most = 65536, .needs = {{"model", "transformer"}}},
    {"width", "N", "64", "numbers per position", .kind = OPTION_COUNT, .same = true, AT(width),
     .least = 1, .most = 65536, .needs = {{"model", "transformer"}}},
    {"heads", "N", "4", "attention heads per block", .kind = OPTION_COUNT, .same = true, AT(heads),
     .least = 1, .most = 1024, .needs = {{"model", "transformer"}}},
    {"blocks", "N", "2", "transformer blocks", .kind = OPTION_COUNT, .same = true, AT(blocks),
     .least = 1, .most = 32, .needs = {{"model", "transformer"}}},
    {"strategy", "NAME", "allreduce", "how the ranks train together; see below",
     .kind = OPTION_PARSED, .same = true, AT(strategy), .parse = parse_strategy},
    {"epochs", "N", "5", "passes over the training set", .kind = OPTION_COUNT, .same = true,
     AT(epochs), .least = 1, .most = 1000000},
    {"batch", "N", "128", "samples per step, over all ranks together", .kind = OPTION_COUNT,
     .same = true, AT(batch), .least = 1, .most = INT_MAX},
    {"accumulate", "N", "1", "a rank computes its samples of a step in N parts",
     .kind = OPTION_COUNT, .same = true, AT(accumulate), .least = 1, .most = INT_MAX},
    {"optimizer", "NAME", "sgd", "the rule that updates the weights", .kind = OPTION_CHOICE,
     .same = true, AT(optimizer), .choices = "sgd|adam"},
    {"lr", "X", "0.05", "learning rate", .kind = OPTION_ABOVE, .same = true, AT(lr), .high = 1000},
    {"schedule", "NAME", "decay", "how the learning rate changes", .kind = OPTION_CHOICE,
     .same = true, AT(schedule), .choices = "decay|cosine"},
    {"warmup", "EPOCHS", "0", "the learning rate first rises from 0 for this long",
     .kind = OPTION_REAL, .same = true, AT(warmup), .high = 1000000},
    {"clip", "X", "0",
     "largest norm of all gradients together; larger ones are scaled down; 0: any",
     .kind = OPTION_REAL, .same = true, AT(clip), .high = 1e9},
    {"lr-decay", "X", "0.6", "factor of the learning rate after each epoch", .kind = OPTION_ABOVE,
     .same = true, AT(lr_decay), .high = 1, .needs = {{"schedule", "decay"}}},
    {"square-decay", "X", "0.999", "decay of the running mean of squared gradients",
     .kind = OPTION_REAL, .same = true, AT(square_decay), .high = 1,
     .needs = {{"optimizer", "adam"}}},
    {"momentum", "X", "0.9", "of the optimizer", .kind = OPTION_REAL, .same = true, AT(momentum),
     .high = 1},
    {"weight-decay", "X", "0.0001", "of the optimizer", .kind = OPTION_REAL, .same = true,
     AT(weight_decay), .high = 1000},
    {"seed", "N", "1", "initial weights and order of samples", .kind = OPTION_COUNT, .same = true,
     AT(seed), .most = UINT64_MAX},
    {"bucket-bytes", "N", "262144",
     "size of a bucket of gradients, which are reduced together; at least one layer",
     .kind = OPTION_COUNT, .same = true, AT(bucket_bytes), .least = 1, .most = UINT64_MAX,
     .needs = {{"strategy", "allreduce|zero1|local-sgd"}}},
    {"wire", "FORM", "float32",
     "how gradients are sent: float32, float16, bfloat16, int8, topk, topk:PART",
     .kind = OPTION_PARSED, .same = true, AT(wire), .parse = parse_wire,
     .needs = {{"strategy", "allreduce|zero1|ps-sync|ps-async|ps-bounded|ps-sharded"}}},
    {"staleness-lr", NULL, NULL, "divide the learning rate of an update by its staleness + 1",
     .kind = OPTION_FLAG, .same = true, AT(staleness_lr), .needs = {{"strategy", "ps-async"}}},
    {"staleness", "N", "1", "batches that a worker may be ahead of the slowest",
     .kind = OPTION_COUNT, .same = true, AT(staleness), .most = 1000,
     .needs = {{"strategy", "ps-bounded"}}},
    {"servers", "N", "0", "the last N ranks are servers; 0: every rank is worker and server",
     .kind = OPTION_COUNT, .same = true, AT(servers), .most = 1000000,
     .needs = {{"strategy", "ps-sharded"}}},
    {"tensor", "N", "1", "ranks that share each layer", .kind = OPTION_COUNT, .same = true,
     AT(tensor), .least = 1, .most = 1024, .needs = {{"strategy", "grid"}}},
    {"pipeline", "N", "1", "pipeline stages", .kind = OPTION_COUNT, .same = true, AT(pipeline),
     .least = 1, .most = 1024, .needs = {{"strategy", "grid"}}},
    {"micro-batches", "N", "4", "parts into which a batch is cut", .kind = OPTION_COUNT,
     .same = true, AT(micro_batches), .least = 1, .most = 65536,
     .needs = {{"strategy", "pipeline|grid"}}},
    {"pipeline-schedule", "NAME", "1f1b", "the order of the passes", .kind = OPTION_CHOICE,
     .same = true, AT(pipeline_schedule), .choices = "gpipe|1f1b",
     .needs = {{"strategy", "pipeline|grid"}}},
    {"local-steps", "N", "16", "steps between two exchanges", .kind = OPTION_COUNT, .same = true,
     AT(local_steps), .least = 1, .most = UINT64_MAX,
     .needs = {{"strategy", "local-sgd|easgd|gossip"}}},
    {"average", "HOW", "allreduce", "who averages", .kind = OPTION_CHOICE, .same = true,
     AT(average), .choices = "allreduce|master", .needs = {{"strategy", "local-sgd"}}},
    {"post-local", "N", "0", "the first N epochs are synchronous", .kind = OPTION_COUNT,
     .same = true, AT(post_local), .most = 1000000, .needs = {{"strategy", "local-sgd"}}},
    {"outer-momentum", "X", "0", "Nesterov momentum over the averages", .kind = OPTION_REAL,
     .same = true, AT(outer_momentum), .high = 1, .needs = {{"strategy", "local-sgd"}}},
    {"outer-lr", "X", "1", "outer learning rate: the part of an average's change that is taken",
     .kind = OPTION_ABOVE, .same = true, AT(outer_lr), .high = 1000,
     .needs = {{"strategy", "local-sgd"}}},
    {"moving-rate", "X", "0.9", "how far weights move to the centre, times the workers (alpha * p)",
     .kind = OPTION_ABOVE, .same = true, AT(moving_rate), .high = 1,
     .needs = {{"strategy", "easgd"}}},
    {"slow", "RANK:FACTOR", NULL, "this rank takes FACTOR times as long for its gradients",
     .kind = OPTION_PARSED, AT(slow_factor), .parse = parse_slow},
    {"checkpoint", "FILE", NULL, "written after every epoch", .kind = OPTION_TEXT, AT(checkpoint)},
    {"checkpoint-steps", "N", "0", "also write it after every N steps of an epoch; 0: never",
     .kind = OPTION_COUNT, .same = true, AT(checkpoint_steps), .most = UINT64_MAX,
     .needs = {{"strategy", "allreduce|zero1|ps-sharded|pipeline|tensor|grid"},
               {"checkpoint", NULL}}},
    {"resume", NULL, NULL, "continue from the checkpoint", .kind = OPTION_FLAG, AT(resume),
     .needs = {{"checkpoint", NULL}}},
    {"metrics", "FILE", NULL, "write JSON lines: one for each epoch, one for the run",
     .kind = OPTION_TEXT, AT(metrics)},
    {"json", NULL, NULL, "print these lines instead of text", .kind = OPTION_FLAG, AT(json)},
    {"threads-per-rank", "N", "1", "threads for matrix products", .kind = OPTION_COUNT,
     AT(threads_per_rank), .least = 1, .most = 1024},
    {"quiet", NULL, NULL, "print errors only", .kind = OPTION_FLAG, AT(quiet)},
    {.name = NULL},
};
