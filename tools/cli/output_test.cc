#include "lockstep/tools/cli/output.h"

#include <cstdint>
#include <limits>
#include <sstream>
#include <string>

#include "absl/status/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/base/status_matchers.h"
#include "lockstep/tools/words/words.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

RecordTable Example() {
  RecordTable table({"name", "most_rows", "share", "good"});
  table.AddRow({"a", 1234567, 0.25, true});
  table.AddRow({"b, \"c\"", -1, Cell(), false});
  return table;
}

TEST(RecordTable, Text) {
  std::ostringstream out;
  Example().PrintText(out, "  ");
  EXPECT_EQ(out.str(),
            "  name    most rows  share  good\n"
            "  a       1,234,567   0.25  yes\n"
            "  b, \"c\"         -1         no\n");
}

TEST(RecordTable, Csv) {
  std::ostringstream out;
  Example().PrintCsv(out);
  EXPECT_EQ(out.str(),
            "name,most_rows,share,good\n"
            "a,1234567,0.25,yes\n"
            "\"b, \"\"c\"\"\",-1,,no\n");
}

TEST(RecordTable, Json) {
  std::ostringstream out;
  Example().PrintJson(out, "  ");
  EXPECT_EQ(out.str(),
            "[\n"
            "    {\"name\": \"a\", \"most_rows\": 1234567, \"share\": 0.25, "
            "\"good\": true},\n"
            "    {\"name\": \"b, \\\"c\\\"\", \"most_rows\": -1, \"share\": "
            "null, \"good\": false}\n"
            "  ]");
  std::ostringstream none;
  RecordTable({"a"}).PrintJson(none);
  EXPECT_EQ(none.str(), "[]");
  // JSON has no NaN.
  EXPECT_EQ(Cell(std::numeric_limits<double>::quiet_NaN()).ToJson(), "null");
}

TEST(Output, Numbers) {
  EXPECT_EQ(WithCommas(0), "0");
  EXPECT_EQ(WithCommas(-999), "-999");
  EXPECT_EQ(WithCommas(-1000), "-1,000");
  EXPECT_EQ(WithCommas(std::numeric_limits<int64_t>::min()),
            "-9,223,372,036,854,775,808");
  // Programs compare numbers, so they get all digits.
  EXPECT_EQ(Cell(0.98765432).ToJson(), "0.98765432");
  EXPECT_EQ(Cell(0.98765432).ToText(), "0.987654");
  EXPECT_EQ(Counted(1, "row", "rows"), "1 row");
  EXPECT_EQ(Counted(0, "row", "rows"), "0 rows");
}

TEST(Output, LinesOfATerminal) {
  EXPECT_EQ(Wrapped("a bc"), "  a bc\n");
  const std::string word(30, 'x');
  EXPECT_EQ(Wrapped(word + " " + word + " " + word, "- "),
            "- " + word + " " + word + "\n- " + word + "\n");
  // 80 columns are just right.
  EXPECT_EQ(Wrapped(std::string(39, 'a') + " " + std::string(40, 'b'), ""),
            std::string(39, 'a') + " " + std::string(40, 'b') + "\n");
  EXPECT_EQ(Wrapped(std::string(40, 'a') + " " + std::string(40, 'b'), ""),
            std::string(40, 'a') + "\n" + std::string(40, 'b') + "\n");
  // A long word stays whole.
  EXPECT_EQ(Wrapped(std::string(90, 'a')), "  " + std::string(90, 'a') + "\n");
}

TEST(Output, Formats) {
  EXPECT_THAT(ParseFormat("json"), IsOkAndHolds(OutputFormat::kJson));
  EXPECT_THAT(ParseFormat("jsn"),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       HasSubstr("there is no --format 'jsn'; did you mean "
                                 "'json'? Known: text, json, csv")));
  EXPECT_THAT(ParseFormat("markdown"),
              StatusIs(absl::StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace lockstep
