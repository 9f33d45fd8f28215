// Parts that the page of one run and the page of two runs have in common. Each
// returns or appends HTML. Internal.
//
//   std::string html = BeginPage("Run 3 of /data/steps");
//   html += AboutRun(report) + VerdictBlock(report, Advice::kShown);
//   HtmlTable table("The slowest samples",
//                   {{"rank", HtmlTable::Kind::kNumber}, {"loader"}});
//   table.AddRow({WithCommas(3), NameCell(loader)});
//   html += table.Html();
//   html += EndPage();
#ifndef LOCKSTEP_TOOLS_REPORT_PAGE_PARTS_H_
#define LOCKSTEP_TOOLS_REPORT_PAGE_PARTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/string_view.h"
#include "lockstep/tools/report/lost_time.h"
#include "lockstep/tools/report/run_report.h"
#include "lockstep/tools/report/svg.h"

namespace lockstep::internal_report {

// A table whose cells are HTML. A wide one scrolls within its own place.
// Thread-safety: thread-compatible.
class HtmlTable {
 public:
  enum class Kind { kText, kNumber, kPicture };
  struct Column {
    std::string name;  // HTML
    Kind kind = Kind::kText;
  };

  // The caption is a text.
  HtmlTable(absl::string_view caption, std::vector<Column> columns);

  // Requires: there is a cell for each column.
  void AddRow(const std::vector<std::string>& cells);

  std::string Html() const;

 private:
  std::vector<Column> columns_;
  std::string caption_;
  std::string rows_;
};

// Returns a name from records for a cell. It is not broken if it is short.
std::string NameCell(absl::string_view name);

// Begins and ends a page, and a section of it. Titles are texts; the lead is
// HTML.
std::string BeginPage(absl::string_view title);
std::string EndPage();
std::string BeginSection(absl::string_view title, absl::string_view lead);

// Returns what run it is: "Run 2 of 3, began 2026-11-29 09:16:55 UTC, ...", and
// whether some of its steps do not count.
std::string AboutRun(const RunReport& report);

// Returns "step 7" or "steps 7 to 9".
std::string SaySteps(int64_t first, int64_t last);

// Returns how the run has ended, if that is known, the verdict, and the advice,
// which points to other sections of the page of one run.
enum class Advice { kShown, kLeftOut };
std::string VerdictBlock(const RunReport& report, Advice advice);
std::string KeyNumbers(const RunReport& report);
std::string Notes(const RunReport& report);

// The time of all ranks together, in seconds that are finite and not below 0.
struct TimeParts {
  double for_data = 0, for_others = 0, in_transfer = 0, between = 0, own = 0;

  explicit TimeParts(const RankTime& rank);
  explicit TimeParts(const std::vector<RankTime>& ranks);

  double whole() const {
    return for_data + for_others + in_transfer + between + own;
  }
  std::vector<BarPart> AsBar() const;
  // Returns the parts in words: "waits for data 12 %, ...".
  std::string InWords() const;
};

// Returns a large bar with its legend.
std::string BarOfParts(const TimeParts& parts, absl::string_view of_what);

// A line of a legend. `style` is a class, or several.
struct KeyEntry {
  std::string style;
  std::string text;        // of HTML
  std::string value = {};  // of HTML; may be ""
};
std::string Key(const std::vector<KeyEntry>& entries,
                absl::string_view style = "");

// Returns whether a curve has anything to show: points, or values that are not
// finite.
bool HasValues(const Curve& curve);

// Returns a small chart of one or two curves of the same name, which have
// values. `second` may be null.
std::string CurveFigure(const Curve& first, const Curve* second);

// Returns the text of an operation: "all_reduce", and of its bucket, if any.
std::string NameOfOperation(const OperationTimes& times);

}  // namespace lockstep::internal_report

#endif  // LOCKSTEP_TOOLS_REPORT_PAGE_PARTS_H_
