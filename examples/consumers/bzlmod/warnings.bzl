"""The warnings with which Acme compiles its own code, headers of others included."""

STRICT = [
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Wshadow",
    "-Wconversion",
    "-Wsign-conversion",
    "-Wold-style-cast",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wcast-align",
    "-Wcast-qual",
    "-Wformat=2",
    "-Wundef",
    "-Wdouble-promotion",
    "-Wmissing-declarations",
    "-Wextra-semi",
    "-Werror",
]
