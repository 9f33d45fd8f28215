#include "lockstep/session/main.h"

#include "lockstep/examples/trainer/trainer.h"

int main(int argc, char** argv) {
  lockstep::MainOptions options;
  options.register_parts = trainer::RegisterParts;
  return lockstep::Main(argc, argv, trainer::Train, options);
}
