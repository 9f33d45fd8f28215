// Reads the input as what ranks have written for their launcher. Each report is
// one line of text, and its blame is the same when it is written and read
// again.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/check.h"
#include "lockstep/base/fuzz_input.h"
#include "lockstep/collective/blame.h"
#include "lockstep/collective/rendezvous/failure_report.h"

namespace lockstep {
namespace {

constexpr size_t kMostText = 3000;  // 1,000 bytes, as characters of UTF-8

void Check(absl::string_view bytes) {
  static const FailureReports& reports =
      *new FailureReports(FailureReports::Create());
  std::ofstream(reports.path(), std::ios::binary | std::ios::trunc) << bytes;
  for (const FailureReport& report : reports.Read()) {
    ++fuzz_accepts;
    LOCKSTEP_CHECK(report.text.size() <= kMostText);
    LOCKSTEP_CHECK(
        std::none_of(report.text.begin(), report.text.end(), [](char c) {
          return absl::ascii_iscntrl(static_cast<unsigned char>(c));
        }));
    const std::string json = ToJson(report.blame);
    const std::optional<Blame> again = ParseBlame(json);
    LOCKSTEP_CHECK(again.has_value() && ToJson(*again) == json);
  }
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lockstep::Check(absl::string_view(reinterpret_cast<const char*>(data), size));
  return 0;
}
