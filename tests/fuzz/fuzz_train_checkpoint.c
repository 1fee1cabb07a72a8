/* fuzz_train_checkpoint.c: a checkpoint of the trainer. */
#include "fuzz.h"
#include "trainer/checkpoint.h"

#define PARAMS 31 /* 3 * 4 + 4 + 4 * 3 + 3 */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
  float arrays[4][PARAMS] = {{0}};
  model m = {.params = PARAMS, .shape = 99};
  checkpoint_run run = {.model = &m, .seed = 1, .batch = 8, .data = 7};
  checkpoint_state state = {.params = arrays[0], .velocity = arrays[1], .pending = arrays[3]};
  fail why = {.text = ""};
  (void)checkpoint_read(fuzz_file("checkpoint", data, bytes), &run, &state, &why);
  return 0;
}
