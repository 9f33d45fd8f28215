// The registry's module has all of toml++ in a header of this name.
#include <toml++/toml.h>
