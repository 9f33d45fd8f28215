#include "lockstep/tools/report/curves.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>  // NOLINT: C++17's own
#include <fstream>
#include <functional>
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
  void Take(const RecordLine& line) {
    if (const auto* const after = std::get_if<AfterLine>(&line.content)) {
      GoOnAfter(after->steps);
    } else if (const auto* const step = std::get_if<StepLine>(&line.content)) {
      TakeStep(*step);
    }
  }

  std::vector<Curve> Finish() {
    std::vector<Curve> curves;
    for (Curve& curve : curves_) {
      if (curve.points.empty() && curve.not_finite == 0) continue;
      curves.push_back(Thin(std::move(curve)));
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
      if (!absl::StrContains(name, '/')) continue;
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
      if (!std::isfinite(value)) {
        ++curve.not_finite;
        continue;
      }
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
    if (all.empty()) return curve;
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

  std::map<std::string, size_t> places_;
  std::vector<Curve> curves_;
};

// A line of the files.
using LinePlace = std::pair<size_t, int64_t>;

// Calls `take` with each line that can be read, until it returns false. Only
// the headers are read if `headers_only` is true.
void ForEachLine(
    const std::vector<std::string>& paths, bool headers_only,
    const std::function<bool(LinePlace place, const RecordLine& line)>& take) {
  for (size_t i = 0; i < paths.size(); ++i) {
    std::error_code error;
    if (!std::filesystem::is_regular_file(paths[i], error)) continue;
    std::ifstream file(paths[i], std::ios::binary);
    TextLine line;
    for (int64_t number = 0; ReadTextLine(file, line); ++number) {
      if (line.is_too_long) break;
      if (headers_only && !absl::StartsWith(line.text, "{\"format\":")) {
        continue;
      }
      const absl::StatusOr<RecordLine> parsed = ParseRecordLine(line.text);
      if (parsed.ok() && !take({i, number}, *parsed)) return;
    }
  }
}

// Returns the header of a process. Another process may have had its number, so
// it is the one that was written when the process began.
std::optional<LinePlace> FindHeader(const std::vector<std::string>& paths,
                                    const CurveWriter& writer) {
  std::optional<LinePlace> found;
  double nearest = 0;
  ForEachLine(paths, /*headers_only=*/true,
              [&](LinePlace place, const RecordLine& line) {
                const auto* const header =
                    std::get_if<HeaderLine>(&line.content);
                if (header == nullptr || header->pid != writer.pid) return true;
                const double apart = std::abs(line.time - writer.began);
                if (!found.has_value() || apart < nearest) {
                  found = place;
                  nearest = apart;
                }
                return true;
              });
  return found;
}

}  // namespace

absl::StatusOr<std::vector<Curve>> ReadCurves(
    absl::string_view path, std::optional<CurveWriter> writer) {
  LOCKSTEP_ASSIGN_OR_RETURN(const std::vector<RankFiles> found,
                            FindRankFiles(path));
  // Rank 0 writes the metrics of all ranks.
  const std::vector<std::string>& paths = found.front().paths;
  std::optional<LinePlace> of_run;
  if (writer.has_value()) {
    of_run = FindHeader(paths, *writer);
    if (!of_run.has_value()) {
      return absl::NotFoundError(absl::StrCat(
          path,
          " has metrics of other processes than this run's rank 0, which "
          "is process ",
          writer->pid));
    }
  }
  Gatherer gatherer;
  bool are_records = false;
  ForEachLine(
      paths, /*headers_only=*/false,
      [&](LinePlace place, const RecordLine& line) {
        are_records = std::holds_alternative<RunLine>(line.content);
        const auto* const header = std::get_if<HeaderLine>(&line.content);
        const bool ends = header != nullptr && of_run.has_value() &&
                          place > *of_run &&
                          (header->pid != writer->pid || header->file == 1);
        if (ends || are_records) return false;
        gatherer.Take(line);
        return true;
      });
  if (are_records) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, " has the records of ranks, and no metrics of all ranks"));
  }
  return gatherer.Finish();
}

}  // namespace lockstep
