#include "lockstep/tools/cli/exchange_commands.h"

#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <system_error>  // NOLINT: what std::filesystem reports
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/nearest_word.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/checkpoint/checkpoint_file.h"
#include "lockstep/checkpoint/exchange.h"
#include "lockstep/tools/cli/host.h"
#include "lockstep/tools/cli/remove_at_signal.h"

namespace lockstep {
namespace {

absl::Status CheckFlags(const ExchangeCommand& command) {
  if (command.to.empty()) {
    return absl::InvalidArgumentError(
        "--to, the path of what is to be written, is not given");
  }
  if (command.format.empty()) {
    return absl::InvalidArgumentError(
        "--format is not given; it should be safetensors or npy");
  }
  if (command.format != "safetensors" && command.format != "npy") {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no --format ",
                     SayUnknown(command.format, {"npy", "safetensors"})));
  }
  return absl::OkStatus();
}

// Adds a shape such as "weights=64,10" to the options. Names may have a '=',
// but shapes have none.
absl::Status AddShape(absl::string_view text, ExchangeOptions& options) {
  const auto wrong = [text](absl::string_view how) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--shape should be a name and the dimensions of its array, such as "
        "weights=64,10, or number= for a single number, but ",
        how, ": '", absl::CHexEscape(text), "'"));
  };
  const size_t equals = text.rfind('=');
  if (equals == text.npos) return wrong("has no '='");
  const absl::string_view dimensions = text.substr(equals + 1);
  std::vector<int64_t> shape;
  if (!dimensions.empty()) {
    for (const absl::string_view word : absl::StrSplit(dimensions, ',')) {
      if (!absl::SimpleAtoi(word, &shape.emplace_back())) {
        return wrong("has a dimension that is no whole number");
      }
    }
  }
  const std::string name(text.substr(0, equals));
  if (options.shapes.emplace(name, std::move(shape)).second) {
    return absl::OkStatus();
  }
  return wrong("this name is given twice");
}

// Returns what removes the unfinished result at a signal. It is null if there
// is one of another process, which the conversion will refuse.
std::unique_ptr<RemoveAtSignal> Unfinished(const ExchangeCommand& command) {
  std::string path = command.to + ".new";
  std::error_code error;
  if (std::filesystem::exists(path, error)) return nullptr;
  return std::make_unique<RemoveAtSignal>(std::move(path));
}

}  // namespace

absl::Status RunStateExport(const ExchangeCommand& command, std::ostream& out) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command));
  ExchangeOptions options;
  options.prefix = command.prefix;
  for (const std::string& shape : command.shapes) {
    LOCKSTEP_RETURN_IF_ERROR(AddShape(shape, options));
  }
  const auto opened = CheckpointReader::Open(command.path);
  if (!opened.ok()) return OfInput(opened.status());
  const auto& reader = *opened;
  const auto unfinished = Unfinished(command);
  LOCKSTEP_RETURN_IF_ERROR(
      command.format == "npy"
          ? ExportNpy(*reader, command.to, options)
          : ExportSafetensors(*reader, command.to, options));
  for (const CheckpointSection& section : reader->sections()) {
    if (!section.dtype.has_value() ||
        absl::StartsWith(section.name, options.prefix)) {
      continue;
    }
    out << "not exported, because its name does not begin with '"
        << absl::CHexEscape(options.prefix)
        << "': " << absl::CHexEscape(section.name) << "\n";
  }
  return absl::OkStatus();
}

absl::Status RunStateImport(const ExchangeCommand& command) {
  LOCKSTEP_RETURN_IF_ERROR(CheckFlags(command));
  ExchangeOptions options;
  options.prefix = command.prefix;
  const auto unfinished = Unfinished(command);
  return OfInput(command.format == "npy"
                     ? ImportNpy(command.path, command.to, options)
                     : ImportSafetensors(command.path, command.to, options));
}

}  // namespace lockstep
