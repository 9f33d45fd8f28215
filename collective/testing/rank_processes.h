// Runs ranks as processes of the test's own program. A test can kill and stop
// them, and read their output:
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
// SIGALRM ends a process that still runs after 240 s. The destructor kills all
// processes.
#ifndef LOCKSTEP_COLLECTIVE_TESTING_RANK_PROCESSES_H_
#define LOCKSTEP_COLLECTIVE_TESTING_RANK_PROCESSES_H_

#include <sys/types.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "lockstep/base/language.h"

namespace lockstep {

// The processes of a job's ranks.
// Thread-safety: thread-compatible.
class RankProcesses {
 public:
  // The values that a process gets.
  struct Self {
    int rank = 0;
    int size = 1;
    std::string folder;  // the ranks meet at file://folder
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
  // Sends a signal. After SIGSTOP, it returns when the rank has stopped.
  void Signal(int rank, int signal);

  // Waits until the rank has printed a line that contains `text`. Returns all
  // that it has printed so far.
  std::string AwaitLine(int rank, const std::string& text);

  // Waits for the rank's end, and returns all that it has printed. Fails the
  // test if a signal ended it (unless one was sent here), or if its exit code
  // is not 0.
  std::string Wait(int rank);

  // The main function of a program with roles. A process that is not a rank
  // runs the tests, or `otherwise`.
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

  // Reads more output. Returns false at its end.
  bool Read(Process& process);

  std::string folder_;
  std::vector<Process> processes_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_COLLECTIVE_TESTING_RANK_PROCESSES_H_
