#include "lockstep/tools/report/curves.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <system_error>  // NOLINT: of <filesystem>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "lockstep/base/status_macros.h"
#include "lockstep/tools/records/rank_records.h"
#include "lockstep/tools/records/record_line.h"
#include "lockstep/tools/records/text_line.h"

namespace lockstep {
namespace {

// A training has few metrics. More of them are left out.
constexpr size_t kMostCurves = 200;

// Gathers the points of all metrics.
// Thread-safety: thread-compatible.
class Gatherer {
 public:
  explicit Gatherer(std::optional<int64_t> pid) : pid_(pid) {}

  // Returns false if the lines behind this one are of a later process.
  bool Take(const RecordLine& line) {
    if (const auto* const header = std::get_if<HeaderLine>(&line.content)) {
      if (has_process_ && pid_.has_value() && header->pid != *pid_) {
        return false;
      }
      has_process_ = has_process_ || header->pid == pid_.value_or(header->pid);
    } else if (const auto* const after =
                   std::get_if<AfterLine>(&line.content)) {
      GoOnAfter(after->steps);
    } else if (const auto* const step = std::get_if<StepLine>(&line.content)) {
      TakeStep(*step);
    }
    return true;
  }

  bool has_process() const { return has_process_; }

  std::vector<Curve> Finish() {
    std::vector<Curve> curves;
    for (Curve& curve : curves_) {
      if (!curve.points.empty()) curves.push_back(Thin(std::move(curve)));
    }
    return curves;
  }

 private:
  // Later steps of earlier processes come again.
  void GoOnAfter(int64_t steps) {
    for (Curve& curve : curves_) {
      while (!curve.points.empty() && curve.points.back().step > steps) {
        curve.points.pop_back();
      }
    }
  }

  void TakeStep(const StepLine& line) {
    const bool is_of_steps =
        std::any_of(line.metrics.begin(), line.metrics.end(),
                    [](const auto& each) { return each.first == "seconds"; });
    for (const auto& [name, value] : line.metrics) {
      if (!absl::StrContains(name, '/') || !std::isfinite(value)) continue;
      const auto [place, is_new] = places_.emplace(name, curves_.size());
      if (is_new) {
        if (curves_.size() == kMostCurves) {
          places_.erase(place);
          continue;
        }
        curves_.emplace_back().name = name;
      }
      Curve& curve = curves_[place->second];
      curve.is_of_steps = curve.is_of_steps || is_of_steps;
      // An evaluation that comes again at the same step counts once.
      if (!curve.points.empty() && curve.points.back().step >= line.step) {
        curve.points.back().value = value;
      } else {
        curve.points.push_back({line.step, value});
      }
    }
  }

  // Leaves at most kMostPoints points.
  static Curve Thin(Curve curve) {
    const auto less = [](const Curve::Point& a, const Curve::Point& b) {
      return a.value < b.value;
    };
    const std::vector<Curve::Point>& all = curve.points;
    curve.last = all.back();
    curve.least = *std::min_element(all.begin(), all.end(), less);
    curve.most = *std::max_element(all.begin(), all.end(), less);
    if (all.size() <= Curve::kMostPoints) return curve;
    std::vector<Curve::Point> few;
    for (size_t i = 0; i < Curve::kMostPoints; ++i) {
      const size_t begin = i * all.size() / Curve::kMostPoints;
      const size_t end = (i + 1) * all.size() / Curve::kMostPoints;
      double sum = 0;
      for (size_t at = begin; at < end; ++at) {
        sum += all[at].value / static_cast<double>(end - begin);
      }
      few.push_back({all[end - 1].step, sum});
    }
    curve.points = std::move(few);
    return curve;
  }

  const std::optional<int64_t> pid_;
  bool has_process_ = false;
  std::map<std::string, size_t> places_;
  std::vector<Curve> curves_;
};

}  // namespace

absl::StatusOr<std::vector<Curve>> ReadCurves(absl::string_view path,
                                              std::optional<int64_t> pid) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RankFiles> found,
                            FindRankFiles(path));
  Gatherer gatherer(pid);
  bool goes_on = true;
  // Rank 0 writes the metrics of all ranks.
  for (const std::string& each : found.front().paths) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(each, error)) continue;
    std::ifstream file(each, std::ios::binary);
    for (TextLine line; goes_on && ReadTextLine(file, line);) {
      if (line.is_too_long) break;
      const absl::StatusOr<RecordLine> parsed = ParseRecordLine(line.text);
      if (parsed.ok()) goes_on = gatherer.Take(*parsed);
    }
  }
  if (gatherer.has_process()) return gatherer.Finish();
  return absl::NotFoundError(absl::StrCat(
      "the metrics at ", path, " are of other processes than this run's"));
}

}  // namespace lockstep
