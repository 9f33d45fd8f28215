// A library without most functions of NCCL and the driver, for tests of
// loading.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
