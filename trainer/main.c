/* main.c: coll_train, training with libcoll. */
#include "trainer/program.h"

/* The data that --data names. */
static bool load(dataset *d, const options *o, fail *why) {
  return dataset_load(d, o->data, o->context, why);
}

int main(int argc, char **argv) {
  return program_run(argc, argv, load, model_asked_for);
}
