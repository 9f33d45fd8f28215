// The lockstep tool, with Lockstep's own parts. A program of yours that has its
// own parts has the same commands by command.h.
#include "lockstep/tools/cli/command.h"

int main(int argc, char** argv) { return lockstep::CommandMain(argc, argv); }
