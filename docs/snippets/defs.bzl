"""What the documents' examples are compiled from: the documents themselves."""

load("//config:defs.bzl", "lockstep_cc_library")

def document_snippets(name, document, cpp = [], toml = []):
    """Makes a file of each block of a document that has one of these names.

    A block of C++ becomes NAME/BLOCK.inc, which a test includes behind the library
    NAME, and a block of TOML becomes NAME/BLOCK.toml.
    """
    blocks = [("cpp", block, "inc") for block in cpp]
    blocks += [("toml", block, "toml") for block in toml]
    for language, block, suffix in blocks:
        native.genrule(
            name = "%s_%s_%s" % (name, block, suffix),
            srcs = [document],
            outs = ["%s/%s.%s" % (name, block, suffix)],
            cmd = "awk -v language=%s -v name=%s -f $(location extract.awk) $(location %s) >$@" %
                  (language, block, document),
            tools = ["extract.awk"],
        )
    lockstep_cc_library(
        name = name,
        testonly = True,
        hdrs = ["%s/%s.inc" % (name, block) for block in cpp],
    )
