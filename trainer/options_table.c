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

bool option_count(const char *text, double low, double high, uint64_t *value, const char **end) {
  char *stop = NULL;
  if (!isdigit((unsigned char)text[0]))
    return false;
  errno = 0;
  unsigned long long number = strtoull(text, &stop, 10);
  *end = stop;
  *value = number;
  return errno == 0 && (double)number >= low && (double)number <= high;
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
     "folder of IDX files, plain or .gz, or of CIFAR-10; or a text", .kind = OPTION_TEXT, AT(data)},
    {"model", "NAME", "perceptron", "what is trained", .kind = OPTION_CHOICE, .same = true,
     AT(model), .choices = "perceptron|lenet|transformer"},
    {"layers", "N,N,...", "784,256,128,10", "perceptron: sizes, inputs first, classes last",
     .kind = OPTION_PARSED, .same = true, AT(sizes), .parse = parse_layers},
    {"context", "N", "64", "transformer: bytes of a sample", .kind = OPTION_COUNT, .same = true,
     AT(context), .low = 1, .high = 65536},
    {"width", "N", "64", "transformer: numbers of a place", .kind = OPTION_COUNT, .same = true,
     AT(width), .low = 1, .high = 65536},
    {"heads", "N", "4", "transformer: heads of each attention", .kind = OPTION_COUNT, .same = true,
     AT(heads), .low = 1, .high = 1024},
    {"blocks", "N", "2", "transformer: blocks", .kind = OPTION_COUNT, .same = true, AT(blocks),
     .low = 1, .high = 32},
    {"strategy", "NAME", "allreduce", "how the ranks train together; see below",
     .kind = OPTION_PARSED, .same = true, AT(strategy), .parse = parse_strategy},
    {"epochs", "N", "5", "passes over the training set", .kind = OPTION_COUNT, .same = true,
     AT(epochs), .low = 1, .high = 1000000},
    {"batch", "N", "128", "samples of a step, over all ranks together", .kind = OPTION_COUNT,
     .same = true, AT(batch), .low = 1, .high = INT_MAX},
    {"accumulate", "N", "1", "parts in which a rank works on its samples of a step",
     .kind = OPTION_COUNT, .same = true, AT(accumulate), .low = 1, .high = INT_MAX},
    {"optimizer", "NAME", "sgd", "how weights follow gradients", .kind = OPTION_CHOICE,
     .same = true, AT(optimizer), .choices = "sgd|adam"},
    {"lr", "X", "0.05", "learning rate", .kind = OPTION_ABOVE, .same = true, AT(lr), .high = 1000},
    {"schedule", "NAME", "decay", "how the learning rate goes", .kind = OPTION_CHOICE, .same = true,
     AT(schedule), .choices = "decay|cosine"},
    {"warmup", "EPOCHS", "0", "the learning rate first rises from 0 for so long",
     .kind = OPTION_REAL, .same = true, AT(warmup), .high = 1000000},
    {"clip", "X", "0", "gradients are cut to this length (global norm); 0: never",
     .kind = OPTION_REAL, .same = true, AT(clip), .high = 1e9},
    {"lr-decay", "X", "0.6", "schedule decay: factor of the learning rate after each epoch",
     .kind = OPTION_ABOVE, .same = true, AT(lr_decay), .high = 1},
    {"square-decay", "X", "0.999", "adam: what remains of the squares", .kind = OPTION_REAL,
     .same = true, AT(square_decay), .high = 1},
    {"momentum", "X", "0.9", "of the optimizer", .kind = OPTION_REAL, .same = true, AT(momentum),
     .high = 1},
    {"weight-decay", "X", "0.0001", "of the optimizer", .kind = OPTION_REAL, .same = true,
     AT(weight_decay), .high = 1000},
    {"seed", "N", "1", "initial weights and order of samples", .kind = OPTION_COUNT, .same = true,
     AT(seed), .high = 0x1p64},
    {"bucket-bytes", "N", "262144", "gradients reduced together, at least one layer",
     .kind = OPTION_COUNT, .same = true, AT(bucket_bytes), .low = 1, .high = 0x1p64},
    {"wire", "FORM", "float32",
     "how gradients travel: float32, float16, bfloat16, int8, topk, topk:PART",
     .kind = OPTION_PARSED, .same = true, AT(wire), .parse = parse_wire},
    {"staleness-lr", NULL, NULL, "ps-async: learning rate divided by staleness + 1",
     .kind = OPTION_FLAG, .same = true, AT(staleness_lr)},
    {"staleness", "N", "1", "ps-bounded: batches that a worker may be ahead of the slowest",
     .kind = OPTION_COUNT, .same = true, AT(staleness), .high = 1000},
    {"servers", "N", "0", "ps-sharded: the last N ranks serve, 0: all ranks serve and work",
     .kind = OPTION_COUNT, .same = true, AT(servers), .high = 1000000},
    {"tensor", "N", "1", "grid: ranks that share a layer", .kind = OPTION_COUNT, .same = true,
     AT(tensor), .low = 1, .high = 1024},
    {"pipeline", "N", "1", "grid: stages", .kind = OPTION_COUNT, .same = true, AT(pipeline),
     .low = 1, .high = 1024},
    {"micro-batches", "N", "4", "pipeline, grid: parts into which a batch is cut",
     .kind = OPTION_COUNT, .same = true, AT(micro_batches), .low = 1, .high = 65536},
    {"pipeline-schedule", "NAME", "1f1b", "pipeline: the order of the passes",
     .kind = OPTION_CHOICE, .same = true, AT(pipeline_schedule), .choices = "gpipe|1f1b"},
    {"local-steps", "N", "16", "local-sgd, easgd, gossip: steps between two exchanges",
     .kind = OPTION_COUNT, .same = true, AT(local_steps), .low = 1, .high = 0x1p64},
    {"average", "HOW", "allreduce", "local-sgd: who averages", .kind = OPTION_CHOICE, .same = true,
     AT(average), .choices = "allreduce|master"},
    {"post-local", "N", "0", "local-sgd: so many first epochs are synchronous",
     .kind = OPTION_COUNT, .same = true, AT(post_local), .high = 1000000},
    {"outer-momentum", "X", "0", "local-sgd: Nesterov momentum over the averages",
     .kind = OPTION_REAL, .same = true, AT(outer_momentum), .high = 1},
    {"outer-lr", "X", "1", "local-sgd: the part of an average's change that is taken",
     .kind = OPTION_ABOVE, .same = true, AT(outer_lr), .high = 1000},
    {"moving-rate", "X", "0.9", "easgd: alpha times the number of workers", .kind = OPTION_ABOVE,
     .same = true, AT(moving_rate), .high = 1},
    {"slow", "RANK:FACTOR", NULL, "one rank takes FACTOR times as long for its gradients",
     .kind = OPTION_PARSED, AT(slow_factor), .parse = parse_slow},
    {"checkpoint", "FILE", NULL, "written after every epoch", .kind = OPTION_TEXT, AT(checkpoint)},
    {"resume", NULL, NULL, "go on from the checkpoint", .kind = OPTION_FLAG, AT(resume)},
    {"metrics", "FILE", NULL, "one JSON object a line: each epoch and the end", .kind = OPTION_TEXT,
     AT(metrics)},
    {"json", NULL, NULL, "print these lines, and nothing else but errors", .kind = OPTION_FLAG,
     AT(json)},
    {"threads-per-rank", "N", "1", "threads of the matrix products", .kind = OPTION_COUNT,
     AT(threads_per_rank), .low = 1, .high = 1024},
    {"quiet", NULL, NULL, "print errors only", .kind = OPTION_FLAG, AT(quiet)},
    {.name = NULL},
};
