// Ranks as processes of the test's own program, to be killed, stopped and
// listened to:
//
//   int Greet(const RankProcesses::Self& self) {
//     std::printf("hello from %d\n", self.rank);
//     return 0;
//   }
//
//   TEST(Greeting, Comes) {
//     RankProcesses ranks("greet", 2);
//     ranks.AwaitLine(1, "hello");
//     ranks.Signal(0, SIGKILL);
//     EXPECT_EQ(ranks.Wait(1), "hello from 1\n");
//   }
//
//   int main(int argc, char** argv) {
//     return RankProcesses::Main(argc, argv, {{"greet", Greet}});
//   }
//
// A process that is still there after 240 s is ended by SIGALRM; all are killed
// when the object goes.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_RANK_PROCESSES_H_
#define LOCKSTEP_COLLECTIVE_TESTING_RANK_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep {

class RankProcesses {
 public:
  // What a process knows of itself.
  struct Self {
    int rank = 0;
    int size = 1;
    std::string folder;  // where the ranks meet: file://folder
    std::string argument;
  };
  using Role = std::function<int(const Self&)>;

  RankProcesses(const std::string& role, int size,
                const std::string& argument = "");
  ~RankProcesses();

  RankProcesses(const RankProcesses&) = delete;
  RankProcesses& operator=(const RankProcesses&) = delete;

  const std::string& folder() const { return folder_; }
  pid_t pid(int rank) const {
    return processes_[static_cast<size_t>(rank)].pid;
  }
  // A rank that is sent SIGSTOP does nothing more once this has returned.
  void Signal(int rank, int signal);

  // Waits until the rank has printed a line with `text` in it. Returns all that
  // it has printed so far.
  std::string AwaitLine(int rank, const std::string& text);

  // Waits for its end. Returns what it has printed, and fails the test if it
  // ended by a signal (unless it was given one here) or by another code than 0.
  std::string Wait(int rank);

  // The main function of a program with roles. What is no rank runs the tests,
  // or `otherwise`.
  static int Main(int argc, char** argv,
                  const std::map<std::string, Role>& roles,
                  const std::function<int()>& otherwise = RunTests);

 private:
  struct Process {
    pid_t pid = -1;
    int output = -1;  // the end of its pipe
    std::string printed;
    bool signaled = false;
  };

  static int RunTests();

  // Reads on; false at its end.
  bool Read(Process& process);

  std::string folder_;
  std::vector<Process> processes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_RANK_PROCESSES_H_
