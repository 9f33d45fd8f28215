// The README's first program.
#include "lockstep/docs/snippets/readme/first.inc"
