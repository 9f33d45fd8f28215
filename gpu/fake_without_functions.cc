// An NCCL, and a driver, that have lost their functions, for tests of loading.
extern "C" int ncclGetVersion(int* version) {
  *version = 22809;
  return 0;
}
