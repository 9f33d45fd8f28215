// The results of gpu_check, as JSON for programs and as tables for people.
//
//   GpuReport report;
//   report.AddFact("NCCL", "2.28.9");
//   report.AddRow({"copies", "page-locked", 54.1, "GB/s"});
//   report.EndSection("copies", absl::OkStatus());
//   std::cout << report.Tables();
#ifndef LOCKSTEP_TOOLS_GPU_CHECK_GPU_REPORT_H_
#define LOCKSTEP_TOOLS_GPU_CHECK_GPU_REPORT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/language.h"

namespace lockstep {

// One measured value, and its target if there is one.
struct GpuRow {
  enum class Bound { kNone, kAtMost, kAtLeast };

  bool met() const;

  std::string section;
  std::string what;
  double value = 0;
  std::string unit;
  Bound bound = Bound::kNone;
  double target = 0;
};

// The results of all sections.
// Thread-safety: thread-compatible.
class GpuReport {
 public:
  // Adds a fact about the machine.
  void AddFact(absl::string_view name, absl::string_view value);

  void AddRow(GpuRow row);

  // Ends a section. Its result depends on the status:
  //
  //   OK             "ok", or "missed" if one of its targets was missed
  //   UNIMPLEMENTED  "refused: ...": this machine can't do it
  //   any other      "failed: ..."
  void EndSection(absl::string_view section, const absl::Status& status);

  // Returns true if any section has failed.
  bool failed() const { return failed_; }

  std::string Json() const;
  std::string Tables() const;  // Markdown

 private:
  struct Section {
    std::string name;
    std::string result;
  };

  std::vector<std::pair<std::string, std::string>> facts_;
  std::vector<Section> sections_;
  std::vector<GpuRow> rows_;
  bool failed_ = false;
};

}  // namespace lockstep

#endif  // LOCKSTEP_TOOLS_GPU_CHECK_GPU_REPORT_H_
