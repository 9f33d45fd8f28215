// JSON and TensorBoard accept only text in UTF-8, but a metric may have any
// name. Internal.
#ifndef LOCKSTEP_PLUGIN_UTF8_H_
#define LOCKSTEP_PLUGIN_UTF8_H_

#include <string>

#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep::internal_plugin {

// Returns the text with the replacement character in place of each byte that is
// not part of a valid character.
std::string Utf8Of(absl::string_view text);

}  // namespace lockstep::internal_plugin

#endif  // LOCKSTEP_PLUGIN_UTF8_H_
