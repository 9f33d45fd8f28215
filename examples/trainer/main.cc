#include "lockstep/session/main.h"

#include "lockstep/examples/trainer/trainer.h"

int main(int argc, char** argv) {
  return lockstep::Main(argc, argv, trainer::Train, trainer::RegisterParts);
}
