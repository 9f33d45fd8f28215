"""The extension that Bazel's built-in module names; it offers no binary."""

def _repository_impl(repository_ctx):
    repository_ctx.file("BUILD.bazel")

_repository = repository_rule(implementation = _repository_impl)

def _extension_impl(_module_ctx):
    _repository(name = "buildozer_binary")

buildozer_binary = module_extension(implementation = _extension_impl)
