// A source of every test that runs on oneTBB, for the thread sanitizer, which
// finds it in the executable alone. Distributions build TBB
// without instrumentation, so the sanitizer sees what TBB's headers do in this
// process and not what its library does to order it. What is suppressed are
// races between TBB's own frames, and nothing that Lockstep does: its seam is
// annotated (happens_before.h).
// NOLINTBEGIN: the sanitizer's name
extern "C" const char* __tsan_default_suppressions();

extern "C" const char* __tsan_default_suppressions() {
  return "race_top:/tbb/\ncalled_from_lib:libtbb.so\n";
}
// NOLINTEND
