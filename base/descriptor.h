// Descriptor owns a descriptor of a file, a pipe or a socket, and closes it.
//
//   Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
//   if (!file.ok()) return SystemError(errno, path);
//   const ssize_t size = ::read(file.fd(), bytes, sizeof(bytes));
#ifndef LOCKSTEP_BASE_DESCRIPTOR_H_
#define LOCKSTEP_BASE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

#include "lockstep/base/language.h"

namespace lockstep {

class Descriptor {
 public:
  // Takes the descriptor over. A negative number stands for none.
  explicit Descriptor(int fd = -1) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (ok()) Close();
  }

  int fd() const { return fd_; }
  bool ok() const { return fd_ >= 0; }

  // Closes it, and returns what close(2) returns; some file systems report only
  // there that a write has failed.
  int Close() { return ::close(std::exchange(fd_, -1)); }

 private:
  int fd_;
};

}  // namespace lockstep

#endif  // LOCKSTEP_BASE_DESCRIPTOR_H_
