// What gpu_check finds out, as JSON for programs and as tables for people.
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

class GpuReport {
 public:
  // Of the machine.
  void AddFact(absl::string_view name, absl::string_view value);

  void AddRow(GpuRow row);

  // Its result is, by the status:
  //
  //   OK             "ok", or "missed" if one of its targets was
  //   UNIMPLEMENTED  "refused: ...": this machine can't do it
  //   any other      "failed: ..."
  void EndSection(absl::string_view section, const absl::Status& status);

  // Whether any section has.
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
