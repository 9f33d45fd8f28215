// Runs the README's first program with its text, as the README shows them, on
// several ranks.
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "lockstep/examples/execute.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// Writes an array of one dimension in the format of numpy.save.
void WriteNpy(const std::string& path, const std::vector<float>& values) {
  std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" +
                       std::to_string(values.size()) + ",), }";
  header.resize(117, ' ');
  header += '\n';
  std::ofstream file(path, std::ios::binary);
  file << std::string("\x93NUMPY\x01\x00", 8)
       << static_cast<char>(header.size()) << '\0' << header;
  file.write(reinterpret_cast<const char*>(values.data()),
             static_cast<std::streamsize>(values.size() * sizeof(float)));
}

TEST(Readme, TheFirstProgramLearns) {
  std::vector<float> x, y;
  for (int i = 0; i < 1003; ++i) {
    x.push_back(static_cast<float>(i) / 1003);
    y.push_back(2 * x.back());
  }
  const std::string folder = std::getenv("TEST_TMPDIR");
  WriteNpy(folder + "/x.npy", x);
  WriteNpy(folder + "/y.npy", y);
  const std::string program =
      "$OLDPWD/docs/snippets/train "
      "--config=$OLDPWD/docs/snippets/readme/first.toml";
  const std::string there = "cd $TEST_TMPDIR && ";
  for (const std::string& command :
       {program,
        "$OLDPWD/tools/cli/lockstep launch -n 2 --grace=1h -- " + program}) {
    const examples::Ended ended = examples::Execute(there + command);
    EXPECT_EQ(ended.code, 0) << ended.printed;
    EXPECT_THAT(ended.printed, AllOf(HasSubstr("epoch 0: 21 steps in "),
                                     HasSubstr("epoch 9: 21 steps in ")));
  }
}

}  // namespace
