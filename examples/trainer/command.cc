// The lockstep command, which knows the trainer's parts and settings:
//
//   command check examples/trainer/digits.toml --world=1,2,3
//   command plan --config=examples/trainer/digits.toml --loader=train --world=2
#include "lockstep/tools/cli/command.h"

#include "lockstep/examples/trainer/trainer.h"

int main(int argc, char** argv) {
  return lockstep::CommandMain<trainer::TrainerOptions>(argc, argv,
                                                        trainer::RegisterParts);
}
